import math

import numpy as np
import pytest

from adaptive_sampling.weights import _blocks, _scale
from adaptive_sampling.weights.transforms import limit


@pytest.fixture
def small_sample(monkeypatch):
    monkeypatch.setattr(_scale, "_SAMPLE", 256)
    monkeypatch.setattr(_blocks, "BLOCK", 1000)


@pytest.mark.parametrize("floor", [0.0, 0.1, 0.9, 1.0])
@pytest.mark.parametrize("cap", [1.01, 4.0, math.inf])
@pytest.mark.parametrize("kind", ["usual", "wide", "equal", "half zeros", "nearly all zeros", "sample misleads"])
def test_the_mean_is_one_for_long_arrays_too(small_sample, floor, cap, kind):
    rng = np.random.default_rng(0)
    values = rng.lognormal(0, {"wide": 6}.get(kind, 0.5), 20_000).astype(np.float32)
    if kind == "equal":
        values[:] = 3
    elif kind == "half zeros":
        values[::2] = 0
    elif kind == "nearly all zeros":
        values[:-3] = 0
    elif kind == "sample misleads":
        values[:: 20_000 // 256] *= 50
    scale, raised = _scale.solve_scale(values, floor, cap)
    weights = limit(values.astype(np.float64), scale, raised, cap)
    assert weights.mean() == pytest.approx(1, rel=1e-7)
    assert weights.min() >= floor
    assert weights.max() <= cap
    assert raised == floor or kind in ("half zeros", "nearly all zeros")


def test_the_scale_does_not_depend_on_the_number_of_threads(small_sample, monkeypatch):
    values = np.random.default_rng(1).lognormal(0, 2, 20_000)
    found = set()
    for threads in (1, 2, 5):
        monkeypatch.setattr(_blocks, "_available", lambda threads=threads: threads)
        monkeypatch.setattr(_blocks, "_MOST_THREADS", 8)
        found.add(_scale.solve_scale(values, 0.1, 4.0))
    assert len(found) == 1
