from __future__ import annotations

import math

import numpy as np
import pytest

from adaptive_sampling.ab.statistics import (
    BOOTSTRAP_SEEDS,
    Interval,
    amount_ratio,
    mean_interval,
    reach,
    seeds_needed,
    spread,
    t_cdf,
    t_quantile,
)


# Two-sided 95 % and 99 % columns of the usual table.
@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 3, 3.182),
        (0.975, 4, 2.776),
        (0.975, 9, 2.262),
        (0.975, 30, 2.042),
        (0.975, 1000, 1.962),
        (0.995, 2, 9.925),
        (0.95, 5, 2.015),
    ],
)
def test_t_quantile_equals_the_table(probability: float, degrees: int, expected: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(expected, abs=5.1e-4)
    assert t_quantile(1.0 - probability, degrees) == pytest.approx(-expected, abs=5.1e-4)


def test_t_cdf_of_one_and_two_degrees_equals_the_closed_forms() -> None:
    for t in (-3.0, -0.4, 0.0, 0.7, 5.0):
        assert t_cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-12)
        assert t_cdf(t, 2) == pytest.approx(0.5 + t / (2.0 * math.sqrt(2.0 + t * t)), abs=1e-12)


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 2), (1.0, 2), (0.9, 0)])
def test_t_quantile_refuses_what_has_no_value(probability: float, degrees: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        t_quantile(probability, degrees)


def test_mean_interval_by_hand() -> None:
    interval = mean_interval([1.0, 2.0, 3.0])  # sd 1, half-width 4.302653/sqrt(3)
    assert interval.mean == 2.0
    assert interval.half_width == pytest.approx(4.302653 / math.sqrt(3.0), rel=1e-6)
    assert not interval.excludes_zero
    assert mean_interval([1.0]) == Interval(1.0, None, None, 1)
    assert mean_interval([0.1, 0.1, 0.1]) == Interval(0.1, 0.1, 0.1, 3)


def test_reach_is_linear_in_the_logarithm() -> None:
    # Halfway in loss between 100 and 400 tokens: the geometric mean.
    assert reach([100, 400], [3.0, 2.0], 2.5) == pytest.approx(200.0)
    assert reach([100, 400], [3.0, 2.0], 2.0) == 400.0
    assert reach([100, 400], [3.0, 2.0], 1.9) is None
    assert reach([100, 400], [3.0, 2.0], 3.5) == 100.0
    assert reach([100, 200, 400], [3.0, 2.0, 2.5], 2.25) == pytest.approx(100 * 2**0.75)


def test_amount_ratio_is_symmetric_and_always_there() -> None:
    better, worse, tokens = [4.0, 2.0, 1.0], [4.0, 3.0, 2.0], [100.0, 200.0, 400.0]
    assert amount_ratio(better, worse, tokens, tokens) == pytest.approx(0.5)
    assert amount_ratio(worse, better, tokens, tokens) == pytest.approx(2.0)


def test_mean_interval_of_many_seeds_is_a_bootstrap_that_is_the_same_each_time() -> None:
    values = np.random.default_rng(0).exponential(1.0, 40).tolist()
    interval = mean_interval(values)
    assert interval == mean_interval(values)
    assert interval.low is not None
    assert interval.high is not None
    # Skewed values: the upper end is farther from the mean than the lower one, which a t interval cannot be.
    assert interval.high - interval.mean > interval.mean - interval.low > 0
    # It agrees with the normal interval of the mean to a few per cent of its width.
    half = 1.96 * np.std(values, ddof=1) / np.sqrt(40)
    assert interval.half_width == pytest.approx(half, rel=0.1)
    assert mean_interval(values[: BOOTSTRAP_SEEDS - 1]).half_width == pytest.approx(
        2.306 * np.std(values[: BOOTSTRAP_SEEDS - 1], ddof=1) / 3.0, rel=1e-3
    )


def test_seeds_needed_gives_the_power_it_promises() -> None:
    rng = np.random.default_rng(1)
    count = seeds_needed(0.1, 0.08)
    trials = 0.08 + 0.1 * rng.standard_normal((2000, count))
    half = t_quantile(0.975, count - 1) * trials.std(axis=1, ddof=1) / np.sqrt(count)
    # The approximation is a little short of 0.8 for few seeds; the binomial standard deviation is 0.009.
    assert np.mean(np.abs(trials.mean(axis=1)) > half) == pytest.approx(0.8, abs=0.05)
    assert seeds_needed(0.0, 0.1) == 2
    assert seeds_needed(0.1, 0.01) > seeds_needed(0.1, 0.02) > seeds_needed(0.1, 0.04)
    with pytest.raises(ValueError, match=r"got 0.1 and 0.0"):
        seeds_needed(0.1, 0.0)


def test_spread_by_hand() -> None:
    assert spread([1.0]) is None
    assert spread([0.1, 0.1]) == 0.0
    assert spread([1.0, 2.0, 3.0]) == pytest.approx(1.0)
