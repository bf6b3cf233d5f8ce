"""Counts per value, with what a reader wants of them: least, median, most, and peaks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MOST_BINS = 40


@dataclass(frozen=True)
class Histogram:
    """Counts in bins.

    Attributes:
        edges: float64 [bins + 1]; a bin holds values from its edge up to the next, the last its upper edge as well.
        counts: int64 [bins].
        least: Smallest value; None where there is none, or only the bins are known.
        median: The middle one, the lower of two.
        most: Largest value.
    """

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]
    least: int | None = None
    median: int | None = None
    most: int | None = None

    @classmethod
    def of_values(cls, values: NDArray[np.int64]) -> Histogram:
        """Of integers of at least 0; bins of one value each where there are at most 40 values.

        Cost: O(values).
        """
        if not len(values):
            return cls(np.arange(2.0), np.zeros(1, np.int64))
        least, most = int(values.min()), int(values.max())
        width = -(-(most - least + 1) // _MOST_BINS)
        counts = np.bincount((values - least) // width)
        edges = least + width * np.arange(len(counts) + 1.0)
        median = int(np.partition(values, (len(values) - 1) // 2)[(len(values) - 1) // 2])
        return cls(edges, counts, least, median, most)

    @classmethod
    def in_doublings(cls, values: NDArray[np.int64]) -> Histogram:
        """Of integers of at least 0, in bins 0, 1, 2, 3 to 4, 5 to 8 and so on: for values of all sizes.

        Example:
            >>> Histogram.in_doublings(np.array([0, 1, 2, 3, 4, 5])).counts.tolist()
            [1, 1, 1, 2, 1]
        """
        of_all = cls.of_values(values)
        if of_all.most is None:
            return of_all
        edges = np.append([0, 1, 2], 2 ** np.arange(1, max(of_all.most - 1, 1).bit_length() + 1) + 1)[
            : max(of_all.most - 1, 0).bit_length() + 3
        ]
        counts = np.histogram(values, edges)[0]
        return cls(edges.astype(np.float64), counts, of_all.least, of_all.median, of_all.most)

    @classmethod
    def of_counts(cls, counts: NDArray[np.int64]) -> Histogram:
        """Of integers of which `counts[v]` are v."""
        there = np.flatnonzero(counts)
        if not len(there):
            return cls(np.arange(2.0), np.zeros(1, np.int64))
        total = int(counts.sum())
        median = int(np.searchsorted(np.cumsum(counts), (total + 1) // 2))
        width = -(-len(counts) // _MOST_BINS)
        padded = np.append(counts, np.zeros(-len(counts) % width, np.int64)).reshape(-1, width).sum(axis=1)
        return cls(width * np.arange(len(padded) + 1.0), padded, int(there[0]), median, int(there[-1]))

    def summary(self) -> str:
        """Least, median and most."""
        return "none" if self.least is None else f"{self.least}, {self.median}, {self.most}"


def third_peak(histogram: Histogram, share: float = 0.05) -> int | None:
    """Where a third peak is, in the middle of its bin; None where there are at most two.

    Full windows and what is left of documents make two. A peak rises above both neighbouring valleys by `share` of the
    total; the third is the smallest of the three highest.

    Example:
        >>> third_peak(Histogram.of_counts(np.array([0, 9, 0, 0, 9, 0, 0, 30])))
        4
        >>> third_peak(Histogram.of_counts(np.array([0, 9, 0, 0, 0, 0, 0, 30])))
    """
    counts = histogram.counts
    rise = share * int(counts.sum())
    peaks: list[int] = []
    lowest, highest = 0, -1  # since the last peak; since the last valley
    for at, count in enumerate([*counts.tolist(), 0]):
        if highest >= 0 and counts[highest] - count >= max(rise, 1):
            peaks.append(highest)
            lowest, highest = count, -1
        elif highest >= 0:
            highest = at if count > counts[highest] else highest
        elif count - lowest >= max(rise, 1):
            highest = at
        else:
            lowest = min(lowest, count)
    if len(peaks) < 3:
        return None
    third = sorted(peaks, key=lambda at: (-int(counts[at]), at))[2]
    return int((histogram.edges[third] + histogram.edges[third + 1]) / 2)
