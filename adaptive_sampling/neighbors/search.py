"""Nearest neighbours by inner product of unit vectors: the one module that searches with Faiss."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import keyed_generator, stable_hash
from adaptive_sampling.neighbors._checks import group_codes, positive_integer, unit_rows

IndexKind = Literal["auto", "exact", "ivf"]
EXACT_UP_TO = 30_000
_ROWS_PER_CELL = 39  # Faiss trains its cells on at least so many rows each
_PROBED_CELLS = 16
_CANDIDATES_PER_BLOCK = 1 << 22


def nearest(
    features: Any,
    queries: Any = None,
    *,
    num_neighbors: int = 20,
    groups: Any = None,
    query_groups: Any = None,
    index: IndexKind = "auto",
    seed: int = 0,
    min_similarity: float = -np.inf,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The `num_neighbors` rows of `features` most similar to each query, nearest first.

    Similarity is the inner product after rows are scaled to unit length (the cosine). Without `queries`, every row is a
    query and never its own neighbour. Rows of the query's own group are left out, and more are fetched in their place.

    Args:
        features: real `[N, dim]`.
        queries: real `[Q, dim]`; None: the features themselves.
        num_neighbors: k.
        groups: integers `[N]`, for instance documents; needed for `query_groups`.
        query_groups: integers `[Q]`, numbered as `groups`; only with `queries`.
        index: "exact" compares every pair; "ivf" searches the nearest cells of a k-means partition; "auto" is exact up
            to 30,000 rows.
        seed: key of what "ivf" is trained on.
        min_similarity: less similar rows are no neighbours.

    Returns:
        similarity: float32 `[Q, k]`, −inf where there are fewer neighbours.
        ids: int64 `[Q, k]`, −1 where there are fewer neighbours.

    Raises:
        TypeError: if features or groups are of a wrong type.
        ValueError: on wrong shapes or settings, or rows that are not finite (the message names them).

    Determinism:
        A function of the arguments. The number of threads of Faiss stays as it is (`OMP_NUM_THREADS`).

    Cost:
        Exact: O(Q·N·dim) time. Ivf: about O(Q·√N·dim) for search. Memory O(N·dim + Q·k) and a block of candidates.
    """
    k = positive_integer("num_neighbors", num_neighbors)
    if index not in get_args(IndexKind):
        raise ValueError(f"`index` must be one of {get_args(IndexKind)}, got {index!r}.")
    if np.isnan(min_similarity):
        raise ValueError(f"`min_similarity` must be a number, got {min_similarity!r}.")
    base = unit_rows("features", features)
    asked = base if queries is None else unit_rows("queries", queries)
    if asked.shape[1] != base.shape[1]:
        raise ValueError(f"`queries` must have {base.shape[1]} columns as `features`, got {asked.shape[1]}.")
    own = np.arange(len(base)) if queries is None else np.full(len(asked), -1)
    base_codes, asked_codes, excluded = _exclusions(groups, query_groups, len(base), own, queries is None)
    similarity = np.full((len(asked), k), -np.inf, dtype=np.float32)
    ids = np.full((len(asked), k), -1, dtype=np.int64)
    if len(base) == 0 or len(asked) == 0:
        return similarity, ids
    searcher = _build_index(base, index, seed)
    enough = np.minimum(len(base), k + excluded)  # with so many candidates, k remain after exclusion
    fetch = int(min(k + 1 + min(k, int(excluded.max())), enough.max()))
    pending = np.arange(len(asked))
    while len(pending):
        short = []
        block = max(1, _CANDIDATES_PER_BLOCK // max(fetch, 64))
        for first in range(0, len(pending), block):
            rows = pending[first : first + block]
            found_similarity, found = searcher.search(asked[rows], fetch)
            keep = (found >= 0) & (found != own[rows, None]) & (found_similarity >= min_similarity)
            if base_codes is not None:
                keep &= base_codes[found] != asked_codes[rows, None]
            place = np.cumsum(keep, axis=1) - 1
            at_row, at_column = np.nonzero(keep & (place < k))
            similarity[rows[at_row], place[at_row, at_column]] = found_similarity[at_row, at_column]
            ids[rows[at_row], place[at_row, at_column]] = found[at_row, at_column]
            unfinished = (place[:, -1] < k - 1) & (fetch < enough[rows])
            unfinished &= (found[:, -1] >= 0) & (found_similarity[:, -1] >= min_similarity)
            short.append(rows[unfinished])
        pending = np.concatenate(short)
        fetch = int(min(4 * fetch, enough[pending].max(initial=0)))
    return similarity, ids


def _exclusions(
    groups: Any, query_groups: Any, num_rows: int, own: NDArray[np.int64], own_queries: bool
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64], NDArray[np.int64]]:
    """Group numbers of rows and of queries (None: no groups), and how many rows each query leaves out."""
    if own_queries and query_groups is not None:
        raise ValueError("`query_groups` must be left out without `queries`, got an array. `groups` serves both.")
    if (groups is None) != (query_groups is None) and not own_queries:
        raise ValueError("`groups` and `query_groups` must be given together, got one of them. Give both or neither.")
    if groups is None:
        return None, own, (own >= 0).astype(np.int64)
    of_rows = group_codes("groups", groups, num_rows)
    of_queries = of_rows if own_queries else group_codes("query_groups", query_groups, len(own))
    codes = np.unique(np.concatenate([of_rows, of_queries]), return_inverse=True)[1].astype(np.int64)
    row_codes, query_codes = codes[:num_rows], codes[num_rows:]
    sizes = np.bincount(row_codes, minlength=int(codes.max(initial=0)) + 1)
    return row_codes, query_codes, sizes[query_codes]


def _build_index(base: NDArray[np.float32], kind: IndexKind, seed: int) -> Any:
    import faiss

    num_rows, dim = base.shape
    flat = faiss.IndexFlatIP(dim)
    num_cells = min(int(4 * np.sqrt(num_rows)), num_rows // _ROWS_PER_CELL)
    if kind == "exact" or (kind == "auto" and num_rows <= EXACT_UP_TO) or num_cells < 2:
        flat.add(base)
        return flat
    cells = faiss.IndexIVFFlat(flat, dim, num_cells, faiss.METRIC_INNER_PRODUCT)
    cells.cp.seed = stable_hash(seed, "cells") % (1 << 31)
    cells.cp.spherical = True
    cells.nprobe = min(num_cells, _PROBED_CELLS)
    num_train = min(num_rows, 64 * num_cells)
    chosen = keyed_generator(seed, "cell training").choice(num_rows, num_train, replace=False, shuffle=False)
    cells.train(base[np.sort(chosen)])
    cells.add(base)
    return cells
