"""From the policy's weights to those that the sampler gets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Change = tuple[NDArray[np.int64] | None, NDArray[np.float32]]
"""Ids, None for all windows, and their weights."""


def dealt(
    ids: NDArray[np.int64] | None,
    weights: NDArray[np.float32],
    permutation: NDArray[np.int64] | None,
    factors: NDArray[np.float32] | None,
) -> Change:
    """What the sampler is to draw by: the weight of window i goes to window `permutation[i]`, times its factor there.

    Args:
        ids: int64 `[k]`, or None for all windows.
        weights: float32 `[k]` or `[N]`, the policy's.
        permutation: int64 `[N]` of a placebo; None: each window keeps its weight.
        factors: float32 `[N]`, the weights that the user gave the sampler; None: none.

    Returns:
        Ids and weights, as given where there is nothing to do.
    """
    if permutation is not None:
        if ids is None:
            moved = np.empty_like(weights)
            moved[permutation] = weights
            weights = moved
        else:
            ids = permutation[ids]
    if factors is not None:
        weights = weights * (factors if ids is None else factors[ids])
    return ids, weights
