"""What ours and every peer is measured on: the same weights, the same changed windows, the same blocks."""

from __future__ import annotations

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


def changed_ids(size: int) -> NDArray[np.int64]:
    """Ids of the windows whose weights change, int64, each once."""
    generator = np.random.default_rng(1)
    return np.sort(generator.choice(size, min(NUM_CHANGED, size), replace=False, shuffle=False))
