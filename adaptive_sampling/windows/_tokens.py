"""The tokens of a store, whether they lie in one file or in several shards."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.corpus import TokenStore


def plain_tokens(store: TokenStore) -> Any:
    """What reads fastest: a plain view of one map, or the shards as they are, of which an array would be a copy."""
    tokens: Any = store.tokens
    return np.asarray(tokens) if isinstance(tokens, np.ndarray) else tokens


def runs_of_tokens(tokens: Any, starts: NDArray[np.int64], width: int) -> NDArray[Any]:
    """[B, `width`] tokens from each of `starts`, int64 [B], on.

    Cost: one gather per shard that is touched; runs across shards are gathered token by token.
    """
    if isinstance(tokens, np.ndarray):
        block: NDArray[Any] = np.lib.stride_tricks.sliding_window_view(tokens, width)[starts]
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
