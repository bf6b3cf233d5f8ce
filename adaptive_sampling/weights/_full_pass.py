"""The delayed normalisation: what needs a look at all windows is computed in a full pass and then holds for a while.

`evaluate` turns scores of any windows into weights in the terms of the last pass; `full_pass` sets these terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.weights import transforms
from adaptive_sampling.weights._settings import Settings, WindowArrays
from adaptive_sampling.weights.signals import resolve_signal

Floats = NDArray[np.float64]
# Blocks of this many windows stay in the processor's cache from step to step.
_BLOCK = 1 << 16
# A group mean counts a score for at most this multiple of the upper clip quantile of all scores, so that a single
# outlier does not become the score of every window that is shrunk to it. Clipping alone comes too late for that.
_FENCE = 10.0


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """What the last full pass found.

    Attributes:
        any_seen: at least one window had a score.
        group_means: float64 `[groups]`, mean score of the seen windows of each group; of all, where none is seen.
        low: lower clip bound, in units of the signal.
        high: upper clip bound.
        reference: positive; values are divided by it before the power.
        centre: mean of the clipped values, for signed signals.
        spread: their standard deviation.
        mean: mean of the clipped values after the power, over the windows not excluded.
        ramp: λ.
        scale: m, the combined value that gets weight 1.
        floor: the floor, raised where nearly all values are 0.
    """

    any_seen: bool
    group_means: Floats
    low: float = 0.0
    high: float = 0.0
    reference: float = 1.0
    centre: float = 0.0
    spread: float = 0.0
    mean: float = 0.0
    ramp: float = 0.0
    scale: float = 1.0
    floor: float = 0.0


def shrunk_scores(frozen: Frozen, settings: Settings, score: Any, visits: Any, group: Any) -> Floats:
    """Step 2 for windows with these scores, visits and groups."""
    return transforms.shrink(score, visits, frozen.group_means[group], settings.shrinkage)


def powered(frozen: Frozen, settings: Settings, shrunk: Floats) -> Floats:
    """Step 3 without the division by the mean."""
    clipped = np.clip(shrunk, frozen.low, frozen.high)
    if resolve_signal(settings.signal).signed:
        clipped = transforms.to_positive(clipped, frozen.centre, frozen.spread)
    return transforms.power_of(clipped, settings.power, frozen.reference)


def ramped(frozen: Frozen, values: Floats) -> Floats:
    """The division by the mean, and step 6: s ← 1 + λ(s − 1). All 1 where no score says anything yet."""
    if not frozen.any_seen or frozen.mean <= 0:
        return np.ones_like(values)
    return 1.0 + frozen.ramp * (values / frozen.mean - 1.0)


def combined(settings: Settings, learned: Floats, scarcity: Any, prior: Any) -> Floats:
    """Step 4."""
    if settings.scarcity_measure == "density":
        return transforms.density_combine(learned, scarcity, prior)
    return transforms.distance_blend(learned, scarcity, prior, settings.blend)


def limited(frozen: Frozen, settings: Settings, values: Floats, prior: Any) -> Floats:
    """Step 5; an excluded window gets 0, whatever the floor."""
    weights = transforms.limit(values, frozen.scale, frozen.floor, settings.cap)
    return np.where(np.asarray(prior) > 0, weights, 0.0)


def evaluate(
    frozen: Frozen,
    settings: Settings,
    arrays: WindowArrays,
    ids: NDArray[np.int64],
    score: NDArray[np.float32],
    visits: NDArray[np.int32],
) -> NDArray[np.float32]:
    """All steps for some windows, in the terms of the last full pass; O(len(ids)).

    Args:
        ids: int64 `[B]`.
        score: float32 `[B]`, of these windows.
        visits: int32 `[B]`, of these windows.

    Returns:
        float32 `[B]`, weights.
    """
    group, scarcity, prior = arrays.of(ids)
    values = powered(frozen, settings, shrunk_scores(frozen, settings, score, visits, group))
    combination = combined(settings, ramped(frozen, values), scarcity, prior)
    return limited(frozen, settings, combination, prior).astype(np.float32)


def full_pass(
    settings: Settings,
    arrays: WindowArrays,
    score: NDArray[np.float32],
    visits: NDArray[np.int32],
    ramp: float,
) -> tuple[Frozen, NDArray[np.float32]]:
    """New terms and the weights of all windows.

    Args:
        score: float32 `[N]`.
        visits: int32 `[N]`.
        ramp: λ to hold until the next pass.

    Returns:
        The terms, and float32 `[N]` weights, mean 1 over the windows not excluded.

    Cost:
        O(N) and a sort of N values; 40 bytes per window for the time of the pass.
    """
    terms: dict[str, Any] = {"any_seen": False, "group_means": np.zeros(arrays.num_groups), "ramp": ramp}
    values = np.ones(len(score))
    seen = np.flatnonzero(visits)
    if len(seen):
        terms |= {"any_seen": True, "group_means": _group_means(settings, arrays, seen, score[seen])}
        values = _all_values(settings, arrays, terms, seen, score, visits)
    frozen = Frozen(**terms)
    for part in _blocks(len(score)):
        _, scarcity, prior = arrays.of(part)
        values[part] = combined(settings, ramped(frozen, values[part]), scarcity, prior)
    reachable = values if arrays.included is None else values[arrays.included]
    scale, floor = transforms.solve_scale(reachable, settings.floor, settings.cap)
    frozen = Frozen(**terms, scale=scale, floor=floor)
    weights = np.empty(len(score), dtype=np.float32)
    for part in _blocks(len(score)):
        weights[part] = limited(frozen, settings, values[part], arrays.of(part)[2])
    return frozen, weights


def _all_values(
    settings: Settings,
    arrays: WindowArrays,
    terms: dict[str, Any],
    seen: NDArray[np.int64],
    score: NDArray[np.float32],
    visits: NDArray[np.int32],
) -> Floats:
    """Steps 2 and 3 for all windows; adds to `terms` what they need."""
    partial = Frozen(**terms)
    values = np.empty(len(score))
    for part in _blocks(len(score)):
        values[part] = shrunk_scores(partial, settings, score[part], visits[part], arrays.of(part)[0])
    of_seen = values[seen]
    low, high = (float(x) for x in np.quantile(of_seen, settings.clip))
    terms |= {"low": low, "high": high}
    if resolve_signal(settings.signal).signed:
        np.clip(of_seen, low, high, out=of_seen)
        terms |= {"centre": float(of_seen.mean()), "spread": float(of_seen.std())}
    elif high > 0:
        terms["reference"] = high
    partial = Frozen(**terms)
    for part in _blocks(len(score)):
        values[part] = powered(partial, settings, values[part])
    terms["mean"] = float(values.mean() if arrays.included is None else values[arrays.included].mean())
    return values


def _group_means(
    settings: Settings, arrays: WindowArrays, seen: NDArray[np.int64], score: NDArray[np.float32]
) -> Floats:
    """Mean score of the seen windows of each group, each window counting once however often it was visited.

    What is drawn more often is what scores higher: a mean over visits would hand that preference on to unseen windows.
    """
    scores = score.astype(np.float64)
    if not resolve_signal(settings.signal).signed:
        high = float(np.quantile(scores, settings.clip[1]))
        if high > 0:
            np.minimum(scores, _FENCE * high, out=scores)
    overall = float(scores.mean())
    if arrays.group is None or settings.shrinkage == 0:
        return np.full(arrays.num_groups, overall)
    of_seen = arrays.group[seen]
    counts = np.bincount(of_seen, minlength=arrays.num_groups)
    sums = np.bincount(of_seen, weights=scores, minlength=arrays.num_groups)
    return np.where(counts > 0, sums / np.maximum(counts, 1), overall)


def _blocks(length: int) -> Iterator[slice]:
    return (slice(first, min(first + _BLOCK, length)) for first in range(0, length, _BLOCK))
