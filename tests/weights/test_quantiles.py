import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_sampling.weights import _blocks, _quantiles
from adaptive_sampling.weights._quantiles import quantiles


@pytest.fixture
def small_blocks(monkeypatch):
    """The ways of long arrays, on short ones."""
    monkeypatch.setattr(_quantiles, "_SAMPLE", 64)
    monkeypatch.setattr(_blocks, "BLOCK", 100)


levels = st.lists(st.one_of(st.sampled_from([0.0, 0.05, 0.5, 0.9, 1.0]), st.floats(0, 1)), min_size=1, max_size=3)
numbers = st.one_of(st.sampled_from([0.0, 1.0, 2.0]), st.floats(-1e6, 1e6, width=32))


def expected(values, wanted):
    counted = values[~np.isnan(values)].astype(np.float64)
    return np.quantile(counted, wanted).tolist()


@given(st.lists(numbers, min_size=1, max_size=50), levels)
def test_quantiles_are_those_of_numpy(values, wanted):
    array = np.array(values, np.float32)
    assert quantiles(len(array), lambda part: array[part], wanted) == expected(array, wanted)


@pytest.mark.parametrize(
    "kind", ["random", "sorted", "equal", "few values", "nearly none counts", "sample misleads", "outlier"]
)
def test_quantiles_of_long_arrays_are_exact(small_blocks, kind):
    rng = np.random.default_rng(0)
    values = rng.lognormal(0, 2, 5000).astype(np.float32)
    if kind == "sorted":
        values.sort()
    elif kind == "equal":
        values[:] = 3
    elif kind == "few values":
        values = rng.integers(0, 3, 5000).astype(np.float32)
    elif kind == "nearly none counts":
        values[rng.random(5000) < 0.999] = np.nan
        values[7] = 1
    elif kind == "sample misleads":
        values[:: 5000 // 64] = 1e6
    elif kind == "outlier":
        values[3] = 1e30
    wanted = [0.0, 0.05, 0.5, 0.9, 0.999, 1.0]
    assert quantiles(5000, lambda part: values[part], wanted) == expected(values, wanted)
    assert quantiles(5000, lambda part: values[part], []) == []


def test_blocks_come_back_in_order_whatever_the_number_of_threads(small_blocks, monkeypatch):
    for threads in (1, 2, 3, 64):
        monkeypatch.setattr(_blocks, "_available", lambda threads=threads: threads)
        monkeypatch.setattr(_blocks, "_MOST_THREADS", 64)
        parts = _blocks.map_blocks(1050, lambda part: (part.start, part.stop))
        assert parts == [(first, min(first + 100, 1050)) for first in range(0, 1050, 100)]
    assert _blocks.map_blocks(0, lambda part: part) == []


def test_an_error_in_a_block_reaches_the_caller(small_blocks):
    def fail(part):
        if part.start == 700:
            raise RuntimeError("block 7")

    with pytest.raises(RuntimeError, match="block 7"):
        _blocks.map_blocks(1000, fail)
