"""Which documents share a file: a byte budget in which separators count."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

SHARD_BYTES = 1 << 31


def check_shard_bytes(shard_bytes: int) -> int:
    """`shard_bytes` as int.

    Raises:
        ValueError: if it is no positive integer.
    """
    if isinstance(shard_bytes, (bool, np.bool_)) or not isinstance(shard_bytes, (int, np.integer)) or shard_bytes < 1:
        raise ValueError(f"`shard_bytes` must be an integer of at least 1, got {shard_bytes!r}. Try {SHARD_BYTES}.")
    return int(shard_bytes)


def shard_numbers(sizes: ArrayLike, budget: int, separator: int = 0, *, used: int = 0) -> NDArray[np.int64]:
    """Shard of each document, in order: the next is begun where a document does not fit any more.

    A document larger than the budget has a shard of its own. No shard is empty.

    Args:
        sizes: Bytes of each document.
        budget: Bytes of a shard.
        separator: Bytes between two documents of a shard.
        used: Bytes that are in shard 0 already.

    Returns:
        int64 [num_documents], rising from 0, or from 1 where nothing more fits into shard 0.

    Cost: O(documents), one binary search per shard.

    Example:
        >>> shard_numbers([10, 10], 30, 15).tolist(), shard_numbers([10, 10], 35, 15).tolist()
        ([0, 1], [0, 0])
    """
    lengths = np.asarray(sizes, np.int64)
    ends = np.cumsum(lengths + separator)
    numbers = np.zeros(len(lengths), np.int64)
    first = shard = 0
    while first < len(lengths):
        before = int(ends[first - 1]) if first else 0
        room = budget - used - (separator if used else 0)
        behind = int(np.searchsorted(ends, before + room + separator, side="right"))
        if behind == first and not used:
            behind = first + 1
        numbers[first:behind] = shard
        first, shard, used = behind, shard + 1, 0
    return numbers
