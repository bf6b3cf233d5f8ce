"""How the level of each group of windows moves with time, and what that says of scores seen long ago.

A score is as old as the visit that it comes from, and the model has learned since. Observations are therefore also
summed up per group and stretch of time. The difference between a group's level now and then brings an old score
forward, as far as it is more than the noise of the two levels; and a group whose level does not fall, while that of all
does, has nothing to teach, however high it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NUM_BINS = 32
FIRST_WIDTH = 32
"""Observations in a stretch of time at first; stretches double when there are more than `NUM_BINS`."""
MOST_GROUPS = 4096
"""With more groups than this all share one curve: a group would be seen too rarely to have one of its own."""
# Observations that the curve of all windows is worth in the curve of a group.
_PRIOR = 16.0
# A difference counts as far as it exceeds this many standard errors.
_SURE = 2.0
# A quarter of a group's observations at either end, at least this many, tell whether its level falls.
_LEAST_AT_AN_END = 8.0
# A needed fall below 2 % is none.
_LEAST_FALL = 0.02


@dataclass(frozen=True)
class Trend:
    """What the curves say at one moment.

    Attributes:
        movement: float32 `[curves, bins]`, how the level moved since then: the factor, or for signed signals the
            difference.
        learnable: float64 `[curves]`, in [0, 1]: 0 for a level that does not fall, 1 for one that does or may.
        width: observations per bin.
    """

    movement: NDArray[np.float32]
    learnable: Floats
    width: int

    def at(self, curve: Any, time: Any) -> NDArray[np.float32]:
        """Movement since evidence of a curve was gathered at a time."""
        curves, bins = self.movement.shape
        place = np.minimum(np.asarray(time) * np.float32(1.0 / self.width), bins - 1).astype(np.int64)
        if curves > 1:
            place += np.asarray(curve) * bins
        return np.asarray(self.movement.reshape(-1).take(place))


class Drift:
    """Sums of observed levels per group and stretch of time; time is the number of observations so far.

    Args:
        num_groups: groups of windows.

    Cost:
        768 bytes per group, up to 4,096 of them; O(observations) per update.
    """

    def __init__(self, num_groups: int) -> None:
        self.num_curves = num_groups if num_groups <= MOST_GROUPS else 1
        self.time = 0
        self.width = FIRST_WIDTH
        self.sums = np.zeros((3, self.num_curves, NUM_BINS))  # of weights, weighted levels, weighted squares

    def observe(self, groups: NDArray[np.int64], levels: Floats, weights: Floats) -> float:
        """Add observations made together.

        Args:
            groups: int64 `[U]`.
            levels: float64 `[U]`, finite.
            weights: float64 `[U]`, one over the chance of each to be observed, up to a common factor.

        Returns:
            The time of these observations.
        """
        now = self.time
        while now >= self.width * NUM_BINS:
            merged = self.sums.reshape(3, self.num_curves, NUM_BINS // 2, 2).sum(axis=-1)
            self.sums = np.concatenate([merged, np.zeros_like(merged)], axis=-1)
            self.width *= 2
        curves = groups if self.num_curves > 1 else np.zeros_like(groups)
        for sums, power in zip(self.sums, range(3), strict=True):
            sums[:, now // self.width] += np.bincount(curves, weights * levels**power, self.num_curves)
        self.time += len(groups)
        return float(now)

    def trend(self, gate: float, *, signed: bool) -> Trend | None:
        """What the sums say now; None before there are two stretches of time.

        Args:
            gate: share of the fall of all windows' level that makes a group fully learnable; 0: all are.
            signed: levels are values; else they are logarithms.
        """
        observed = np.flatnonzero(self.sums[0].sum(axis=0))
        if len(observed) < 2:
            return None
        last = int(observed[-1])
        used = self.sums[:, :, : last + 1].copy()
        if used[0, :, last].sum() < self.width / 2:
            # So short a stretch would be noise.
            last = int(observed[-2])
            used[:, :, last] += used[:, :, -1]
            used = used[:, :, : last + 1]
        if len(observed) < 3 and last < observed[-1]:
            return None
        weight, total, squares = used
        filled = weight > 0
        means = np.divide(total, weight, out=np.zeros_like(total), where=filled)
        freedom = max(float(weight.sum()) - int(filled.sum()), 1.0)
        variance = max(float((squares - total * means).sum()), 0.0) / freedom
        shift = _shift(weight, total, variance)
        movement = np.zeros((self.num_curves, NUM_BINS))
        movement[:, : shift.shape[1]] = shift
        if not signed:
            movement = np.exp(movement)
        return Trend(movement.astype(np.float32), _learnable(weight, means, variance, gate), self.width)

    def state_dict(self) -> dict[str, Any]:
        """A tensor and numbers."""
        return {"time": self.time, "width": self.width, "sums": torch.from_numpy(self.sums.copy())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""
        self.time, self.width = int(state["time"]), int(state["width"])
        self.sums = state["sums"].to("cpu", torch.float64).numpy().copy()
        self.num_curves = self.sums.shape[1]


def _shift(weight: Floats, total: Floats, variance: float) -> Floats:
    """float64 `[curves, bins]`: level of the last bin minus that of each, moved to 0 by `_SURE` standard errors."""
    of_all = weight.sum(axis=0)
    level = np.divide(total.sum(axis=0), of_all, out=np.zeros_like(of_all), where=of_all > 0)
    # A stretch without observations is as the one before it.
    level = level[np.maximum.accumulate(np.where(of_all > 0, np.arange(len(level)), 0))]
    uncertainty = variance / np.maximum(of_all, 1.0)
    if len(weight) == 1:
        levels, uncertain = level[None], uncertainty[None]
    else:
        offset = (total - weight * level).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-300)
        levels = (total + _PRIOR * (level + offset[:, None])) / (weight + _PRIOR)
        uncertain = variance / (weight + _PRIOR) + uncertainty * _PRIOR / (weight + _PRIOR)
    difference = levels[:, -1:] - levels
    noise = _SURE * np.sqrt(uncertain[:, -1:] + uncertain)
    noise[:, -1] = 0.0
    return np.asarray(np.sign(difference) * np.maximum(np.abs(difference) - noise, 0.0))


def _learnable(weight: Floats, means: Floats, variance: float, gate: float) -> Floats:
    """float64 `[curves]`: how far each level falls, as a share of `gate` times the fall of all."""
    count = weight.sum(axis=1)
    if gate == 0 or len(weight) == 1:
        return np.ones(len(weight))
    of_all = weight.sum(axis=0)
    level = np.divide((weight * means).sum(axis=0), of_all, out=np.zeros_like(of_all), where=of_all > 0)
    fall_of_all, error_of_all = _fall(of_all[None], level[None], variance)
    needed = gate * max(float(fall_of_all[0] - _SURE * error_of_all[0]), 0.0)
    if needed < _LEAST_FALL:
        return np.ones(len(weight))
    shares = np.clip(_fall(weight, means, variance)[0] / needed, 0.0, 1.0)
    # A group gets the benefit of the doubt until it has been seen this often.
    return np.where(count >= 2 * _LEAST_AT_AN_END, shares, 1.0)


def _fall(weight: Floats, means: Floats, variance: float) -> tuple[Floats, Floats]:
    """Mean level of a row's first quarter minus that of its last quarter, and the standard error."""
    at_an_end = np.maximum(weight.sum(axis=1, keepdims=True) / 4, _LEAST_AT_AN_END)

    def mean_from(weight: Floats, means: Floats) -> Floats:
        reached = np.minimum(np.cumsum(weight, axis=1), at_an_end)
        share = np.diff(reached, axis=1, prepend=0.0)
        return np.asarray((share * means).sum(axis=1) / np.maximum(share.sum(axis=1), 1e-300))

    early, late = mean_from(weight, means), mean_from(weight[:, ::-1], means[:, ::-1])
    return early - late, np.sqrt(2 * variance / at_an_end[:, 0])
