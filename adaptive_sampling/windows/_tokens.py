"""The tokens of a store, whether they lie in one file or in several shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.corpus import TokenStore

_PART_BYTES = 600_000  # near what a core caches; much larger arrays are mapped anew each time, page by page


def plain_tokens(store: TokenStore) -> Any:
    """What reads fastest: a plain view of one map, or the shards as they are, of which an array would be a copy."""
    tokens: Any = store.tokens
    return np.asarray(tokens) if isinstance(tokens, np.ndarray) else tokens


def runs_of_tokens(tokens: Any, starts: NDArray[np.int64], width: int) -> NDArray[Any]:
    """[B, `width`] tokens from each of `starts`, int64 [B], on.

    Cost: one gather per shard that is touched; runs across shards are gathered token by token.
    """
    if isinstance(tokens, np.ndarray):
        # Every run of the file as a row, in views: what sliding_window_view gives, at a tenth of its time.
        shape, strides = (len(tokens) - width + 1, width), (tokens.itemsize, tokens.itemsize)
        block: NDArray[Any] = np.ndarray(shape, tokens.dtype, tokens, 0, strides)[starts]
        return block
    shards: list[NDArray[Any]] = tokens.shards
    ends = np.cumsum([len(shard) for shard in shards])
    numbers = np.searchsorted(ends, starts, side="right")
    whole = starts + width <= ends[numbers]
    block = np.empty((len(starts), width), tokens.dtype)
    for number in np.unique(numbers[whole]).tolist():
        rows = np.flatnonzero(whole & (numbers == number))
        shard = np.asarray(shards[number])
        block[rows] = runs_of_tokens(shard, starts[rows] - (int(ends[number]) - len(shard)), width)
    across = np.flatnonzero(~whole)
    if len(across):
        block[across] = tokens[starts[across][:, None] + np.arange(width)]
    return block


def tokens_at(tokens: Any, positions: NDArray[np.int64]) -> NDArray[Any]:
    """The token at each position, of any shape; one behind the end is the last."""
    if isinstance(tokens, np.ndarray):
        return tokens.take(positions, mode="clip")
    found: NDArray[Any] = tokens[np.minimum(positions, len(tokens) - 1)]
    return found


def parts(num_rows: int, row_bytes: int) -> Iterator[slice]:
    """Slices that cut rows into parts small enough for arrays that are made and dropped at once."""
    step = max(_PART_BYTES // row_bytes, 1)
    return (slice(first, min(first + step, num_rows)) for first in range(0, num_rows, step))
