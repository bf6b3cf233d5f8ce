"""Scarcity: how little of a window's content the rest of the data holds."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.neighbors import cluster, find_near_copies, nearest
from adaptive_sampling.neighbors._checks import feature_matrix, group_codes, integer_seed, positive_integer
from adaptive_sampling.neighbors.indexes import IndexKind
from adaptive_sampling.weights.transforms import solve_scale

ScarcityMeasure = Literal["density", "distance", "cluster"]
_CLUSTER_CAP = 4.0


def scarcity_scores(
    feats: Any,
    num_neighbors: int = 20,
    *,
    measure: ScarcityMeasure = "density",
    groups: Any = None,
    index: IndexKind = "auto",
    threshold: float | None = None,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Scarcity of each window, mean 1.

    "density" is one over the size of a window's near-copy set, so that every set counts as much as a window that is
    alone (soft de-duplication: He et al. 2024, SoftDedup, section 3). "distance" ranks windows by the distance to their
    `num_neighbors`-th neighbour and spreads the ranks over [0.5, 1.5]; equal distances share a rank. "cluster" is one
    over the size of a window's k-means cluster, at most 4; it knows no groups.

    Features are taken without what all have in common, in float64: it does not matter where their origin is.

    Args:
        feats: real `[N, dim]`, an array, tensor or memory map.
        num_neighbors: neighbours looked at per window.
        measure: "density", "distance" or "cluster".
        groups: integers `[N]`, usually documents: windows of one document are never neighbours.
        index: "auto", "exact", "ivf", "hnsw" or "ivfpq", see `adaptive_sampling.neighbors.nearest`.
        threshold: similarity from which windows count as near-copies, for "density"; None: read from the data.
        seed: key of what an index or clusters are trained on.

    Returns:
        float64 `[N]`, finite, mean 1; a window without any neighbour counts as the scarcest. Empty for N = 0.

    Raises:
        TypeError: if features or groups are of a wrong type.
        ValueError: on wrong shapes or settings, or rows that are not finite (named).
        MissingPackageError: if Faiss is not installed.

    Cost:
        One search over all windows, or k-means with √N clusters.

    Example:
        >>> copies = np.eye(3)[[0, 1, 2, 2, 2]]
        >>> scarcity_scores(copies).round(3).tolist()
        [1.667, 1.667, 0.556, 0.556, 0.556]
    """
    if measure not in get_args(ScarcityMeasure):
        raise ValueError(f"`measure` must be one of {get_args(ScarcityMeasure)}, got {measure!r}.")
    # Whatever the measure uses of it: a setting that is wrong for one is no setting for another.
    positive_integer("num_neighbors", num_neighbors)
    if index not in get_args(IndexKind):
        raise ValueError(f"`index` must be one of {get_args(IndexKind)}, got {index!r}.")
    if groups is not None:
        groups = group_codes("groups", groups, len(feature_matrix("features", feats)))
    seed = integer_seed(seed)
    if measure == "density":
        copies = find_near_copies(
            feats, groups, threshold=threshold, num_neighbors=num_neighbors, index=index, seed=seed
        )
        return density_from_sets(copies.sets)
    if threshold is not None:
        raise ValueError(f"`threshold` must be left out for measure {measure!r}, got {threshold!r}.")
    if measure == "cluster":
        labels = cluster(feats, max(1, round(len(feats) ** 0.5)), seed=seed)
        return capped_inverse_sizes(labels, _CLUSTER_CAP)
    found = nearest(feats, num_neighbors=num_neighbors, metric="squared_l2", groups=groups, index=index, seed=seed)
    last = np.maximum((found.ids >= 0).sum(axis=1) - 1, 0)
    return ranks_around_one(found.values[np.arange(len(last)), last])


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


def capped_inverse_sizes(labels: NDArray[np.int64], cap: float) -> NDArray[np.float64]:
    """One over the size of each row's cluster, scaled so that the mean is 1 once what is above `cap` is cut to it.

    Args:
        labels: int64 `[N]`, non-negative cluster labels.
        cap: largest value, at least 1.

    Returns:
        float64 `[N]`, mean 1.
    """
    if len(labels) == 0:
        return np.empty(0)
    raw = 1.0 / np.bincount(labels)[labels]
    scale, _ = solve_scale(raw, 0.0, cap)
    return np.minimum(raw / scale, cap)


def ranks_around_one(values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Ranks of `values` spread evenly over [0.5, 1.5], mean 1; what is equal but for rounding shares its mean rank.

    Args:
        values: real `[N]`, larger is scarcer; infinity is allowed.

    Returns:
        float64 `[N]`.
    """
    if len(values) < 2:
        return np.ones(len(values))
    wide = values.astype(np.float64)
    unit = np.abs(np.where(np.isfinite(wide), wide, 0)).max() * 1e-5
    rounded = np.round(wide / unit) if unit > 0 else wide
    _, inverse, counts = np.unique(rounded, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts + 1) / 2
    return np.asarray(0.5 + mean_rank[inverse] / (len(values) - 1))
