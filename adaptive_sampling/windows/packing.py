"""Documents to streams: which tokens lie behind one another for the windows.

Positions in *reading order* number the tokens of all streams through; a piece is one document in that order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import stable_hash
from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.windows.config import WindowConfig

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Streams over pieces; all arrays int64 unless said otherwise.

    Attributes:
        documents: [pieces] store index of the document of each piece.
        piece_ends: [pieces] reading position behind each piece.
        piece_shifts: [pieces] what to add to a reading position to get the position in the store.
        stream_starts: [streams] reading position of each stream.
        stream_lengths: [streams] tokens of each stream.
        stream_keys: uint64 [streams] key for offsets and thinning: the document's, or the hash of the source's name.
        stream_sources: int32 [streams] source index.
        one_piece: Whether each stream is a single piece.
        one_slice: Whether each stream lies in the store in one slice.
    """

    documents: Int64
    piece_ends: Int64
    piece_shifts: Int64
    stream_starts: Int64
    stream_lengths: Int64
    stream_keys: NDArray[np.uint64]
    stream_sources: NDArray[np.int32]
    one_piece: bool
    one_slice: bool

    def pieces(self, positions: Int64) -> Int64:
        """Piece that holds each reading position."""
        return np.searchsorted(self.piece_ends, positions, side="right")

    def pieces_along(self, starts: Int64, lasts: Int64, width: int) -> tuple[Int64, Int64]:
        """Pieces and places in them along the windows that start at the reading positions `starts`.

        Args:
            starts: int64 [B].
            lasts: int64 [B], reading position of the last token of the window's own stream that it holds.
            width: Length of each window, in tokens.

        Returns:
            (pieces, places), both int64 [B, width]: the piece of each token (behind `lasts` the last goes on), and
            its distance from the start of that piece or of the window, whichever is later.
        """
        first = self.pieces(starts)
        borders = self.pieces(lasts) - first
        columns = np.arange(width)
        total = int(borders.sum())
        if not total:
            shape = (len(starts), width)
            return np.broadcast_to(first[:, None], shape), np.broadcast_to(columns, shape)
        rows = np.repeat(np.arange(len(starts)), borders)
        nth = np.arange(total) - np.repeat(np.cumsum(borders) - borders, borders)
        border_columns = self.piece_ends[first[rows] + nth] - starts[rows]
        steps = np.zeros((len(starts), width), np.int64)
        steps[rows, border_columns] = 1
        restarts = np.zeros((len(starts), width), np.int64)
        restarts[rows, border_columns] = border_columns
        pieces = first[:, None] + np.cumsum(steps, axis=1)
        return pieces, columns - np.maximum.accumulate(restarts, axis=1)


def build_layout(store: TokenStore, config: WindowConfig) -> Layout:
    """Streams of `store` under `config.pack`, without the documents that are empty or shorter than `config.min_length`.

    Cost: O(documents) time and memory.
    """
    starts = store.document_starts
    lengths = store.document_ends - starts
    sources = np.asarray(store.document_sources)
    documents = np.flatnonzero(lengths >= max(config.min_length, 1)).astype(np.int64)
    if config.pack == "concat":
        documents = documents[np.argsort(sources[documents], kind="stable")]
    piece_lengths = lengths[documents]
    piece_ends = np.cumsum(piece_lengths)
    piece_starts = piece_ends - piece_lengths
    shifts = starts[documents] - piece_starts
    piece_sources = sources[documents]
    if config.pack == "none":
        return Layout(
            documents=documents,
            piece_ends=piece_ends,
            piece_shifts=shifts,
            stream_starts=piece_starts,
            stream_lengths=piece_lengths,
            stream_keys=np.asarray(store.document_keys)[documents],
            stream_sources=piece_sources,
            one_piece=True,
            one_slice=True,
        )
    stream_sources, first_piece = np.unique(piece_sources, return_index=True)
    stream_starts = piece_starts[first_piece]
    ends = np.append(stream_starts[1:], piece_ends[-1:])
    names = [store.source_names[source] for source in stream_sources]
    same_stream = piece_sources[1:] == piece_sources[:-1]
    return Layout(
        documents=documents,
        piece_ends=piece_ends,
        piece_shifts=shifts,
        stream_starts=stream_starts,
        stream_lengths=ends - stream_starts,
        stream_keys=np.array([stable_hash(name) & 0xFFFFFFFFFFFFFFFF for name in names], np.uint64),
        stream_sources=stream_sources,
        one_piece=False,
        one_slice=not bool(np.any(same_stream & (shifts[1:] != shifts[:-1]))),
    )
