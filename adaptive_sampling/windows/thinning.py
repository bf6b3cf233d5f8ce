"""A share of the windows, chosen by hash: the same on every machine, nested from share to share, one bit per window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import hash_rows

Int64 = NDArray[np.int64]
_BLOCK_BYTES = 64  # one prefix sum for 512 windows: a few per cent on top of the bits
_CHUNK_WINDOWS = 1 << 20
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
_BIT_COUNTS = _BITS.sum(axis=1).astype(np.int64)
# _PLACES[byte, n] is the place of the n-th set bit of a byte.
_PLACES = np.argsort(1 - _BITS, axis=1, kind="stable").astype(np.int64)


@dataclass(frozen=True)
class KeptWindows:
    """The windows that thinning keeps, in order.

    Attributes:
        bits: uint8 [blocks, 64], bit b of the flattened array says whether window b is kept.
        block_ends: int64 [blocks], cumulated number of kept windows.
    """

    bits: NDArray[np.uint8]
    block_ends: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.block_ends[-1]) if len(self.block_ends) else 0

    def select(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Window number of the kept windows number `ranks`, int64 [B]; each rank is in [0, len)."""
        blocks = np.searchsorted(self.block_ends, ranks, side="right")
        counts = _BIT_COUNTS[self.bits[blocks]]
        ends = np.cumsum(counts, axis=1)
        within = ranks - (self.block_ends[blocks] - ends[:, -1])
        columns = (ends <= within[:, None]).sum(axis=1)
        rows = np.arange(len(ranks))
        nth = within - (ends[rows, columns] - counts[rows, columns])
        places = _PLACES[self.bits[blocks, columns], nth]
        found: NDArray[np.int64] = (blocks * _BLOCK_BYTES + columns) * 8 + places
        return found


def thin(
    num_windows: int, rate: float, seed: int, names: Callable[[Int64], tuple[NDArray[np.uint64], Int64]]
) -> KeptWindows:
    """Keep a window iff hash(seed, document key, start in the document without offset) / 2^64 < `rate`.

    Args:
        num_windows: Windows to choose from.
        rate: Share to keep, in (0, 1].
        seed: Seed of the hash.
        names: int64 [B] window numbers to (uint64 [B] key of the document in which each starts, int64 [B] start in it).

    Cost: O(windows) time, in chunks; one bit and a little per window of memory.
    """
    limit = np.uint64(min(int(rate * 2.0**64), 2**64 - 1))
    num_blocks = -(-num_windows // (_BLOCK_BYTES * 8))
    bits = np.zeros(num_blocks * _BLOCK_BYTES, np.uint8)
    for start in range(0, num_windows, _CHUNK_WINDOWS):
        keys, starts = names(np.arange(start, min(start + _CHUNK_WINDOWS, num_windows)))
        packed = np.packbits(hash_rows(("thinning", seed), keys, starts) < limit)
        bits[start // 8 : start // 8 + len(packed)] = packed
    return kept_windows(bits)


def kept_windows(bits: NDArray[np.uint8]) -> KeptWindows:
    """The windows whose bits are set; `bits` uint8 [blocks * 64]."""
    blocks = bits.reshape(-1, _BLOCK_BYTES)
    return KeptWindows(blocks, np.cumsum(_BIT_COUNTS[blocks].sum(axis=1)))
