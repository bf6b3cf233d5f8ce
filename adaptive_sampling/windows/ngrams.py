"""Repeated n-grams: how much of a text its most frequent ones are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import mix64

_LOOKED_AT = 1 << 22  # tokens; the share hardly moves beyond
_RUNS = 64


def top_ngram_share(tokens: Any, n: int = 8, top: int = 100) -> float:
    """Share of all n-grams that are one of the `top` most frequent, of those that occur at least twice.

    Of more than 4 million tokens, 64 runs at equal distances are looked at.

    Args:
        tokens: Integers [tokens], an array or what slices like one.
        n: Length of an n-gram.
        top: How many of the most frequent count.

    Returns:
        The share, in [0, 1]; 0.0 where there is no n-gram.

    Cost: a sort of the hashes of at most 4 million n-grams.

    Example:
        >>> top_ngram_share(np.array([1, 2, 1, 2, 1, 2, 7, 8, 9]), n=2, top=1)
        0.375
    """
    if len(tokens) <= _LOOKED_AT:
        runs = [tokens]
    else:
        size = _LOOKED_AT // _RUNS
        runs = [tokens[start : start + size] for start in np.linspace(0, len(tokens) - size, _RUNS).astype(np.int64)]
    hashes = np.concatenate([_hashes(np.asarray(run), n) for run in runs])
    if not len(hashes):
        return 0.0
    hashes.sort()
    borders = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    counts = np.diff(np.append(borders, len(hashes)))
    counts = counts[counts > 1]
    if len(counts) > top:
        counts = np.partition(counts, len(counts) - top)[-top:]
    return float(counts.sum() / len(hashes))


def _hashes(tokens: NDArray[Any], n: int) -> NDArray[np.uint64]:
    count = max(len(tokens) - n + 1, 0)
    hashes = np.zeros(count, np.uint64)
    with np.errstate(over="ignore"):
        for k in range(n):
            hashes = mix64(hashes ^ tokens[k : k + count].astype(np.uint64))
    return hashes
