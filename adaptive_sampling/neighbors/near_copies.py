"""Near-copy sets: rows that are linked, directly or through others, by a similarity above a threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import hash_rows
from adaptive_sampling.neighbors._checks import group_codes, unit_rows
from adaptive_sampling.neighbors.search import IndexKind, nearest


def near_copy_sets(
    features: Any,
    groups: Any = None,
    *,
    threshold: float = 0.85,
    num_neighbors: int = 20,
    index: IndexKind = "auto",
    seed: int = 0,
) -> NDArray[np.int64]:
    """Label of each row's near-copy set.

    Two rows are linked if one is among the other's `num_neighbors` nearest and their similarity is at least
    `threshold`, or if they are equal. Rows of one group (a document, whose windows overlap) are never linked with each
    other, but may share a set through rows of other groups. Sets are the connected parts.

    Args:
        features: real `[N, dim]`; rows are scaled to unit length.
        groups: integers `[N]`; None: every row is its own group.
        threshold: similarity (cosine) in (0, 1] from which two rows count as near-copies.
        num_neighbors: neighbours looked at per row.
        index: see `nearest`.
        seed: see `nearest`.

    Returns:
        int64 `[N]`: the smallest row of the set that a row belongs to.

    Raises:
        TypeError: if features or groups are of a wrong type.
        ValueError: on wrong shapes or settings, or rows that are not finite.

    Cost:
        One search over all rows, then O(N·k·log N).
    """
    _check_threshold(threshold)
    rows = unit_rows("features", features)
    codes = np.arange(len(rows)) if groups is None else group_codes("groups", groups, len(rows))
    _, ids = nearest(
        rows,
        num_neighbors=num_neighbors,
        groups=groups,
        index=index,
        seed=seed,
        # A float32 inner product of a unit vector with itself may fall short of 1 by a few units of its last place.
        min_similarity=threshold - 1e-6,
    )
    row, column = np.nonzero(ids >= 0)
    equal = _equal_rows(rows, codes)
    return connected_sets(len(rows), np.concatenate([row, equal[0]]), np.concatenate([ids[row, column], equal[1]]))


def near_duplicates_of(
    features_train: Any,
    features_query: Any,
    threshold: float = 0.85,
    *,
    index: IndexKind = "auto",
    seed: int = 0,
) -> NDArray[np.bool_]:
    """Which queries (held-out rows) have a near-copy among the training rows.

    Both must be in the same terms: one `HashedFeaturizer`, fitted to the training windows, transforms both.

    Args:
        features_train: real `[N, dim]`.
        features_query: real `[Q, dim]`.
        threshold: similarity (cosine) in (0, 1] from which a query counts as a near-copy.
        index: see `nearest`.
        seed: see `nearest`.

    Returns:
        bool `[Q]`.

    Raises:
        TypeError: if features are no real numbers.
        ValueError: on wrong shapes or settings, or rows that are not finite.
    """
    _check_threshold(threshold)
    similarity, _ = nearest(features_train, features_query, num_neighbors=1, index=index, seed=seed)
    return np.asarray(similarity[:, 0] >= threshold - 1e-6)


def connected_sets(num_rows: int, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Smallest member of each row's connected part in the graph of undirected edges (`first`, `second`).

    Roots hook onto smaller roots across every edge at once, then pointers are halved until each row points at its root.

    Args:
        num_rows: N.
        first: int64 `[E]`, one end of each edge.
        second: int64 `[E]`, the other end.

    Returns:
        int64 `[N]`.

    Example:
        >>> connected_sets(5, np.array([0, 3]), np.array([4, 4])).tolist()
        [0, 1, 2, 0, 0]
    """
    parent = np.arange(num_rows, dtype=np.int64)
    while True:
        root_first, root_second = parent[first], parent[second]
        apart = root_first != root_second
        if not apart.any():
            return parent
        first, second = first[apart], second[apart]
        low = np.minimum(root_first[apart], root_second[apart])
        high = np.maximum(root_first[apart], root_second[apart])
        np.minimum.at(parent, high, low)
        while True:
            grandparent = parent[parent]
            if np.array_equal(grandparent, parent):
                break
            parent = grandparent


def _equal_rows(rows: NDArray[np.float32], codes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges between equal rows where more than one group holds them: a search that is full of copies may miss some."""
    nothing = np.empty(0, dtype=np.int64)
    if len(rows) == 0:
        return nothing, nothing
    keys = hash_rows(("equal rows",), *np.ascontiguousarray(rows).view(np.uint32).T)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    representative = first[inverse]
    several = np.zeros(len(first), dtype=bool)
    several[inverse[codes != codes[representative]]] = True
    linked = np.flatnonzero(several[inverse] & (representative != np.arange(len(rows))))
    linked = linked[(rows[linked] == rows[representative[linked]]).all(axis=1)]
    return linked.astype(np.int64), representative[linked].astype(np.int64)


def _check_threshold(threshold: float) -> None:
    if not 0 < threshold <= 1:
        raise ValueError(f"`threshold` must be in (0, 1], got {threshold!r}.")
