"""Documents to streams: which tokens lie behind one another for the windows.

Positions in *reading order* number the tokens of all streams through; a piece is a document, or a part of one, in that
order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import stable_hash
from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.windows.best_fit import pack_in_buffers
from adaptive_sampling.windows.config import WindowConfig
from adaptive_sampling.windows.grouping import document_groups
from adaptive_sampling.windows.lookup import Lookup
from adaptive_sampling.windows.plan import window_counts

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Streams over pieces; all arrays int64 unless said otherwise.

    Attributes:
        documents: [pieces] store index of the document of each piece.
        piece_ends: [pieces] reading position behind each piece.
        piece_shifts: [pieces] what to add to a reading position to get the position in the store.
        stream_starts: [streams] reading position at which the windows of each stream begin.
        stream_lengths: [streams] tokens of each stream from there on.
        stream_keys: uint64 [streams] key for offsets: the document's, or the hash of the names of source and group.
        stream_sources: int32 [streams] source index.
        one_piece: Whether each stream is a single piece.
    """

    documents: Int64
    piece_ends: Int64
    piece_shifts: Int64
    stream_starts: Int64
    stream_lengths: Int64
    stream_keys: NDArray[np.uint64]
    stream_sources: NDArray[np.int32]
    one_piece: bool

    def pieces(self, positions: Int64) -> Int64:
        """Piece that holds each reading position."""
        return self._lookup.find(positions)

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(self.piece_ends)

    def piece_starts(self, pieces: Int64) -> Int64:
        """Reading position of the first token of each piece."""
        return np.where(pieces > 0, self.piece_ends[pieces - 1], 0)

    def store_positions(self, positions: Int64, streams: Int64) -> Int64:
        """Position in the store of each reading position; `streams` holds the stream of each."""
        return positions + self.piece_shifts[self.pieces_of(positions, streams)]

    def pieces_of(self, positions: Int64, streams: Int64) -> Int64:
        """Piece that holds each reading position, of which the stream is known."""
        return streams if self.one_piece else self.pieces(positions)


def build_layout(store: TokenStore, config: WindowConfig) -> tuple[Layout, Int64]:
    """Streams of `store` under `config.pack`, without the documents that are empty or shorter than `config.min_length`.

    Returns:
        (streams, number of windows of each).

    Cost: O(documents) time and memory, and a sort for packing.
    """
    starts = store.document_starts
    lengths = store.document_ends - starts
    documents = np.flatnonzero(lengths >= max(config.min_length, 1)).astype(np.int64)
    build = {"none": _one_by_one, "concat": _concatenated, "best_fit": _best_fit}[config.pack]
    layout = build(store, config, documents, starts[documents], lengths[documents])
    if config.pack == "best_fit":
        counts = window_counts(layout.stream_lengths, config.seq_len, config.seq_len, "pad")
        # Documents that share a window have it even where nothing in it is a target.
        return layout, np.where(layout.stream_lengths <= config.seq_len, 1, counts)
    if config.offset:
        skipped = np.minimum(layout.stream_lengths, config.offset)
        starts, left = layout.stream_starts + skipped, layout.stream_lengths - skipped
        layout = replace(layout, stream_starts=starts, stream_lengths=left)
    return layout, window_counts(layout.stream_lengths, config.seq_len, config.step, config.tail)


def _one_by_one(store: TokenStore, config: WindowConfig, documents: Int64, starts: Int64, lengths: Int64) -> Layout:
    ends = np.cumsum(lengths)
    piece_starts = ends - lengths
    return Layout(
        documents=documents,
        piece_ends=ends,
        piece_shifts=starts - piece_starts,
        stream_starts=piece_starts,
        stream_lengths=lengths,
        stream_keys=np.asarray(store.document_keys)[documents],
        stream_sources=np.asarray(store.document_sources)[documents],
        one_piece=True,
    )


def _concatenated(store: TokenStore, config: WindowConfig, documents: Int64, starts: Int64, lengths: Int64) -> Layout:
    sources = np.asarray(store.document_sources)[documents]
    groups, names = np.zeros(len(documents), np.int64), [""]
    if config.group_by is not None:
        of_documents, names = document_groups(store, config.group_by)
        groups = of_documents[documents]
    order = np.lexsort((groups, sources))
    documents, lengths, sources, groups = documents[order], lengths[order], sources[order], groups[order]
    ends = np.cumsum(lengths)
    shifts = starts[order] - (ends - lengths)
    same_stream = (sources[1:] == sources[:-1]) & (groups[1:] == groups[:-1])
    firsts = np.flatnonzero(np.append(np.ones(min(len(ends), 1), bool), ~same_stream))
    stream_starts = ends[firsts] - lengths[firsts]
    labels = [
        (store.source_names[source], *([] if config.group_by is None else [names[group]]))
        for source, group in zip(sources[firsts].tolist(), groups[firsts].tolist(), strict=True)
    ]
    return Layout(
        documents=documents,
        piece_ends=ends,
        piece_shifts=shifts,
        stream_starts=stream_starts,
        stream_lengths=np.append(stream_starts[1:], ends[-1:]) - stream_starts,
        stream_keys=np.array([stable_hash(*label) & 0xFFFFFFFFFFFFFFFF for label in labels], np.uint64),
        stream_sources=sources[firsts],
        one_piece=False,
    )


def _best_fit(store: TokenStore, config: WindowConfig, documents: Int64, starts: Int64, lengths: Int64) -> Layout:
    """A stream for the full windows of each longer document, then one for each window that is shared."""
    width = config.seq_len
    sources = np.asarray(store.document_sources)[documents]
    order = np.argsort(sources, kind="stable")
    documents, starts, lengths, sources = documents[order], starts[order], lengths[order], sources[order]
    rests = lengths % width
    long, rest = np.flatnonzero(lengths >= width), np.flatnonzero(rests)
    # The token behind the last full window is its last label, and the first input of the rest as well.
    head_lengths = lengths[long] - rests[long] + (rests[long] > 0)
    bins = pack_in_buffers(rests[rest], sources[rest], width)
    by_bin = np.argsort(bins, kind="stable")
    rest, bins = rest[by_bin], bins[by_bin]
    firsts = np.flatnonzero(np.diff(bins, prepend=-1))
    piece_lengths = np.concatenate([head_lengths, rests[rest]])
    ends = np.cumsum(piece_lengths)
    piece_starts = ends - piece_lengths
    store_starts = np.concatenate([starts[long], starts[rest] + lengths[rest] - rests[rest]])
    stream_starts = np.concatenate([piece_starts[: len(long)], piece_starts[len(long) + firsts]])
    first_documents = np.concatenate([documents[long], documents[rest[firsts]]])
    return Layout(
        documents=np.concatenate([documents[long], documents[rest]]),
        piece_ends=ends,
        piece_shifts=store_starts - piece_starts,
        stream_starts=stream_starts,
        stream_lengths=np.append(stream_starts[1:], ends[-1:]) - stream_starts,
        stream_keys=np.asarray(store.document_keys)[first_documents],
        stream_sources=np.concatenate([sources[long], sources[rest[firsts]]]),
        one_piece=False,
    )
