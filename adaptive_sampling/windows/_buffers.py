"""Memory of batches, used again once nobody holds it.

Fresh memory costs a page fault for every 4 KiB, which takes longer than filling it does.
"""

from __future__ import annotations

import sys
from collections import deque

import numpy as np
from numpy.typing import NDArray

_PAGE = 4096
_MOST = 16  # arrays kept: the four of a batch, for a few batches that are still in use


class Buffers:
    """Hands out int64 arrays; one that only this object still holds is handed out again.

    Every view of an array, a tensor's too, holds a reference to it, so that a batch in use is never written over.
    """

    def __init__(self) -> None:
        self._arrays: deque[list[NDArray[np.int64]]] = deque()

    def take(self, rows: int, columns: int) -> NDArray[np.int64]:
        """An int64 array [`rows`, `columns`] with any content."""
        for _ in range(len(self._arrays)):
            try:
                kept = self._arrays.popleft()  # whoever has popped it is alone with it, in threads as well
            except IndexError:
                break
            free = _references(kept) == _UNUSED
            if free and kept[0].shape == (rows, columns):
                self._arrays.append(kept)
                return kept[0]
            if not free or len(self._arrays) < _MOST:
                self._arrays.append(kept)
        kept = [_aligned(rows, columns)]
        if len(self._arrays) >= _MOST:
            self._arrays.popleft()
        self._arrays.append(kept)
        return kept[0]


def _aligned(rows: int, columns: int) -> NDArray[np.int64]:
    """An array [`rows`, `columns`] that begins with a page: stores that cross lines of the cache cost a tenth more."""
    # Not memory of another array: views would then hold on to that one, and the references counted would be too few.
    memory = bytearray(8 * rows * columns + _PAGE)
    skipped = -np.frombuffer(memory, np.uint8).ctypes.data % _PAGE
    return np.ndarray((rows, columns), np.int64, memory, skipped)


def _references(kept: list[NDArray[np.int64]]) -> int:
    return sys.getrefcount(kept[0])


_UNUSED = _references([np.empty(0, np.int64)])
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    _UNUSED = -1  # counts are not exact without the lock: always fresh memory
