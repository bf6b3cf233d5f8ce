"""Which windows were ever consumed: one bit each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Ids that wait to be counted; a step alone has too few of them to be worth a look.
_MOST_WAITING = 1 << 13


class SeenWindows:
    """The windows consumed so far. A step only leaves its ids here; they are counted together, when somebody asks.

    Args:
        num_windows: N.
        bits: uint8 `[ceil(N/8)]` to go on with, the lowest bit of byte 0 for window 0; default: none was seen.
    """

    def __init__(self, num_windows: int, bits: NDArray[np.uint8] | None = None) -> None:
        self._num_windows = num_windows
        self._bits = np.zeros(-(-num_windows // 8), np.uint8) if bits is None else bits.copy()
        self._count = int(np.bitwise_count(self._bits).sum(dtype=np.int64))
        self._waiting: list[NDArray[np.int64]] = []
        self._num_waiting = 0

    def add(self, ids: NDArray[np.int64]) -> None:
        """`ids` were consumed; kept until they are counted."""
        self._waiting.append(ids)
        self._num_waiting += len(ids)
        if self._num_waiting > _MOST_WAITING:
            self._settle()

    @property
    def share(self) -> float:
        """Share of the windows that were seen."""
        self._settle()
        return self._count / self._num_windows

    @property
    def bits(self) -> NDArray[np.uint8]:
        """uint8 `[ceil(N/8)]`, not to be written."""
        self._settle()
        return self._bits

    def _settle(self) -> None:
        if not self._waiting:
            return
        ids = np.unique(np.concatenate(self._waiting))
        self._waiting, self._num_waiting = [], 0
        bits = np.uint8(1) << (ids & 7).astype(np.uint8)
        self._count += int(np.count_nonzero((self._bits[ids >> 3] & bits) == 0))
        np.bitwise_or.at(self._bits, ids >> 3, bits)
