"""Documents into windows without cutting them: best-fit-decreasing (Ding et al. 2024, arXiv 2404.10830).

Items are placed longest first, each into the bin with the least room that is enough. All items of one length are placed
at once: while the fullest bins that still take one are of the same room, they take theirs together.
"""

from __future__ import annotations

import bisect

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
BUFFER_ITEMS = 1 << 16  # items packed together: enough for a fill near 1, few enough to stay where they are in the text


def best_fit_decreasing(lengths: Int64, capacity: int) -> Int64:
    """Bin of each item.

    Among bins of equal room the one opened first is taken, among items of equal length the first.

    Args:
        lengths: int64 [items], each in [1, `capacity`].
        capacity: Room of an empty bin.

    Returns:
        int64 [items], bins numbered in the order of the first item that each holds.

    Cost: O(items log items); the Python loop is over pairs of a length and a room, not over items.

    Example:
        >>> best_fit_decreasing(np.array([5, 3, 6, 2, 1]), 8).tolist()
        [0, 0, 1, 1, 2]
    """
    order = np.argsort(-lengths, kind="stable")
    bins = np.empty(len(lengths), np.int64)
    waiting: dict[int, list[Int64]] = {}  # room -> bins that have it
    rooms: list[int] = []  # the keys of `waiting`, sorted
    opened = 0
    at = 0
    distinct, counts = np.unique(-lengths, return_counts=True)
    for length, count in zip((-distinct).tolist(), counts.tolist(), strict=True):
        end = at + count
        left: list[tuple[int, Int64]] = []
        while at < end:
            enough = bisect.bisect_left(rooms, length)
            if enough < len(rooms):
                room = rooms.pop(enough)
                ready = np.sort(np.concatenate(waiting.pop(room)))
            else:
                room = capacity
                ready = np.arange(opened, opened - (-(end - at) // (capacity // length)))
                opened += len(ready)
            # The bin that took one has become the best fit for the next: each is filled up before the one behind it.
            each = room // length
            used = min(-(-(end - at) // each), len(ready))
            filled = np.repeat(ready[:used], each)[: end - at]
            bins[order[at : at + len(filled)]] = filled
            at += len(filled)
            last = len(filled) - (used - 1) * each
            left.append((room - each * length, ready[: used - 1]))
            left.append((room - last * length, ready[used - 1 : used]))
            left.append((room, ready[used:]))
        for room, ids in left:
            if len(ids) and room:
                if room not in waiting:
                    bisect.insort(rooms, room)
                waiting.setdefault(room, []).append(ids)
    _, first_items, numbers = np.unique(bins, return_index=True, return_inverse=True)
    renumbered: Int64 = np.argsort(np.argsort(first_items))[numbers].astype(np.int64)
    return renumbered


def pack_in_buffers(lengths: Int64, sources: NDArray[np.int32], capacity: int) -> Int64:
    """Bin of each item, packed within runs of one source and within buffers of `BUFFER_ITEMS` items.

    Args:
        lengths: int64 [items], each in [1, `capacity`].
        sources: int32 [items], sorted.
        capacity: Room of an empty bin.

    Returns:
        int64 [items]; bins of a later buffer have higher numbers.
    """
    bins = np.empty(len(lengths), np.int64)
    borders = (np.flatnonzero(np.diff(sources)) + 1).tolist()
    opened = 0
    for run_start, run_end in zip([0, *borders], [*borders, len(lengths)], strict=True):
        for start in range(run_start, run_end, BUFFER_ITEMS):
            end = min(start + BUFFER_ITEMS, run_end)
            bins[start:end] = best_fit_decreasing(lengths[start:end], capacity) + opened
            opened = int(bins[start:end].max()) + 1
    return bins
