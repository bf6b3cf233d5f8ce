"""What one epoch reads: the order of documents and the separators that are left out are those of the epoch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import hash_rows
from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.windows._tokens import plain_tokens
from adaptive_sampling.windows.alignment import Boundaries
from adaptive_sampling.windows.config import WindowConfig
from adaptive_sampling.windows.packing import Layout
from adaptive_sampling.windows.plan import WindowPlan

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class EpochView:
    """The windows of one epoch.

    Attributes:
        epoch: Its number.
        plan: Starts before anything moves them.
        layout: The tokens as they are read in this epoch.
        full: `layout` before separators were left out, the one that starts are planned in.
        left_out: int64 [pieces], separators left out up to the end of each piece; None: none are.
        boundaries: What starts move to; None: they stay.
    """

    epoch: int
    plan: WindowPlan
    layout: Layout
    full: Layout
    left_out: Int64 | None
    boundaries: Boundaries | None

    def starts(self, streams: Int64, numbers: Int64) -> Int64:
        """Start of each window in its stream of `layout`, int64 [B]."""
        starts = self.plan.starts(streams, numbers, self.epoch)
        if self.boundaries is None and self.left_out is None:
            return starts
        last_full = self.plan.last_full(streams)
        if self.boundaries is not None:
            starts = self.boundaries.align(starts, numbers, streams, last_full, self.plan.stride)
        if self.left_out is not None:
            # The window starts at the same token, or behind it where it was left out; near the end, as late as it can.
            kept = _kept_positions(self.full, self.left_out, self.full.stream_starts[streams] + starts)
            lengths = self.layout.stream_lengths[streams]
            least = np.where(starts <= last_full, self.plan.seq_len + 1, 2)
            starts = np.minimum(kept - self.layout.stream_starts[streams], np.maximum(lengths - least, 0))
        return starts


def epoch_view(store: TokenStore, config: WindowConfig, layout: Layout, plan: WindowPlan, epoch: int) -> EpochView:
    """The windows of `epoch`.

    Raises:
        ValueError: if starts are to move to paragraphs and the store has none.

    Cost: nothing, unless documents are shuffled or separators left out: then O(documents log documents).
    """
    if config.reshuffle_documents:
        layout = _shuffled(store, config.seed, layout, epoch)
    boundaries = None
    if config.align != "none":
        paragraphs = None if config.align == "document" else paragraph_starts(store)
        boundaries = Boundaries(layout, paragraphs)
    if not config.eos_dropout:
        return EpochView(epoch, plan, layout, layout, None, boundaries)
    left_out = np.cumsum(_left_out(store, config, layout, epoch), dtype=np.int64)
    own = np.diff(left_out, prepend=0)
    ends = layout.piece_ends - left_out
    stream_ends = _kept_positions(layout, left_out, layout.stream_starts + layout.stream_lengths)
    stream_starts = _kept_positions(layout, left_out, layout.stream_starts)
    kept = replace(
        layout,
        piece_ends=ends,
        piece_shifts=layout.piece_shifts + left_out - own,
        stream_starts=stream_starts,
        stream_lengths=stream_ends - stream_starts,
    )
    return EpochView(epoch, plan, kept, layout, left_out, boundaries)


def paragraph_starts(store: TokenStore) -> Int64:
    """Store positions at which paragraphs begin, int64, sorted.

    Raises:
        ValueError: if the store has none.
    """
    starts: Int64 | None = getattr(store, "paragraph_starts", None)
    if starts is None:
        raise ValueError(
            f"`align` must be 'none' or 'document' for a store without paragraph starts, got 'paragraph' for "
            f"{str(store.path)!r}. Write the store again with its paragraphs."
        )
    return np.asarray(starts)


def _shuffled(store: TokenStore, seed: int, layout: Layout, epoch: int) -> Layout:
    starts = layout.piece_starts(np.arange(len(layout.piece_ends)))
    streams = np.searchsorted(layout.stream_starts + layout.stream_lengths, starts, side="right")
    keys = np.asarray(store.document_keys)[layout.documents]
    order = np.lexsort((hash_rows(("document order", seed, epoch), keys, layout.documents), streams))
    lengths = (layout.piece_ends - starts)[order]
    ends = np.cumsum(lengths)
    return replace(
        layout,
        documents=layout.documents[order],
        piece_ends=ends,
        piece_shifts=(starts + layout.piece_shifts)[order] - (ends - lengths),
    )


def _left_out(store: TokenStore, config: WindowConfig, layout: Layout, epoch: int) -> NDArray[np.bool_]:
    """Whether the EOS of each piece is left out: never the last of a stream, nor one that is all its document has."""
    pieces = np.arange(len(layout.piece_ends))
    lasts = layout.piece_ends - 1
    stream_ends = layout.stream_starts + layout.stream_lengths
    between = (lasts > layout.piece_starts(pieces)) & ~np.isin(layout.piece_ends, stream_ends)
    ends_with_eos = plain_tokens(store)[lasts + layout.piece_shifts] == store.eos_id
    keys = np.asarray(store.document_keys)[layout.documents]
    hashes = hash_rows(("eos dropout", config.seed, epoch), keys, layout.documents)
    limit = np.uint64(min(int(config.eos_dropout * 2.0**64), 2**64 - 1))
    chosen: NDArray[np.bool_] = between & ends_with_eos & (hashes <= limit)
    return chosen


def _kept_positions(layout: Layout, left_out: Int64, positions: Int64) -> Int64:
    """Reading positions when separators are left out; one that is left out itself becomes the next token's."""
    pieces = layout.pieces(positions)
    return positions - np.where(pieces > 0, left_out[pieces - 1], 0)
