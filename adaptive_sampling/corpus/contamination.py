"""Held-out text that stands in training text: n-grams of tokens, compared by hash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import mix64

NGRAM = 32
_BLOCK = 1 << 21
_HELD_OUT_BLOCK = 1 << 24
_BASE = 0x9E3779B97F4A7C15 | 1
_INVERSE = pow(_BASE, -1, 1 << 64)
_FILTER_BITS = 27


class TokenDocuments(Protocol):
    """What is read of a store."""

    tokens: Any
    document_ends: NDArray[np.int64]


@dataclass(frozen=True)
class SourceContamination:
    """Held-out windows of one source, and how many of them hold an n-gram of training text."""

    source: str
    windows: int
    contaminated: int

    @property
    def share(self) -> float:
        """Share of the windows, 0 where there are none."""
        return self.contaminated / self.windows if self.windows else 0.0


def ngram_hashes(tokens: NDArray[Any], ngram: int = NGRAM) -> NDArray[np.uint64]:
    """64-bit hash of every run of `ngram` tokens, uint64 [len(tokens) − ngram + 1]; equal runs, equal hashes.

    A polynomial over mixed tokens, from differences of its running sums modulo 2^64.

    Example:
        >>> hashes = ngram_hashes(np.array([1, 2, 3, 1, 2]), 2)
        >>> bool(hashes[0] == hashes[3]), len(set(hashes.tolist()))
        (True, 3)
    """
    count = len(tokens) - ngram + 1
    if count < 1:
        return np.zeros(0, np.uint64)
    with np.errstate(over="ignore"):
        powers = _powers(_BASE, len(tokens))
        sums = np.zeros(len(tokens) + 1, np.uint64)
        np.cumsum(mix64(tokens.astype(np.uint64)) * powers, out=sums[1:])
        return mix64((sums[ngram:] - sums[:-ngram]) * _powers(_INVERSE, count))


def _powers(base: int, count: int) -> NDArray[np.uint64]:
    factors = np.full(count, np.uint64(base % (1 << 64)))
    factors[0] = 1
    return np.cumprod(factors)


def contaminated_starts(train: TokenDocuments, held_out: TokenDocuments, ngram: int = NGRAM) -> NDArray[np.bool_]:
    """Which held-out tokens begin a run of `ngram` tokens, within a document, that stands in a training document.

    Args:
        train: Store of training text.
        held_out: Store of held-out text.
        ngram: Length of a run, at least 1.

    Returns:
        bool [held-out tokens].

    Raises:
        ValueError: if `ngram` is no positive integer.

    Cost: one reading of the training text per 16 M held-out tokens; some 600 MB of memory at most.
    """
    _check_ngram(ngram)
    flags = np.zeros(len(held_out.tokens), bool)
    for first in range(0, len(flags), _HELD_OUT_BLOCK):
        starts, hashes = _block_hashes(held_out, first, min(first + _HELD_OUT_BLOCK, len(flags)), ngram)
        if not len(hashes):
            continue
        known = np.unique(hashes)
        maybe = np.zeros(1 << _FILTER_BITS, bool)
        shift = np.uint64(64 - _FILTER_BITS)
        maybe[known >> shift] = True
        hit = np.zeros(len(known), bool)
        for start in range(0, len(train.tokens), _BLOCK):
            _, theirs = _block_hashes(train, start, min(start + _BLOCK, len(train.tokens)), ngram)
            theirs = theirs[maybe[theirs >> shift]]
            places = np.minimum(np.searchsorted(known, theirs), len(known) - 1)
            hit[places[known[places] == theirs]] = True
        flags[starts] = hit[np.searchsorted(known, hashes)]
    return flags


def _block_hashes(
    documents: TokenDocuments, first: int, stop: int, ngram: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Starts in [first, stop) of runs within a document, and their hashes."""
    tokens = np.asarray(documents.tokens[first : stop + ngram - 1])
    hashes = ngram_hashes(tokens, ngram)
    starts = first + np.arange(len(hashes), dtype=np.int64)
    ends = np.asarray(documents.document_ends)
    inside = ends[np.searchsorted(ends, starts, side="right")] - starts >= ngram if len(starts) else np.zeros(0, bool)
    return starts[inside], hashes[inside]


def window_ranges(lengths: NDArray[np.int64], seq_len: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(start, stop) of consecutive windows of `seq_len` tokens over documents; the last of each may be shorter."""
    counts = -(-lengths // seq_len)
    ends = np.cumsum(lengths)
    of = np.repeat(np.arange(len(lengths)), counts)
    number = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = (ends - lengths)[of] + number * seq_len
    return starts, np.minimum(starts + seq_len, ends[of])


def check_window(seq_len: int, ngram: int = NGRAM, *, name: str = "seq_len") -> None:
    """Refuse a window that no run fits in, which would always be found clean; `name` is the caller's argument.

    Raises:
        ValueError: if it is no integer of at least `ngram`.
    """
    if isinstance(seq_len, bool) or not isinstance(seq_len, int) or seq_len < ngram:
        raise ValueError(
            f"`{name}` must be an integer of at least {ngram} for contamination, which is {ngram} tokens in a row of "
            f"training text within a window, got {seq_len!r}. Try 1024."
        )


def _check_ngram(ngram: int) -> None:
    if isinstance(ngram, bool) or not isinstance(ngram, int) or ngram < 1:
        raise ValueError(f"`ngram` must be an integer of at least 1, got {ngram!r}. Take {NGRAM}.")


def audit_contamination(
    train: Any, held_out: Any, *, seq_len: int = 1024, ngram: int = NGRAM
) -> list[SourceContamination]:
    """Per source, the held-out windows with a run of `ngram` tokens that stands in training text.

    Args:
        train: `TokenStore` of training text.
        held_out: `TokenStore` of held-out text, tokenized alike.
        seq_len: Tokens of a window; documents are cut into consecutive ones.
        ngram: Length of a run.

    Returns:
        One entry per source of `held_out`, in its order.

    Raises:
        ValueError: if a number is no positive integer, or `seq_len` below `ngram`.
    """
    _check_ngram(ngram)
    check_window(seq_len, ngram)
    flags = contaminated_starts(train, held_out, ngram)
    lengths = np.diff(held_out.document_ends, prepend=0)
    starts, stops = window_ranges(lengths, seq_len)
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(flags)])
    last = np.maximum(stops - ngram + 1, starts)  # a run must lie in the window whole
    bad = before[last] > before[starts]
    document = np.searchsorted(held_out.document_ends, starts, side="right")
    source = np.asarray(held_out.document_sources)[document]
    return [
        SourceContamination(name, int((source == code).sum()), int(bad[source == code].sum()))
        for code, name in enumerate(held_out.source_names)
    ]


def clean_ranges(flags: NDArray[np.bool_], seq_len: int, ngram: int = NGRAM) -> tuple[list[tuple[int, int]], int]:
    """What is left of a document when each window that a known run touches is cut out.

    Args:
        flags: bool [length], starts of known runs in the document.
        seq_len: Tokens of a window.
        ngram: Length of a run.

    Returns:
        ([(start, stop), ...] of what stays, number of windows cut out).
    """
    starts, stops = window_ranges(np.array([len(flags)], np.int64), seq_len)
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(flags)])
    bad = before[stops] > before[np.maximum(starts - ngram + 1, 0)]
    ranges: list[tuple[int, int]] = []
    for start, stop in zip(starts[~bad].tolist(), stops[~bad].tolist(), strict=True):
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], stop)
        else:
            ranges.append((start, stop))
    return ranges, int(bad.sum())


def blocks(count: int, size: int) -> Iterator[tuple[int, int]]:
    """(first, stop) of consecutive blocks."""
    for first in range(0, count, size):
        yield first, min(first + size, count)
