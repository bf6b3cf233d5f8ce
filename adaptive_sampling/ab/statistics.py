"""Differences between arms, paired by seed, with Student's t intervals.

Two runs of one seed start from the same parameters, so their difference has far less noise than either loss. With a
handful of seeds the interval must be Student's: its half-width for 3 seeds is 2.5 standard deviations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adaptive_sampling.ab.record import RunRecord

MIN_SEEDS = 3
"""Seeds below which a verdict is called preliminary."""


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
    """Mean of `values` and Student's interval for it.

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
    half = t_quantile(0.5 + level / 2.0, count - 1) * math.sqrt(variance / count)
    return Interval(mean, mean - half, mean + half, count)


def tokens_to_target(tokens: Sequence[float], losses: Sequence[float], target: float) -> float | None:
    """Tokens at which a loss curve first reaches `target`, linear in log(tokens) between evaluations.

    Args:
        tokens: tokens trained on at each evaluation, increasing and positive.
        losses: held-out loss at each, in nats per target.
        target: loss to reach.

    Returns:
        The tokens; those of the first evaluation if it is already there; None if the curve never gets there.
    """
    for k, loss in enumerate(losses):
        if loss <= target:
            if k == 0 or loss == target:
                return float(tokens[k])
            above = losses[k - 1]
            share = (above - target) / (above - loss)
            return math.exp(math.log(tokens[k - 1]) * (1.0 - share) + math.log(tokens[k]) * share)
    return None


def token_ratio(arm: RunRecord, baseline: RunRecord) -> float:
    """Tokens that `arm` needs for each token of `baseline`, to reach the same held-out loss.

    The loss is the higher of the two final ones, which both curves reach: the baseline's final loss if the arm ends
    below it (ratio below 1), else the arm's (ratio above 1).
    """
    target = max(arm.final_loss, baseline.final_loss)
    mine = tokens_to_target(arm.tokens, arm.losses, target)
    its = tokens_to_target(baseline.tokens, baseline.losses, target)
    assert mine is not None
    assert its is not None
    return mine / its


@dataclass(frozen=True)
class Comparison:
    """An arm against the baseline over the seeds that finished in both.

    Attributes:
        arm: name of the arm.
        baseline: name of the arm it is compared with.
        seeds: seeds that finished in both.
        missing: seeds that are not in `seeds` because a run failed or diverged.
        loss_difference: final held-out loss, arm minus baseline, nats per target; None without a pair.
        source_differences: the same per validation loader.
        token_change: tokens needed for the same loss over the baseline's, minus 1; the mean is geometric.
        not_reached: seeds in which the arm ended above the baseline's final loss.
        seconds_change: training time over the baseline's, minus 1.
        verdict: one phrase.
    """

    arm: str
    baseline: str
    seeds: tuple[int, ...]
    missing: tuple[int, ...]
    loss_difference: Interval | None
    source_differences: Mapping[str, Interval]
    token_change: Interval | None
    not_reached: tuple[int, ...]
    seconds_change: Interval | None
    verdict: str


def compare(arm: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> Comparison:
    """Compare the runs of one arm with those of the baseline, seed by seed.

    Raises:
        ValueError: without a run on either side.
    """
    if not arm or not baseline:
        raise ValueError("`arm` and `baseline` must hold at least one run each, got none.")
    reference = {run.seed: run for run in baseline}
    pairs = [
        (run, reference[run.seed])
        for run in sorted(arm, key=lambda run: run.seed)
        if run.finished and run.seed in reference and reference[run.seed].finished
    ]
    seeds = tuple(run.seed for run, _ in pairs)
    missing = tuple(sorted({run.seed for run in [*arm, *baseline]} - set(seeds)))
    names = (arm[0].arm, baseline[0].arm)
    if not pairs:
        return Comparison(*names, (), missing, None, {}, None, (), None, "no pair of runs finished")
    logs = mean_interval([math.log(token_ratio(run, base)) for run, base in pairs])
    low, high = (None if end is None else math.expm1(end) for end in (logs.low, logs.high))
    change = Interval(math.expm1(logs.mean), low, high, logs.count)
    difference = mean_interval([run.final_loss - base.final_loss for run, base in pairs])
    return Comparison(
        *names,
        seeds,
        missing,
        difference,
        {
            name: mean_interval([run.final_losses[name] - base.final_losses[name] for run, base in pairs])
            for name in pairs[0][0].final_losses
        },
        change,
        tuple(run.seed for run, base in pairs if run.final_loss > base.final_loss),
        mean_interval([run.train_seconds / base.train_seconds - 1.0 for run, base in pairs]),
        verdict_text(change, missing=len(missing)),
    )


def percent(value: float) -> str:
    """A share as a signed whole percentage, with a real minus sign.

    Example:
        >>> percent(-0.021), percent(0.0), percent(0.031)
        ('−2', '0', '+3')
    """
    text = f"{100.0 * value:+.0f}".replace("-", "−")
    return "0" if text in ("+0", "−0") else text


def verdict_text(change: Interval, *, missing: int = 0) -> str:
    """The verdict on a change in tokens, in words.

    Example:
        >>> verdict_text(Interval(-0.31, -0.38, -0.24, 3))
        '31 % fewer tokens (24 to 38)'
        >>> verdict_text(Interval(0.005, -0.02, 0.03, 3))
        'no difference seen (−2 to +3 %)'
    """
    direction = "fewer" if change.mean < 0 else "more"
    if change.low is None or change.high is None:
        text = f"{abs(100 * change.mean):.0f} % {direction} tokens"
    elif change.excludes_zero:
        ends = sorted((abs(100 * change.low), abs(100 * change.high)))
        text = f"{abs(100 * change.mean):.0f} % {direction} tokens ({ends[0]:.0f} to {ends[1]:.0f})"
    else:
        text = f"no difference seen ({percent(change.low)} to {percent(change.high)} %)"
    if change.count < MIN_SEEDS:
        text = f"preliminary, {change.count} seed{'s' if change.count > 1 else ''}: {text}"
    return f"{text}; {missing} seed{'s' if missing > 1 else ''} without a finished pair" if missing else text
