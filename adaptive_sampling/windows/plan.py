"""Window ids to starts, by arithmetic on one prefix sum per stream.

With L tokens in a stream, W = seq_len and D = stride, window k of a stream starts at k*D while k*D + W + 1 <= L; a tail
may add one more. An id is the window's number over all streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import hash_rows
from adaptive_sampling.windows.lookup import Lookup

Int64 = NDArray[np.int64]
_MOST = 2.0**62


def window_counts(lengths: Int64, seq_len: int, stride: int, tail: Literal["drop", "cover", "pad"] = "drop") -> Int64:
    """Number of windows of each stream.

    Args:
        lengths: int64 [streams], in tokens.
        seq_len: Inputs per window, W.
        stride: Distance of starts, D.
        tail: "drop": floor((L-W-1)/D) + 1, or 0 where L < W+1. "cover": one more where tokens are left over. "pad":
            starts at multiples of D until a window reaches the end; each has at least one target, so L >= 2.

    Returns:
        int64 [streams].
    """
    last_full = lengths - (seq_len + 1)
    if tail == "pad":
        to_reach_end = -(-np.maximum(last_full, 0) // stride)
        return np.where(lengths >= 2, np.minimum(to_reach_end, (lengths - 2) // stride) + 1, 0)
    full = np.where(last_full >= 0, last_full // stride + 1, 0)
    if tail == "cover":
        full += (last_full >= 0) & (last_full % stride != 0)
    return full


def window_ends(counts: Int64) -> Int64:
    """Cumulated number of windows, int64 [streams].

    Raises:
        ValueError: if they are too many for int64.
    """
    total = float(counts.sum(dtype=np.float64))
    if total >= _MOST:
        raise ValueError(f"`stride` must leave fewer than 2^62 windows, got {total:.3g}. Use a larger stride.")
    return np.cumsum(counts)


@dataclass(frozen=True)
class WindowPlan:
    """Windows of all streams; every method is vectorised over windows.

    Attributes:
        lengths: int64 [streams], in tokens.
        keys: uint64 [streams], what the random offset of a stream is a function of.
        window_ends: int64 [streams], cumulated number of windows.
        seq_len: Inputs per window.
        stride: Distance of starts.
        tail: "drop", "cover" or "pad".
        random_offset: Whether starts move from epoch to epoch.
        seed: Seed of the offsets.
    """

    lengths: Int64
    keys: NDArray[np.uint64]
    window_ends: Int64
    seq_len: int
    stride: int
    tail: Literal["drop", "cover", "pad"]
    random_offset: bool
    seed: int

    @property
    def num_windows(self) -> int:
        """Number of windows of all streams."""
        return int(self.window_ends[-1]) if len(self.window_ends) else 0

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(self.window_ends)

    def locate(self, ids: Int64) -> tuple[Int64, Int64]:
        """(stream, number within the stream) of each window id, both int64 [B]."""
        streams = self._lookup.find(ids)
        before = self.window_ends[streams - 1]
        before[streams == 0] = 0
        return streams, ids - before

    def fixed_starts(self, streams: Int64, numbers: Int64) -> Int64:
        """Start of each window in its stream without any offset, int64 [B]."""
        return self._place(streams, numbers, None)

    def starts(self, streams: Int64, numbers: Int64, epoch: int) -> Int64:
        """Start of each window in its stream in `epoch`, int64 [B]: min(offset + k*D, L-W-1).

        The window that a tail adds stays in its place whatever the offset: a full one ends with its stream, a padded
        one starts at k*D.
        """
        if not self.random_offset:
            return self.fixed_starts(streams, numbers)
        hashes = hash_rows(("window offset", self.seed, epoch), self.keys[streams])
        return self._place(streams, numbers, (hashes % np.uint64(self.stride)).astype(np.int64))

    def last_full(self, streams: Int64) -> Int64:
        """The last start in each stream at which a window is full, int64 [B]; negative where none is."""
        return self.lengths[streams] - (self.seq_len + 1)

    def _place(self, streams: Int64, numbers: Int64, offsets: Int64 | None) -> Int64:
        unshifted = numbers * self.stride
        last_full = self.last_full(streams)
        shifted = np.minimum(unshifted if offsets is None else unshifted + offsets, last_full)
        return np.where(unshifted > last_full, unshifted, shifted) if self.tail == "pad" else shifted
