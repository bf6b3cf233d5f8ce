"""Issuing tickets: every window's balance becomes whole tickets and a rest, under one shift that makes them sum up.

Four passes over the windows, each in chunks that stay in the cache: balances to whole parts and fractions; a histogram
of the fractions that the shift could turn into one more ticket; the few of them in the bin where it ends; the tickets.
Chunks are independent of each other, so several threads take them, and the result does not depend on how many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.sampling._chunks import for_each_chunk

NO_TICKETS = -(1 << 24)  # whole part of a window that cannot be drawn, and a shift below every balance
MOST_TICKETS = 1 << 30  # of one window by a sparse change, so that sums with a shift stay below 2^31
_FRACTION_BINS = 1 << 12
_FLOOR_REACH = 256
_LARGEST = 2**31 - 2
_BELOW_ONE = np.nextafter(np.float32(1), np.float32(0))


class Shift(NamedTuple):
    """The common shift of all balances.

    Attributes:
        whole: its whole part.
        threshold: fractions above it gain one more.
    """

    whole: int
    threshold: float


def split(balance: NDArray[np.float64], drawable: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Whole parts (`NO_TICKETS` where nothing can be drawn) and fractions in [0, 1)."""
    floors = np.floor(balance)
    fractions = np.minimum((balance - floors).astype(np.float32), _BELOW_ONE)
    whole = np.clip(floors, NO_TICKETS + 1, _LARGEST).astype(np.int32)
    whole[~drawable] = NO_TICKETS
    return whole, fractions


def award(
    whole: NDArray[np.int32], fractions: NDArray[np.float32], shift: Shift
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Tickets max(whole part + shift, 0), and the balances that they leave."""
    tickets = whole + np.int32(shift.whole)
    tickets += fractions > np.float32(shift.threshold)
    np.maximum(tickets, 0, out=tickets)
    rest = (whole - tickets).astype(np.float32)
    rest[whole == NO_TICKETS] = 0
    rest += fractions
    return tickets, rest


def award_few(
    balance: NDArray[np.float64], drawable: NDArray[np.bool_], shift: Shift
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """`award(*split(balance, drawable), shift)`, bit for bit, in half as many steps: these are what few windows cost.

    Args:
        balance: float64 `[k]`, none of them beyond `MOST_TICKETS` either way.
        drawable: bool `[k]`.
        shift: of the last issue.
    """
    floors = np.floor(balance)
    fractions = np.subtract(balance, floors).astype(np.float32)
    np.minimum(fractions, _BELOW_ONE, out=fractions)
    np.maximum(floors, NO_TICKETS + 1, out=floors)
    tickets = floors + shift.whole
    tickets += fractions > np.float32(shift.threshold)
    np.maximum(tickets, 0, out=tickets)
    tickets *= drawable
    floors -= tickets
    floors *= drawable
    fractions += floors.astype(np.float32)
    return tickets.astype(np.int32), fractions


def solve_shift(
    whole: NDArray[np.int32], fractions: NDArray[np.float32], total: int
) -> tuple[Shift, NDArray[np.int64]]:
    """The shift under which tickets sum to `total`, and the windows at its threshold that gain one more nevertheless.

    Args:
        whole: int32 `[N]`, as `split` gives them; at least one window can be drawn unless `total` is 0.
        fractions: float32 `[N]`.
        total: what the tickets shall sum to.
    """
    if not total:
        return Shift(NO_TICKETS, 2.0), np.empty(0, np.int64)
    sums = _sums_by_shift(whole)
    low, high = -1, 1
    while sums(low) > total:
        low *= 2
    while sums(high) <= total:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if sums(middle) <= total else (low, middle)
    missing = total - sums(low)
    if not missing:
        return Shift(low, 2.0), np.empty(0, np.int64)

    def count(part: slice) -> NDArray[np.int64]:
        gaining = fractions[part][whole[part] >= -low]
        bins: NDArray[np.int64] = (gaining * np.float32(_FRACTION_BINS)).astype(np.int64)
        found: NDArray[np.int64] = np.bincount(bins, minlength=_FRACTION_BINS)
        return found

    counts: NDArray[np.int64] = np.sum(for_each_chunk(len(whole), count), 0)
    from_top = counts[::-1].cumsum()[::-1]
    edge = int(np.flatnonzero(from_top >= missing)[-1])
    above = int(from_top[edge + 1]) if edge + 1 < _FRACTION_BINS else 0
    bottom, top = np.float32(edge / _FRACTION_BINS), np.float32((edge + 1) / _FRACTION_BINS)

    def inside(part: slice) -> NDArray[np.int64]:
        chunk = fractions[part]
        local: NDArray[np.int64] = np.flatnonzero((chunk >= bottom) & (chunk < top) & (whole[part] >= -low))
        local += part.start
        return local

    ids = np.concatenate(for_each_chunk(len(whole), inside))
    ordered = np.sort(fractions[ids])
    threshold = ordered[len(ordered) - (missing - above)]
    ties = missing - above - int((ordered > threshold).sum())
    return Shift(low, float(threshold)), ids[fractions[ids] == threshold][:ties]


def _sums_by_shift(whole: NDArray[np.int32]) -> Callable[[int], int]:
    """Function of an integer shift: Σ max(whole + shift, 0) over the windows that can be drawn.

    One pass counts the whole parts; those beyond the table are kept one by one.
    """

    def count(part: slice) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        shifted = whole[part] + np.int32(_FLOOR_REACH)
        # One unsigned comparison finds both ends of the table.
        outside = shifted.view(np.uint32) >= 2 * _FLOOR_REACH
        if outside.any():
            beyond = whole[part][outside]
            return np.bincount(shifted[~outside], minlength=2 * _FLOOR_REACH), beyond[beyond != NO_TICKETS]
        return np.bincount(shifted, minlength=2 * _FLOOR_REACH), np.empty(0, np.int32)

    found = for_each_chunk(len(whole), count)
    counts = np.sum([counts for counts, _ in found], 0)
    rare = np.concatenate([beyond for _, beyond in found]).astype(np.int64)
    values = np.arange(-_FLOOR_REACH, _FLOOR_REACH)

    def total(shift: int) -> int:
        return int((np.maximum(values + shift, 0) * counts).sum() + np.maximum(rare + shift, 0).sum())

    return total
