"""Scarcity: how little of a window's content the rest of the data holds."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.neighbors import near_copy_sets, nearest

ScarcityMeasure = Literal["density", "distance"]


def scarcity_scores(
    feats: Any,
    num_neighbors: int = 20,
    *,
    measure: ScarcityMeasure = "density",
    groups: Any = None,
    index: Literal["auto", "exact", "ivf"] = "auto",
    threshold: float = 0.85,
) -> NDArray[np.float64]:
    """Scarcity of each window, mean 1.

    "density" is one over the size of a window's near-copy set, so that every set counts as much as a window that is
    alone. "distance" ranks windows by the distance to their `num_neighbors`-th neighbour and spreads the ranks over
    [0.5, 1.5]; equal distances share a rank.

    Args:
        feats: real `[N, dim]`; rows are scaled to unit length.
        num_neighbors: neighbours looked at per window.
        measure: "density" or "distance".
        groups: integers `[N]`, usually documents: windows of one document are never neighbours.
        index: "exact", "ivf" or "auto", see `adaptive_sampling.neighbors.nearest`.
        threshold: similarity from which windows count as near-copies; for "density".

    Returns:
        float64 `[N]`, mean 1; a window without any neighbour counts as the scarcest. Empty for N = 0.

    Raises:
        TypeError: if features or groups are of a wrong type.
        ValueError: on wrong shapes or settings, or rows that are not finite.

    Cost:
        One search over all windows.

    Example:
        >>> copies = np.eye(3)[[0, 1, 2, 2, 2]]
        >>> scarcity_scores(copies).round(3).tolist()
        [1.667, 1.667, 0.556, 0.556, 0.556]
    """
    if measure not in get_args(ScarcityMeasure):
        raise ValueError(f"`measure` must be one of {get_args(ScarcityMeasure)}, got {measure!r}.")
    if measure == "density":
        sets = near_copy_sets(feats, groups, threshold=threshold, num_neighbors=num_neighbors, index=index)
        return density_from_sets(sets)
    similarity, ids = nearest(feats, num_neighbors=num_neighbors, groups=groups, index=index)
    last = np.maximum((ids >= 0).sum(axis=1) - 1, 0)
    return ranks_around_one(-similarity[np.arange(len(ids)), last])


def density_from_sets(sets: NDArray[np.int64]) -> NDArray[np.float64]:
    """One over the size of each row's set, divided by the mean.

    Args:
        sets: int64 `[N]`, non-negative set labels.

    Returns:
        float64 `[N]`, mean 1.
    """
    if len(sets) == 0:
        return np.empty(0)
    raw = 1.0 / np.bincount(sets)[sets]
    return np.asarray(raw / raw.mean())


def ranks_around_one(values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Ranks of `values` spread evenly over [0.5, 1.5], mean 1; values equal to 5 decimals share their mean rank.

    Args:
        values: real `[N]`, larger is scarcer; infinity is allowed.

    Returns:
        float64 `[N]`.
    """
    if len(values) < 2:
        return np.ones(len(values))
    _, inverse, counts = np.unique(np.round(values.astype(np.float64), 5), return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts + 1) / 2
    return np.asarray(0.5 + mean_rank[inverse] / (len(values) - 1))
