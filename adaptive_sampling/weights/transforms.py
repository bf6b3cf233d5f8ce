"""The steps from scores to weights, each a pure function on arrays.

A policy chains them; each may be used alone. All compute in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def ema_step(score: Any, visits: Any, value: Any, decay: float) -> Floats:
    """One step of the running mean: score ← (1−a)·score + a·value with a = max(1−decay, 1/(visits+1)).

    The first 1/(1−decay) visits are averaged evenly, so that the first value is not favoured.

    Args:
        score: real `[B]`, running scores; ignored where `visits` is 0.
        visits: integers `[B]`, visits so far.
        value: real `[B]`, the new observations.
        decay: in [0, 1).

    Returns:
        float64 `[B]`.

    Example:
        >>> ema_step([3.0], [2], [3.0], 0.9).tolist()
        [3.0]
    """
    share = np.maximum(1.0 - decay, 1.0 / (np.asarray(visits, np.float64) + 1.0))
    return np.asarray((1.0 - share) * np.asarray(score, np.float64) + share * np.asarray(value, np.float64))


def shrink(score: Any, visits: Any, group_mean: Any, shrinkage: float) -> Floats:
    """Pull scores to their group's mean: (visits·score + κ·mean)/(visits + κ); never seen: the mean.

    Args:
        score: real `[B]`.
        visits: integers `[B]`.
        group_mean: real `[B]` or a number.
        shrinkage: κ ≥ 0, the number of visits that the mean is worth.

    Returns:
        float64 `[B]`.
    """
    seen = np.asarray(visits, np.float64)
    mean = np.asarray(group_mean, np.float64)
    # With κ = 0 an unseen window would be 0/0; its own score must not count, whatever κ.
    weight = np.where(seen > 0, shrinkage, 1.0)
    return np.asarray((seen * np.asarray(score, np.float64) + weight * mean) / (seen + weight))


def clip_quantiles(values: Any, of: Any, clip: tuple[float, float]) -> Floats:
    """Clip `values` to the quantiles `clip` of `of`.

    Args:
        values: real `[N]`.
        of: real `[M]`, M ≥ 1, the values that the quantiles are taken of.
        clip: (lower, upper) quantiles in [0, 1].

    Returns:
        float64 `[N]`.
    """
    low, high = np.quantile(np.asarray(of, np.float64), clip)
    return np.clip(np.asarray(values, np.float64), low, high)


def to_positive(values: Any, centre: float, scale: float) -> Floats:
    """Positive values for a signed signal: softplus((value − centre)/scale); neither shift nor scale of it matters.

    Args:
        values: real `[N]`.
        centre: usually the mean of the values.
        scale: usually their standard deviation; 0 gives equal values.

    Returns:
        float64 `[N]`, positive, rising with the value.
    """
    deviations = np.asarray(values, np.float64) - centre
    return np.logaddexp(0.0, deviations / scale if scale > 0 else np.zeros_like(deviations))


def power_of(values: Any, power: float, reference: float) -> Floats:
    """(value/reference)^power: a reference near the largest value keeps high powers finite.

    Args:
        values: real `[N]`, not negative.
        power: ≥ 0; below 1 evens out, above 1 sharpens, 0 makes all equal.
        reference: positive.

    Returns:
        float64 `[N]`.
    """
    return np.power(np.asarray(values, np.float64) / reference, power)


def ramp(step: int, warmup_steps: int, cooldown_steps: int, total_steps: int | None) -> float:
    """λ at `step`: 0 → 1 over the warm-up, 1 → 0 over the cool-down before `total_steps`; without an end, no cool-down.

    Args:
        step: optimizer steps done.
        warmup_steps: length of the rise; 0: none.
        cooldown_steps: length of the fall; 0: none.
        total_steps: length of the training in optimizer steps, None: unknown.

    Returns:
        λ in [0, 1].

    Example:
        >>> [ramp(step, 10, 20, 100) for step in (0, 5, 50, 90, 100)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    rise = step / warmup_steps if warmup_steps > 0 else 1.0
    fall = (total_steps - step) / cooldown_steps if total_steps is not None and cooldown_steps > 0 else 1.0
    return min(max(min(rise, fall), 0.0), 1.0)


def density_combine(learned: Any, scarcity: Any, prior: Any) -> Floats:
    """s·q·r: near-copies share the weight of one window."""
    return np.asarray(np.asarray(learned, np.float64) * scarcity * prior)


def distance_blend(learned: Any, scarcity: Any, prior: Any, blend: float) -> Floats:
    """((1−β)·s + β·q)·r; s and q must have mean 1.

    Example:
        >>> distance_blend([1.5, 0.75, 0.75], np.array([0.5, 1, 1.5]), 1.0, 0.3).round(6).tolist()
        [1.2, 0.825, 0.975]
    """
    return np.asarray(((1.0 - blend) * np.asarray(learned, np.float64) + blend * np.asarray(scarcity)) * prior)


def floor_cap(values: Any, floor: float, cap: float) -> Floats:
    """clip(v/m, floor, cap) with m such that the mean is 1.

    Args:
        values: real `[N]`, finite and not negative.
        floor: in [0, 1].
        cap: ≥ 1, above `floor`; may be infinite.

    Returns:
        float64 `[N]`, mean 1. Where no m does it, because nearly all v are 0, the floor rises until the mean is 1.

    Cost:
        One sort of N values.

    Example:
        >>> floor_cap([0, 1, 10, 1], 0.1, 4.0).round(6).tolist()
        [0.1, 0.325, 3.25, 0.325]
    """
    array = np.asarray(values, np.float64)
    scale, raised = solve_scale(array, floor, cap)
    return limit(array, scale, raised, cap)


def limit(values: Floats, scale: float, floor: float, cap: float) -> Floats:
    """clip(v/scale, floor, cap), float64."""
    return np.clip(values / scale, floor, cap)


def solve_scale(values: Floats, floor: float, cap: float) -> tuple[float, float]:
    """m and floor of `floor_cap`: mean(clip(v/m, floor, cap)) = 1.

    The mean falls as m grows and is known for every m from the sorted values and their running sums, so m is bracketed
    in O(log N) per trial until it is known which values lie between floor and cap; then m follows from their sum.

    Returns:
        (m, floor), the floor as given unless it had to rise.
    """
    ordered = np.sort(values)
    count = len(ordered)
    zeros = int(np.searchsorted(ordered, 0.0, side="right"))
    if zeros == count:
        return 1.0, 1.0
    smallest, largest = float(ordered[zeros]), float(ordered[-1])
    if floor == 1.0:
        return largest, floor
    if zeros and floor * zeros + cap * (count - zeros) <= count:
        return smallest / cap, (count - cap * (count - zeros)) / zeros
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    mean = float(sums[-1]) / count

    def between(scale: float) -> tuple[int, int]:
        return int(np.searchsorted(ordered, floor * scale)), int(np.searchsorted(ordered, cap * scale, side="right"))

    def fixed(first: int, last: int) -> float:
        return floor * first + (cap * (count - last) if last < count else 0.0)

    # The mean of the clipped values is at least 1 at `low` (all positive values at the cap) and at most 1 at `high`.
    low, high = (smallest / cap if np.isfinite(cap) else mean), mean / (1.0 - floor)
    for _ in range(200):
        if between(low) == between(high):
            break
        middle = float(np.sqrt(low) * np.sqrt(high))
        first, last = between(middle)
        if fixed(first, last) + (sums[last] - sums[first]) / middle >= count:
            low = middle
        else:
            high = middle
    first, last = between(low)
    rest = count - fixed(first, last)
    total = float(sums[last] - sums[first])
    return (total / rest if total > 0 and rest > 0 else low), floor


def importance(probabilities: Any, target: Any, gamma: float) -> Floats:
    """Importance weights (t/p)^γ of draws made with probabilities p in place of t.

    With γ = 1 a mean over draws, so corrected, estimates the mean under t without bias.

    Args:
        probabilities: real `[B]`, positive.
        target: real `[B]` or a number.
        gamma: γ ≥ 0; 0 corrects nothing.

    Returns:
        float64 `[B]`.

    Example:
        >>> importance([0.5, 0.25, 0.125], 0.25, 1.0).tolist()
        [0.5, 1.0, 2.0]
    """
    return np.power(np.asarray(target, np.float64) / np.asarray(probabilities, np.float64), gamma)
