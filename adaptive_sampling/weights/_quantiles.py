"""Exact quantiles of long arrays without a sort (Floyd and Rivest 1975).

A sample says between which two values a quantile lies; one look at the array counts what is below and collects the few
values between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.weights._blocks import map_blocks

_SAMPLE = 1 << 16
# The bracket is missed about once in 10^5 times; then all values are sorted.
_DEVIATIONS = 4.5


def quantiles(length: int, of: Callable[[slice], NDArray[Any]], levels: Sequence[float]) -> list[float]:
    """The quantiles that `numpy.quantile` gives, linear between neighbours.

    Args:
        length: number of values.
        of: values of a slice, float; NaN where one does not count. At least one must count.
        levels: in [0, 1].

    Cost:
        One look at all values, and a sort of about 2 % of them.
    """
    sample = np.sort(of(slice(None, None, max(length // _SAMPLE, 1))))
    sample = sample[~np.isnan(sample)]
    if length < 2 * _SAMPLE:
        return [_between(sample, level) for level in levels]
    brackets = [_bracket(sample, level) for level in levels]

    def look(part: slice) -> tuple[int, list[_Found]]:
        block = of(part)
        count = int(np.count_nonzero(block == block))
        return count, [_look(block, count, *bracket) for bracket in brackets]

    looks = map_blocks(length, look)
    count = sum(counted for counted, _ in looks)
    result = []
    for number, (level, bracket) in enumerate(zip(levels, brackets, strict=True)):
        value = _from_bracket(*bracket, [found[number] for _, found in looks], (count - 1) * level)
        if value is None:
            values = np.sort(np.concatenate(map_blocks(length, of)))
            value = _between(values[:count], level)  # NaN is sorted to the end
        result.append(value)
    return result


@dataclass(frozen=True)
class _Found:
    """What a block holds below, at and strictly between the ends of a bracket."""

    below: int
    at_low: int
    inside: NDArray[Any]
    at_high: int


def _bracket(sample: NDArray[Any], level: float) -> tuple[float, float]:
    if len(sample) == 0:
        return -np.inf, np.inf
    centre = level * (len(sample) - 1)
    margin = _DEVIATIONS * np.sqrt(len(sample) * level * (1 - level)) + 2
    low, high = int(np.floor(centre - margin)), int(np.ceil(centre + margin))
    return (
        float(sample[low]) if low >= 0 else -np.inf,
        float(sample[high]) if high < len(sample) else np.inf,
    )


def _look(block: NDArray[Any], count: int, low: float, high: float) -> _Found:
    """`count`: how many of the block are not NaN."""
    above = block > low
    below = int(np.count_nonzero(block < low))
    return _Found(
        below=below,
        at_low=count - below - int(np.count_nonzero(above)),
        inside=block[above & (block < high)],
        at_high=int(np.count_nonzero(block == high)),
    )


def _from_bracket(low: float, high: float, found: list[_Found], position: float) -> float | None:
    """The value at `position` of the sorted values; None if it is not in the bracket."""
    below, at_low = sum(f.below for f in found), sum(f.at_low for f in found)
    inside = np.sort(np.concatenate([f.inside for f in found]))
    at_high = sum(f.at_high for f in found) if high > low else 0

    def at(rank: int) -> float | None:
        rank -= below
        if rank < 0:
            return None
        if rank < at_low:
            return low
        if rank < at_low + len(inside):
            return float(inside[rank - at_low])
        return high if rank < at_low + len(inside) + at_high else None

    first = int(position)
    one = at(first)
    if one is None or position == first:
        return one
    other = at(first + 1)
    return None if other is None else _lerp(one, other, position - first)


def _between(ordered: NDArray[Any], level: float) -> float:
    position = (len(ordered) - 1) * level
    first = int(position)
    one = float(ordered[first])
    return one if position == first else _lerp(one, float(ordered[first + 1]), position - first)


def _lerp(one: float, other: float, share: float) -> float:
    """As NumPy does it: exact at both ends and monotone."""
    difference = other - one
    return other - difference * (1 - share) if share >= 0.5 else one + difference * share
