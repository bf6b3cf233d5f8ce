"""Starts moved to where documents or paragraphs begin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.windows.packing import Layout

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Boundaries:
    """Where the text of a layout begins anew.

    Attributes:
        layout: Its pieces begin documents.
        paragraph_starts: int64, store positions, sorted; None: documents alone count.
    """

    layout: Layout
    paragraph_starts: Int64 | None

    def around(self, positions: Int64) -> tuple[Int64, Int64]:
        """(last boundary at or before, first boundary behind) each reading position, int64 [B] both."""
        pieces = self.layout.pieces(positions)
        before, behind = self.layout.piece_starts(pieces), self.layout.piece_ends[pieces]
        if self.paragraph_starts is not None and len(self.paragraph_starts):
            shifts = self.layout.piece_shifts[pieces]
            last = len(self.paragraph_starts) - 1
            index = np.searchsorted(self.paragraph_starts, positions + shifts, side="right")
            # A paragraph of another document is before this piece or behind it, so the piece's own borders win.
            lower = self.paragraph_starts[np.maximum(index - 1, 0)] - shifts
            before = np.where(index > 0, np.maximum(before, lower), before)
            upper = self.paragraph_starts[np.minimum(index, last)] - shifts
            behind = np.where(index <= last, np.minimum(behind, upper), behind)
        return before, behind

    def nearest(self, positions: Int64, firsts: Int64, lasts: Int64, stride: int) -> Int64:
        """The nearest boundary within stride/2 and within [`firsts`, `lasts`], else the position itself.

        Of two as near the earlier one is taken, so that order is kept.
        """
        before, behind = self.around(positions)
        down, up = positions - before, behind - positions
        can_fall, can_rise = (2 * down <= stride) & (before >= firsts), (2 * up <= stride) & (behind <= lasts)
        risen = np.where(can_rise, behind, positions)
        return np.where(can_fall & (~can_rise | (down <= up)), before, risen)

    def align(self, starts: Int64, numbers: Int64, streams: Int64, last_full: Int64, stride: int) -> Int64:
        """Starts in their streams, moved to boundaries; order is kept.

        The first of a stream stays, and so does what a tail added.

        Args:
            starts: int64 [B], starts in the stream.
            numbers: int64 [B], number of each window within its stream.
            streams: int64 [B].
            last_full: int64 [B], the last start in the stream at which a window is full.
            stride: Distance of starts.

        Returns:
            int64 [B].
        """
        firsts = self.layout.stream_starts[streams]
        positions, lasts = firsts + starts, firsts + last_full
        movable = (numbers > 0) & (numbers * stride <= last_full)
        moved = np.where(movable, self.nearest(positions, firsts, lasts, stride), positions)
        # A boundary in the very middle between two starts goes to the later one, if that takes it.
        tied = np.flatnonzero((2 * (moved - positions) == stride) & ((numbers + 1) * stride <= last_full))
        if len(tied):
            later = np.minimum(positions[tied] + stride, lasts[tied])
            taken = self.nearest(later, firsts[tied], lasts[tied], stride) == moved[tied]
            moved[tied[taken]] = positions[tied[taken]]
        aligned: Int64 = moved - firsts
        return aligned
