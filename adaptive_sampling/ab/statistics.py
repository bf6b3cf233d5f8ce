"""Intervals over seeds, and how much a curve needs to reach a loss.

With a handful of seeds the interval must be Student's: its half-width for 3 seeds is 2.5 standard deviations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from adaptive_sampling._random import keyed_generator

MIN_SEEDS = 3
"""Seeds below which a verdict is called preliminary."""

BOOTSTRAP_SEEDS = 10
"""Seeds from which intervals come from resampling instead of Student's t, which supposes a normal distribution."""

_RESAMPLES = 10_000


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b), by its continued fraction (Lentz's method)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        # The fraction converges fast on the other side only.
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    ) / a  # fmt: skip
    tiny = 1e-300
    c, d = 1.0, 1.0 / max(1.0 - (a + b) * x / (a + 1.0), tiny)
    fraction = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for term in (even, odd):
            d = 1.0 + term * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + term / c
            c = c if abs(c) > tiny else tiny
            step = c * d
            fraction *= step
        if abs(step - 1.0) < 1e-15:
            break
    return front * fraction


def t_cdf(t: float, degrees: float) -> float:
    """Probability that a Student variable with `degrees` degrees of freedom is at most `t`."""
    tail = 0.5 * _incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + t * t))
    return 1.0 - tail if t > 0 else tail


def t_quantile(probability: float, degrees: int) -> float:
    """Value that a Student variable stays below with `probability`.

    Raises:
        ValueError: outside 0 < probability < 1, or without a degree of freedom.

    Example:
        >>> round(t_quantile(0.975, 2), 3)
        4.303
    """
    if not 0.0 < probability < 1.0:
        raise ValueError(f"`probability` must be between 0 and 1, got {probability!r}.")
    if degrees < 1:
        raise ValueError(f"`degrees` must be at least 1, got {degrees!r}. An interval needs two values.")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, degrees)
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if t_cdf(middle, degrees) < probability else (low, middle)
    return 0.5 * (low + high)


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval; `low` and `high` are None for a single value."""

    mean: float
    low: float | None
    high: float | None
    count: int

    @property
    def excludes_zero(self) -> bool:
        """Is zero outside the interval?"""
        return self.low is not None and self.high is not None and (self.low > 0.0 or self.high < 0.0)

    @property
    def half_width(self) -> float | None:
        """Half the interval's width."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2.0


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Mean of `values` and its interval: Student's below `BOOTSTRAP_SEEDS` values, else by bootstrap.

    Raises:
        ValueError: without values.
    """
    count = len(values)
    if count == 0:
        raise ValueError("`values` must hold at least one value, got none.")
    # Equal values have no spread at all; rounding in the mean must not give them one.
    mean = values[0] if min(values) == max(values) else math.fsum(values) / count
    if count == 1:
        return Interval(mean, None, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    if count >= BOOTSTRAP_SEEDS:
        return Interval(mean, *_bootstrap(values, level), count)
    half = t_quantile(0.5 + level / 2.0, count - 1) * math.sqrt(variance / count)
    return Interval(mean, mean - half, mean + half, count)


def _bootstrap(values: Sequence[float], level: float) -> tuple[float, float]:
    """Percentile interval of the mean over resamples that are the same each time."""
    array = np.asarray(values, np.float64)
    chosen = keyed_generator("bootstrap", len(array)).integers(0, len(array), (_RESAMPLES, len(array)))
    low, high = np.quantile(array[chosen].mean(axis=1), [0.5 - level / 2.0, 0.5 + level / 2.0])
    return float(low), float(high)


def spread(values: Sequence[float]) -> float | None:
    """Standard deviation (n − 1) of `values`, None for fewer than two."""
    if len(values) < 2:
        return None
    return 0.0 if min(values) == max(values) else float(np.std(np.asarray(values, np.float64), ddof=1))


def reach(amounts: Sequence[float], losses: Sequence[float], target: float) -> float | None:
    """Amount at which a loss curve first reaches `target`, linear in log(amount) between evaluations.

    Args:
        amounts: tokens, steps or seconds at each evaluation, increasing and positive.
        losses: held-out loss at each, in nats per target.
        target: loss to reach.

    Returns:
        The amount; that of the first evaluation if the loss is already there; None if the curve never gets there.
    """
    for k, loss in enumerate(losses):
        if loss <= target:
            if k == 0 or loss == target:
                return float(amounts[k])
            above = losses[k - 1]
            share = (above - target) / (above - loss)
            return math.exp(math.log(amounts[k - 1]) * (1.0 - share) + math.log(amounts[k]) * share)
    return None


def amount_ratio(
    arm: Sequence[float], baseline: Sequence[float], arm_amounts: Sequence[float], baseline_amounts: Sequence[float]
) -> float:
    """Amount that an arm needs for each unit of the baseline's, to reach the same held-out loss.

    The loss is the higher of the two final ones, which both curves reach: the baseline's final loss if the arm ends
    below it (ratio below 1), else the arm's (ratio above 1). So a target that the arm never reaches still has a ratio.

    Args:
        arm: held-out losses of the arm's run.
        baseline: those of the baseline's run.
        arm_amounts: tokens, steps or seconds at each of the arm's evaluations.
        baseline_amounts: likewise.
    """
    target = max(arm[-1], baseline[-1])
    mine = reach(arm_amounts, arm, target)
    its = reach(baseline_amounts, baseline, target)
    assert mine is not None
    assert its is not None
    return mine / its


def seeds_needed(spread: float, effect: float, power: float = 0.8) -> int:
    """Seeds in all with which an effect of this size would be seen with probability `power`.

    The smallest n with effect ≥ (t(0.975, n−1) + t(power, n−1))·spread/√n, the usual approximation for a paired t test
    at the level of 5 % (Cohen, Statistical Power Analysis, chapter 2).

    Args:
        spread: standard deviation of the paired differences.
        effect: size of the true mean difference, in the same unit.
        power: chance of an interval that excludes zero.

    Raises:
        ValueError: unless spread ≥ 0 and effect > 0.

    Example:
        >>> seeds_needed(0.1, 0.1), seeds_needed(0.1, 0.05)
        (10, 34)
    """
    if not (spread >= 0.0 and effect > 0.0):
        raise ValueError(f"`spread` must be at least 0 and `effect` above 0, got {spread!r} and {effect!r}.")
    # Normal quantiles need fewer seeds than Student's: the search starts below the answer, and close to it.
    count = max(2, math.floor(((1.959 + NormalDist().inv_cdf(power)) * spread / effect) ** 2))
    while effect < (t_quantile(0.975, count - 1) + t_quantile(power, count - 1)) * spread / math.sqrt(count):
        count += 1
    return count
