"""The delayed normalisation: what needs a look at all windows is computed in a full pass and then holds for a while.

`evaluate` turns rows of any windows into weights in the terms of the last pass; `full_pass` sets these terms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.weights import transforms
from adaptive_sampling.weights._blocks import map_blocks
from adaptive_sampling.weights._quantiles import quantiles
from adaptive_sampling.weights._settings import Moment, Settings, WindowArrays
from adaptive_sampling.weights._table import Table
from adaptive_sampling.weights.drift import Drift, Trend
from adaptive_sampling.weights.signals import Signal

Floats = NDArray[np.float64]
Where = NDArray[np.int64] | slice
# A value counts for at most this multiple of the upper clip quantile of all scores, in group means and levels, so that
# a single outlier does not become the score of every window that is shrunk to it. Clipping alone comes too late for
# that.
_FENCE = 10.0
# Values below this share of the fence count as this share, so that logarithms stay finite.
_SMALL = 1e-4
# Windows seen twice that are needed to tell how far losses fall from visit to visit.
_ENOUGH = 32
# A needed fall below 2 % is none.
_LEAST_FALL = 0.02
# Windows looked at for it.
_SAMPLE = 1 << 18
# The threshold of a curriculum is as soft as this share of the range between the clip quantiles.
_SOFT = 0.1
# `auto_off` takes a gain below this for none.
_GAIN = 1.05
# The partial sums of a block per group are kept until all are added; beyond this many groups they would fill the
# memory.
_MANY_GROUPS = 1 << 14


class Parts(NamedTuple):
    """What weights are made of."""

    settings: Settings
    signal: Signal
    arrays: WindowArrays
    table: Table
    drift: Drift

    @property
    def pooled(self) -> bool:
        """Do groups say something of their windows?"""
        return self.settings.shrinkage > 0 and self.signal.known is None

    @property
    def gated(self) -> bool:
        """Does it count how far losses fall? Signed signals and curricula say themselves what is worth learning.

        Without groups the high loss of a window cannot be told from noise before it was visited often: no gate then.
        """
        judges = self.signal.signed or self.signal.threshold is not None
        return self.pooled and self.settings.gate > 0 and self.arrays.group is not None and not judges


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """What the last full pass found.

    Attributes:
        moment: the numbers that follow the training, λ among them.
        group_means: float64 `[groups]`, mean score of the seen windows of each group; of all, where none is seen.
        any_seen: at least one window had a score.
        fence: values beyond it count as this in group means; 0: nothing seen yet.
        trend: how levels moved; None: not known, or groups say nothing.
        needed_fall: log-fall from the first visit that makes a window fully learnable; 0: not known.
        low: lower clip bound, in units of the signal.
        high: upper clip bound.
        threshold: value at the threshold quantile of a curriculum.
        reference: positive; values are divided by it before the power.
        centre: mean of the clipped values, for signed signals.
        spread: their standard deviation.
        mean: mean of the clipped values after the power, over the windows not excluded.
        gain: how many times smaller draws by what was learned make the variance of a corrected gradient.
        scale: m, the combined value that gets weight 1.
        floor: the floor, raised where nearly all values are 0.
        uniform: share of uniform draws mixed in, the part for the bound on the effective sample size included.
        effective_size: effective sample size of the weights, as a share of the windows not excluded.
    """

    moment: Moment
    group_means: Floats
    any_seen: bool = False
    fence: float = 0.0
    trend: Trend | None = None
    needed_fall: float = 0.0
    low: float = 0.0
    high: float = 0.0
    threshold: float = 0.0
    reference: float = 1.0
    centre: float = 0.0
    spread: float = 0.0
    mean: float = 0.0
    gain: float = 1.0
    scale: float = 1.0
    floor: float = 0.0
    uniform: float = 0.0
    effective_size: float = 1.0


def group_of(parts: Parts, where: Where) -> Any:
    """Group numbers of some windows; 0 where there are no groups."""
    return 0 if parts.arrays.group is None else parts.arrays.group[where]


def forward(frozen: Frozen, parts: Parts, where: Where) -> NDArray[np.float32]:
    """Scores brought forward to now; 0 where never seen."""
    score, visits, time, _ = parts.table.of(where)
    if frozen.trend is None:
        return score
    curve = group_of(parts, where) if parts.drift.num_curves > 1 else 0
    moved = transforms.bring_forward(score, frozen.trend.at(curve, time), signed=parts.signal.signed)
    return np.where(visits > 0, moved, np.float32(0)) if parts.signal.signed else moved


def shrunk(frozen: Frozen, parts: Parts, where: Where, scores: NDArray[np.float32] | None = None) -> Floats:
    """Step 2, from `scores` that are brought forward already; what a signal knows beforehand stays as it is."""
    if parts.signal.known is not None:
        return parts.signal.known[where]
    mean = frozen.group_means[group_of(parts, where)]
    visits = parts.table.rows.visits[where]
    scores = forward(frozen, parts, where) if scores is None else scores
    return transforms.shrink(scores, visits, mean, parts.settings.shrinkage)


def learnable(frozen: Frozen, parts: Parts, where: Where) -> Any:
    """The share of a window's value that can still be learned, in [0, 1]; 1 where that is not judged."""
    if not parts.gated or (frozen.trend is None and frozen.needed_fall == 0):
        return 1.0
    curve = group_of(parts, where) if parts.drift.num_curves > 1 else 0
    of_group = 1.0 if frozen.trend is None else frozen.trend.learnable[curve]
    if frozen.needed_fall == 0:
        return of_group
    fall, visits = _falls(frozen, parts, where)
    return transforms.learnable_share(fall / frozen.needed_fall, visits, of_group, parts.settings.shrinkage)


def _falls(frozen: Frozen, parts: Parts, where: Where) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """How far the loss of each window has fallen since its first visit, as a logarithm; the visits."""
    score, visits, _, first = parts.table.of(where)
    least = np.float32(_SMALL * frozen.fence)
    return np.log((first + least) / (score + least)), visits


def reducible(
    frozen: Frozen, parts: Parts, where: Where, scores: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """What enters step 3."""
    return np.asarray(shrunk(frozen, parts, where, scores) * learnable(frozen, parts, where), np.float32)


def positive(frozen: Frozen, parts: Parts, values: Any) -> Floats:
    """Step 3 up to the power: clipped, positive, relative to a reference."""
    clipped = np.clip(np.asarray(values, np.float64), frozen.low, frozen.high)
    if parts.signal.threshold is not None:
        return transforms.below_threshold(clipped, frozen.threshold, _SOFT * (frozen.high - frozen.low))
    if parts.signal.signed:
        return transforms.to_positive(clipped, frozen.centre, frozen.spread)
    return clipped / frozen.reference


def powered(frozen: Frozen, parts: Parts, values: Any) -> NDArray[np.float32]:
    """Step 3 without the division by the mean."""
    return transforms.power_of(positive(frozen, parts, values), frozen.moment.power, 1.0).astype(np.float32)


def ramped(frozen: Frozen, values: NDArray[np.float32]) -> Floats:
    """The division by the mean, and step 6: s ← 1 + λ(s − 1). All 1 where no score says anything yet."""
    if not frozen.any_seen or frozen.mean <= 0:
        return np.ones(len(values))
    return 1.0 + frozen.moment.ramp * (values.astype(np.float64) / frozen.mean - 1.0)


def combined(frozen: Frozen, parts: Parts, learned: Floats, where: Where) -> NDArray[np.float32]:
    """Step 4."""
    _, scarcity, prior = parts.arrays.of(where)
    if parts.settings.scarcity_measure == "density":
        values = transforms.density_combine(learned, scarcity, prior)
    else:
        values = transforms.distance_blend(learned, scarcity, prior, frozen.moment.blend)
    return values.astype(np.float32)


def limited(frozen: Frozen, parts: Parts, values: NDArray[np.float32], where: Where) -> Floats:
    """Step 5 and the uniform share; an excluded window gets 0, whatever the floor."""
    weights = transforms.limit(values.astype(np.float64), frozen.scale, frozen.floor, frozen.moment.cap)
    if frozen.uniform > 0:
        weights = transforms.mix_uniform(weights, frozen.uniform)
    included = parts.arrays.included
    return weights if included is None else np.where(included[where], weights, 0.0)


def evaluate(frozen: Frozen, parts: Parts, ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """All steps for some windows, in the terms of the last full pass; float32 `[len(ids)]`, O(len(ids))."""
    values = np.ones(len(ids), np.float32)
    if frozen.any_seen:
        values = powered(frozen, parts, reducible(frozen, parts, ids))
    combination = combined(frozen, parts, ramped(frozen, values), ids)
    return limited(frozen, parts, combination, ids).astype(np.float32)


def level_bounds(frozen: Frozen, parts: Parts, values: Floats) -> tuple[float, float]:
    """The range in which values count in the levels of groups, from the last full pass, at first from `values`."""
    if parts.signal.signed:
        centre, spread = frozen.centre, frozen.spread
        if not frozen.any_seen:
            centre, spread = float(values.mean()), float(values.std())
        return centre - _FENCE * spread, centre + _FENCE * spread
    fence = frozen.fence
    if fence == 0:
        fence = _FENCE * float(np.quantile(values, parts.settings.clip[1]))
    # Where all values are 0 any range will do.
    return (_SMALL * fence, fence) if fence > 0 else (1.0, 1.0)


def full_pass(parts: Parts, moment: Moment) -> tuple[Frozen, NDArray[np.float32]]:
    """New terms and the weights of all windows.

    Args:
        parts: settings and what is known.
        moment: the numbers of the schedules, to hold until the next pass.

    Returns:
        The terms, and float32 `[N]` weights, mean 1 over the windows not excluded. They do not depend on the number of
        threads.

    Cost:
        O(N), about ten looks at all windows and no sort; 8 bytes per window, the weights included.
    """
    length = len(parts.table)
    frozen = Frozen(moment=moment, group_means=np.zeros(parts.arrays.num_groups))
    values = np.ones(length, np.float32)
    if parts.signal.known is not None or parts.table.rows.visits.any():
        frozen = _learned(replace(frozen, any_seen=True), parts, values)

    def combine(part: slice) -> None:
        values[part] = combined(frozen, parts, ramped(frozen, values[part]), part)

    map_blocks(length, combine)
    included = parts.arrays.included
    scale, floor = transforms.solve_scale(
        values if included is None else values[included], parts.settings.floor, moment.cap
    )
    frozen = replace(frozen, scale=scale, floor=floor, uniform=moment.uniform)
    weights = np.empty(length, np.float32)

    def weigh(part: slice) -> float:
        weights[part] = block = limited(frozen, parts, values[part], part)
        return float(np.square(block).sum())

    count = length if included is None else int(included.sum())
    mean_square = math.fsum(map_blocks(length, weigh)) / count
    more = transforms.uniform_share(mean_square, parts.settings.min_effective_size)
    if more > 0:
        frozen = replace(frozen, uniform=1.0 - (1.0 - frozen.uniform) * (1.0 - more))
        mean_square = math.fsum(map_blocks(length, weigh)) / count
    return replace(frozen, effective_size=1.0 / max(mean_square, 1.0)), weights


def _learned(frozen: Frozen, parts: Parts, values: NDArray[np.float32]) -> Frozen:
    """Steps 2 and 3 for all windows, into `values`; the terms that they need."""
    length, visits = len(values), parts.table.rows.visits
    if parts.signal.known is None:
        frozen = _pooled(frozen, parts, values)

    def reduce(part: slice) -> None:
        values[part] = reducible(frozen, parts, part, values[part])

    def of_seen(part: slice) -> NDArray[np.float32]:
        return values[part] if parts.signal.known is not None else _where_seen(visits[part], values[part])

    map_blocks(length, reduce)
    moving = [] if parts.signal.threshold is None else [frozen.moment.threshold]
    low, high, *threshold = quantiles(length, of_seen, [*parts.settings.clip, *moving])
    frozen = replace(frozen, low=low, high=high, threshold=threshold[0] if moving else 0.0)
    if moving:
        pass
    elif parts.signal.signed:
        centre, spread = _mean_and_spread(length, of_seen, low, high)
        frozen = replace(frozen, centre=centre, spread=spread)
    elif high > 0:
        frozen = replace(frozen, reference=high)
    included, power = parts.arrays.included, frozen.moment.power

    def raise_to_power(part: slice) -> tuple[float, float, float]:
        relative = positive(frozen, parts, values[part])
        values[part] = raised = transforms.power_of(relative, power, 1.0)
        if included is not None:
            relative, raised = relative[included[part]], raised[included[part]]
        rest = relative if power == 1.0 else np.power(np.maximum(relative, 1e-12), 2.0 - power)
        return float(raised.sum()), float(np.square(relative).sum()), float(rest.sum())

    found = map_blocks(length, raise_to_power)
    sums = [math.fsum(f[i] for f in found) for i in range(3)]
    count = length if included is None else int(included.sum())
    # Draws by s ∝ g^power, corrected, against uniform draws, for gradients of size g:
    # mean(g²) / (mean(g^power)·mean(g^(2−power))). Katharopoulos & Fleuret 2018, "Not all samples are created equal".
    gain = sums[1] * count / (sums[0] * sums[2]) if sums[0] * sums[2] > 0 else 1.0
    moment = frozen.moment
    if parts.settings.auto_off and gain < _GAIN:
        moment = moment._replace(ramp=0.0)
    return replace(frozen, mean=sums[0] / count, gain=gain, moment=moment)


def _pooled(frozen: Frozen, parts: Parts, values: NDArray[np.float32]) -> Frozen:
    """Trend, fence, group means and the fall from visit to visit; scores brought forward go into `values`."""
    length, visits, signed = len(values), parts.table.rows.visits, parts.signal.signed
    if parts.pooled:
        gate = parts.settings.gate if parts.gated else 0.0
        frozen = replace(frozen, trend=parts.drift.trend(gate, signed=signed))

    def bring(part: slice) -> None:
        values[part] = forward(frozen, parts, part)

    map_blocks(length, bring)
    fence = math.inf
    if not signed:
        upper = quantiles(length, lambda part: _where_seen(visits[part], values[part]), parts.settings.clip[1:])
        fence = _FENCE * upper[0]
    frozen = replace(frozen, group_means=_group_means(parts, values, fence or math.inf), fence=fence)
    if not parts.gated or fence == 0:
        return frozen

    # A share of the windows tells the mean well enough.
    fall, visited = _falls(frozen, parts, slice(None, None, max(length // _SAMPLE, 1)))
    fall = fall[visited > 1].astype(np.float64)
    if len(fall) >= _ENOUGH:
        error = float(fall.std()) / math.sqrt(len(fall))
        needed = parts.settings.gate * (float(fall.mean()) - 2.0 * error)
        frozen = replace(frozen, needed_fall=needed if needed >= _LEAST_FALL else 0.0)
    return frozen


def _group_means(parts: Parts, values: NDArray[np.float32], fence: float) -> Floats:
    """Mean of `values` over the seen windows of each group, each window counting once however often it was visited.

    What is drawn more often is what scores higher: a mean over visits would hand that preference on to unseen windows.
    """
    group = parts.arrays.group if parts.settings.shrinkage > 0 else None
    groups, visits = 1 if group is None else parts.arrays.num_groups, parts.table.rows.visits

    def sums(part: slice) -> tuple[Floats, Floats]:
        seen = visits[part] > 0
        block = np.minimum(values[part].astype(np.float64), fence) * seen
        if group is None:
            return np.array([block.sum()]), np.array([float(np.count_nonzero(seen))])
        of_group = group[part].astype(np.intp)  # what bincount would make of it, twice
        counts = np.bincount(of_group if seen.all() else of_group[seen], minlength=groups)
        return np.asarray(np.bincount(of_group, block, groups), np.float64), counts.astype(np.float64)

    found = map_blocks(len(values), sums) if groups <= _MANY_GROUPS else [sums(slice(0, len(values)))]
    totals, counts = (np.sum([f[i] for f in found], axis=0) for i in range(2))
    overall = float(np.sum(totals) / np.sum(counts))
    means = np.where(counts > 0, totals / np.maximum(counts, 1), overall)
    return np.full(parts.arrays.num_groups, overall) if group is None else means


def _mean_and_spread(length: int, of: Any, low: float, high: float) -> tuple[float, float]:
    def sums(part: slice) -> tuple[int, float, float]:
        block = of(part)
        above = np.clip(block[block == block].astype(np.float64), low, high) - low
        return len(above), float(above.sum()), float(np.square(above).sum())

    found = map_blocks(length, sums)
    count, total, squares = sum(f[0] for f in found), math.fsum(f[1] for f in found), math.fsum(f[2] for f in found)
    mean = total / count
    return low + mean, math.sqrt(max(squares / count - mean * mean, 0.0))


def _where_seen(visits: NDArray[np.int32], values: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(visits > 0, values, np.float32(np.nan))
