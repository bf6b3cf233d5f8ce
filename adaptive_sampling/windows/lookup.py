"""Where a number lies among rising ends, without a walk through all of memory.

A binary search over a million ends misses the cache at nearly every step. A table that says for each range of numbers
which ends are there leaves a few neighbours to look at.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
_SMALL = 1 << 9  # ends whose search takes no longer
_MOST_STEPS = 6
_MOST_WALKED = 4  # ends of a range that are looked at one after the other, faster than in halves
_CHUNK = 1 << 16


class Lookup:
    """Finds the first end behind a number, as ``np.searchsorted(ends, numbers, side="right")`` does.

    Args:
        ends: int64 [n], rising.

    Cost: at most 4 bytes per end; `find` takes a time that does not depend on n, unless the ends are crowded in places:
    then it is a binary search.
    """

    def __init__(self, ends: Int64) -> None:
        self.ends = ends
        self._total = int(ends[-1]) if len(ends) else 0
        self._steps = 0
        if len(ends) < _SMALL:
            return
        self._shift = np.int64((self._total // len(ends)).bit_length())
        ranges = (self._total >> int(self._shift)) + 2
        self._firsts = np.empty(ranges, np.int32 if len(ends) < 1 << 31 else np.int64)
        for start in range(0, ranges, _CHUNK):
            bounds = np.arange(start, min(start + _CHUNK, ranges)) << self._shift
            self._firsts[start : start + len(bounds)] = np.searchsorted(ends, bounds, side="right")
        self._most = int(np.diff(self._firsts).max())
        steps = self._most.bit_length()
        self._steps = steps if steps <= _MOST_STEPS else 0

    def find(self, numbers: Int64) -> Int64:
        """Index of the first end behind each number, n where there is none; numbers are at least 0."""
        if not self._steps or numbers.max(initial=0) >= self._total:
            return np.searchsorted(self.ends, numbers, side="right")
        ranges = numbers >> self._shift
        low: Int64 = self._firsts[ranges].astype(np.int64)
        if self._most <= _MOST_WALKED:
            for _ in range(self._most):
                low += self.ends[low] <= numbers
            return low
        high = self._firsts[ranges + 1].astype(np.int64)
        for _ in range(self._steps):
            middle = (low + high) >> 1
            before = self.ends[middle] <= numbers
            low = np.where(before, middle + 1, low)
            high = np.where(before, high, middle)
        return low
