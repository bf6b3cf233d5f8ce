"""The steps from scores to weights, each a pure function on arrays.

A policy chains them; each may be used alone. All compute in float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.weights._scale import solve_scale

Floats = NDArray[np.float64]
__all__ = [
    "below_threshold",
    "bring_forward",
    "clip_quantiles",
    "density_combine",
    "distance_blend",
    "ema_step",
    "floor_cap",
    "importance",
    "learnable_share",
    "level_of",
    "limit",
    "mix_uniform",
    "power_of",
    "ramp",
    "shrink",
    "solve_scale",
    "to_positive",
    "uniform_share",
]


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


def level_of(values: Any, low: float, high: float, *, signed: bool) -> Floats:
    """Values as `Drift` sums them up: clipped to [low, high] and, unless they are signed, as logarithms.

    Clipping keeps a single outlier from moving the level of its group; logarithms make a fall from 8 to 4 as large as
    one from 0.08 to 0.04.

    Args:
        values: real `[B]`.
        low: smallest value that counts as it is; positive unless `signed`.
        high: largest such value.
        signed: values may be negative.

    Returns:
        float64 `[B]`.
    """
    clipped = np.clip(np.asarray(values, np.float64), low, high)
    return clipped if signed else np.log(clipped)


def bring_forward(score: Any, movement: Any, *, signed: bool) -> NDArray[Any]:
    """Scores as they would be now, had they moved like the level of their group: score·movement, signed score +
    movement.

    Args:
        score: real `[B]`.
        movement: real `[B]` or a number: the level now over the level when the score was observed; for signed scores
            the difference of both.
        signed: scores may be negative.

    Returns:
        float `[B]`, of the precision of the arguments.
    """
    old = np.asarray(score)
    return np.asarray(old + movement if signed else old * movement)


def learnable_share(own: Any, visits: Any, of_group: Any, shrinkage: float) -> NDArray[Any]:
    """How much of a window's value can still be learned: its group's share times its own, which is shrunk to 1.

    g·(clip(own, 0, 1)·(visits−1) + κ)/(visits−1 + κ). Noise does not fall; its loss is high for good and teaches
    nothing. A window never seen or seen once has its group's share.

    Args:
        own: real `[B]`, fall of the window's loss since its first visit over the fall that makes it fully learnable.
        visits: integers `[B]`.
        of_group: g, real `[B]` or a number, in [0, 1].
        shrinkage: κ > 0, the number of visits that the benefit of the doubt is worth.

    Returns:
        float `[B]`, in [0, 1].

    Example:
        >>> learnable_share([0.0, 0.0, 2.0], [1, 3, 5], 0.5, 2.0).tolist()
        [0.5, 0.25, 0.5]
    """
    share = np.clip(np.asarray(own), 0.0, 1.0)
    again = np.maximum(np.asarray(visits) - 1, 0).astype(share.dtype)
    return np.asarray(np.asarray(of_group) * ((share * again + shrinkage) / (again + shrinkage)))


def clip_quantiles(values: Any, of: Any, clip: tuple[float, float]) -> Floats:
    """Clip `values` to the quantiles `clip` of `of`.

    Args:
        values: real `[N]`.
        of: real `[M]`, M ≥ 1, the values that the quantiles are taken of.
        clip: (lower, upper) quantiles in [0, 1].

    Returns:
        float64 `[N]`.

    Raises:
        ValueError: if `of` is empty.
    """
    seen = np.asarray(of, np.float64)
    if not seen.size:
        raise ValueError("`of` must hold at least one value, got none. Clip as soon as something was seen.")
    low, high = np.quantile(seen, clip)
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


def below_threshold(values: Any, threshold: float, width: float) -> Floats:
    """1/(1 + exp((value − threshold)/width)): near 1 well below the threshold, ½ at it, near 0 well above.

    Args:
        values: real `[N]`.
        threshold: in their units.
        width: likewise; 0 gives 1 up to the threshold and 0 above.

    Returns:
        float64 `[N]`, in [0, 1].
    """
    above = np.asarray(values, np.float64) - threshold
    if width <= 0:
        return np.where(above <= 0, 1.0, 0.0)
    return np.asarray(np.exp(-np.logaddexp(0.0, above / width)))


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

    Raises:
        ValueError: naming the first value that is negative or not finite, or if the limits are not around 1.

    Cost:
        Two looks at all values or a few more, see `solve_scale`; no sort.

    Example:
        >>> floor_cap([0, 1, 10, 1], 0.1, 4.0).round(6).tolist()
        [0.1, 0.325, 3.25, 0.325]
    """
    array = np.asarray(values, np.float64)
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        at = int(bad.argmax())
        raise ValueError(
            f"`values` must be finite and not negative, got {float(array.flat[at])!r} at position {at}. Clean them."
        )
    if not (0 <= floor <= 1 <= cap and floor < cap):
        raise ValueError(f"`floor` must be in [0, 1] and below `cap`, which is at least 1, got {floor!r} and {cap!r}.")
    scale, raised = solve_scale(array, floor, cap)
    return limit(array, scale, raised, cap)


def limit(values: Floats, scale: float, floor: float, cap: float) -> Floats:
    """clip(v/scale, floor, cap), float64."""
    return np.clip(values / scale, floor, cap)


def mix_uniform(weights: Any, share: float) -> Floats:
    """(1−u)·w + u: draws of which a share u is uniform; `weights` must have mean 1 and keep it.

    Args:
        weights: real `[N]`, mean 1.
        share: u in [0, 1].

    Returns:
        float64 `[N]`.
    """
    return np.asarray((1.0 - share) * np.asarray(weights, np.float64) + share)


def uniform_share(mean_square: float, least: float) -> float:
    """The smallest u of `mix_uniform` at which the effective sample size is at least `least` of N.

    With mean 1 the effective sample size is 1/mean(w²), and mixing shrinks mean(w²) − 1 by (1−u)².

    Args:
        mean_square: mean(w²), at least 1.
        least: share of N, in [0, 1].

    Returns:
        u in [0, 1].

    Example:
        >>> uniform_share(5.0, 0.5)
        0.5
    """
    variance = mean_square - 1.0
    if least <= 0 or variance <= 0 or least * mean_square <= 1.0:
        return 0.0
    return 1.0 - math.sqrt((1.0 / least - 1.0) / variance)


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
