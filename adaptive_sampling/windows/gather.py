"""A batch of windows from the tokens, in one gather."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.windows._buffers import Buffers
from adaptive_sampling.windows._tokens import parts, runs_of_tokens, tokens_at
from adaptive_sampling.windows.packing import Layout

Int64 = NDArray[np.int64]
IGNORED_LABEL = -100  # what torch.nn.functional.cross_entropy ignores by default


class Places(NamedTuple):
    """Where windows are; int64 [B] each.

    Attributes:
        streams: Stream of the layout.
        firsts: Reading position of the first token.
        inputs: Tokens that are inputs, seq_len unless the window is padded.
        targets: Tokens that are there to be predicted: as many, or one fewer where a shared window ends.
        repeated: How many of the first targets are masked because the window before has them.
    """

    streams: Int64
    firsts: Int64
    inputs: Int64
    targets: Int64
    repeated: Int64


class _Borders(NamedTuple):
    """Places in a batch at which a token is the first of another piece than the one before; int64 each."""

    first_pieces: Int64  # [B], the piece in which each window starts
    rows: Int64  # [borders]
    columns: Int64  # [borders], from 1 to the number of targets
    pieces: Int64  # [borders], the piece that begins


def gather(
    tokens: Any,
    layout: Layout,
    places: Places,
    width: int,
    eos_id: int,
    *,
    mask_cross: bool,
    buffers: Buffers,
) -> dict[str, Int64]:
    """Inputs, labels, document ids and position ids of a batch, int64 [B, `width`] each.

    Where windows are within documents, the last two are read-only views of one row.
    """
    borders = _find_borders(layout, places)
    inputs, labels = (buffers.take(len(places.firsts), width) for _ in range(2))
    for rows, block in _blocks(tokens, layout, places, borders, width, buffers):
        inputs[rows], labels[rows] = block[:, :-1], block[:, 1:]
    columns = _columns(width)
    if places.inputs.min(initial=width) < width:
        np.copyto(inputs, eos_id, where=columns >= places.inputs[:, None])
    if places.targets.min(initial=width) < width:
        np.copyto(labels, IGNORED_LABEL, where=columns >= places.targets[:, None])
    if places.repeated.any():
        np.copyto(labels, IGNORED_LABEL, where=columns < places.repeated[:, None])
    if mask_cross and len(borders.rows):
        labels[borders.rows, borders.columns - 1] = IGNORED_LABEL
    document_ids, position_ids = _within(borders, len(inputs), width, buffers)
    return {"input_ids": inputs, "labels": labels, "document_ids": document_ids, "position_ids": position_ids}


def _find_borders(layout: Layout, places: Places) -> _Borders:
    if layout.one_piece:
        nothing = np.zeros(0, np.int64)
        return _Borders(places.streams, nothing, nothing, nothing)
    first = layout.pieces(places.firsts)
    counts = layout.pieces(places.firsts + places.targets) - first
    rows = np.repeat(np.arange(len(first)), counts)
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    before = first[rows] + nth
    return _Borders(first, rows, layout.piece_ends[before] - places.firsts[rows], before + 1)


def _blocks(
    tokens: Any, layout: Layout, places: Places, borders: _Borders, width: int, buffers: Buffers
) -> Iterator[tuple[Any, NDArray[Any]]]:
    """(rows, their tokens [rows, width + 1]) part by part, later ones in place of earlier; behind targets any token."""
    shifts = layout.piece_shifts
    starts = places.firsts + shifts[borders.first_pieces]
    last_run = len(tokens) - (width + 1)
    jumps = shifts[borders.pieces] - shifts[borders.pieces - 1]
    moved = np.flatnonzero(jumps)
    scattered = starts > last_run
    if len(moved):
        scattered[borders.rows[moved]] = True
    rows = np.flatnonzero(scattered)
    if len(rows) < len(starts):
        whole = np.minimum(starts, last_run) if len(rows) else starts
        for part in parts(len(starts), (width + 1) * tokens.itemsize):
            yield part, runs_of_tokens(tokens, whole[part], width + 1)
    if not len(rows):
        return
    # Running sums of steps: one token on, and at a border on to where the next piece lies.
    steps = buffers.take(len(starts), width + 1)[: len(rows)]
    steps[...] = 1
    steps[:, 0] = starts[rows]
    steps[np.searchsorted(rows, borders.rows[moved]), borders.columns[moved]] += jumps[moved]
    yield rows, tokens_at(tokens, np.cumsum(steps, axis=1, out=steps))


def _within(borders: _Borders, num_rows: int, width: int, buffers: Buffers) -> tuple[Int64, Int64]:
    """Number of documents begun before each input, and its distance from the start of its own."""
    inner = borders.columns < width
    if not inner.any():
        return _of_one_document(num_rows, width)
    rows, columns = borders.rows[inner], borders.columns[inner]
    document_ids, positions = (buffers.take(num_rows, width) for _ in range(2))
    document_ids[...] = 0
    document_ids[rows, columns] = 1
    begun = np.zeros(len(rows), np.int64)
    begun[1:] = np.where(rows[1:] == rows[:-1], columns[:-1], 0)
    positions[...] = 1
    positions[:, 0] = 0
    positions[rows, columns] = 1 + begun - columns
    np.cumsum(document_ids, axis=1, out=document_ids)
    np.cumsum(positions, axis=1, out=positions)
    return document_ids, positions


@lru_cache(maxsize=8)
def _of_one_document(num_rows: int, width: int) -> tuple[Int64, Int64]:
    zero = np.zeros(1, np.int64)
    zero.flags.writeable = False
    return np.broadcast_to(zero, (num_rows, width)), np.broadcast_to(_columns(width), (num_rows, width))


@lru_cache(maxsize=8)
def _columns(width: int) -> Int64:
    columns = np.arange(width)
    columns.flags.writeable = False
    return columns
