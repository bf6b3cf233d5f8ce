"""What ours and every peer is measured on: the same weights, the same changed windows, the same blocks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

BLOCKS = (8192, 32)  # draws made together
NUM_CHANGED = 1024  # weights changed together
REPEATS, BUDGET = 50, 2.0  # the best of so many runs, or of what fits into so many seconds


def make_weights(size: int) -> NDArray[np.float32]:
    """Positive float32 `[size]`, gamma-distributed with mean 2, as learned weights roughly are."""
    weights = np.empty(size, np.float32)
    generator = np.random.default_rng(0)
    for start in range(0, size, 1 << 22):
        part = weights[start : start + (1 << 22)]
        part[:] = generator.gamma(2.0, 1.0, len(part))
    return np.maximum(weights, np.float32(1e-3), out=weights)


def changes(weights: NDArray[np.float32]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Changes without end: ids, int64, ascending, each once, and their new weights, which differ from those before.

    Every change meets other windows, as in a training: those of a change repeated would lie in the processor's caches.
    """
    generator, size = np.random.default_rng(1), len(weights)
    count = min(NUM_CHANGED, size)
    drawn = [np.sort(generator.choice(size, count, replace=False, shuffle=False)) for _ in range(4 * REPEATS)]
    doubled = [(ids, weights[ids] * np.float32(2)) for ids in drawn]
    return itertools.cycle([*doubled, *((ids, values / np.float32(2)) for ids, values in doubled)])
