"""Nearest neighbours: the one way to search, whatever the index, with its recall measured each time."""

from __future__ import annotations

import logging
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import keyed_generator
from adaptive_sampling.neighbors._checks import feature_matrix, group_codes, integer_seed, positive_integer
from adaptive_sampling.neighbors.indexes import (
    Exact,
    Indexed,
    IndexKind,
    Metric,
    Searcher,
    build,
    choose_kind,
    compared,
)
from adaptive_sampling.neighbors.rows import Float32, Rows, common_part

RECALL_QUERIES = 1000
RECALL_BOUND = 0.95
_MOST_FETCHED = 2048  # what a GPU can fetch; a group that fills more leaves a row short
_BLOCK_VALUES = 1 << 23
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Neighbors:
    """What a search found, and how well it looked.

    Attributes:
        values: float32 `[Q, k]`, nearest first: similarities, −inf where there is no neighbour; for "squared_l2"
            squared distances, infinite there.
        ids: int64 `[Q, k]`, −1 where there is no neighbour.
        missing: int64 `[Q]`, neighbours that are there and were not found.
        metric: what `values` are.
        index: the kind of search, "auto" resolved.
        effort: how deep it looked in the end.
        recall: share of the true `num_neighbors` nearest (before groups are left out) that the search finds; 1.0 for
            exact search.
        recall_queries: on how many queries `recall` was measured; 0 for exact search.
        deepened: how often it had to look twice as deep to reach the wanted recall.
    """

    values: Float32
    ids: NDArray[np.int64]
    missing: NDArray[np.int64]
    metric: Metric
    index: str
    effort: str
    recall: float
    recall_queries: int
    deepened: int

    def __str__(self) -> str:
        rows, k = self.ids.shape
        text = f"{k} neighbours of {rows} rows by {self.index} search ({self.effort}), recall {self.recall:.3f}"
        if self.recall_queries:
            text += f" on {self.recall_queries} queries"
        if self.deepened:
            text += f", after looking deeper {self.deepened} times"
        short = int(np.count_nonzero(self.missing))
        return text + (f"; {short} rows are short of {int(self.missing.sum())} neighbours" if short else "")


def nearest(
    features: Any,
    queries: Any = None,
    *,
    num_neighbors: int = 20,
    metric: Metric = "cosine",
    groups: Any = None,
    query_groups: Any = None,
    index: IndexKind = "auto",
    centre: NDArray[np.float64] | None = None,
    min_similarity: float = -np.inf,
    min_recall: float = RECALL_BOUND,
    memory_limit: int | None = None,
    folder: Path | str | None = None,
    seed: int = 0,
) -> Neighbors:
    """The `num_neighbors` rows of `features` nearest to each query, nearest first.

    Without `queries`, every row is a query and never its own neighbour, whatever equals it. Rows of the query's own
    group are left out: more are fetched and filtered, up to 2,048, and `missing` says where that was too few.

    Args:
        features: real `[N, dim]`; a memory map is read in blocks.
        queries: real `[Q, dim]`; None: the features themselves.
        num_neighbors: k.
        metric: "cosine": inner product of rows of unit length (of a row of zeros: 0); "inner_product"; "squared_l2":
            squared Euclidean distance. Distances do not depend on `centre`; it is the mean for them.
        groups: integers `[N]`, for instance documents; needed for `query_groups`.
        query_groups: integers `[Q]`, numbered as `groups`; only with `queries`.
        index: see `adaptive_sampling.neighbors.indexes`; where rows are too few for a kind, it is "exact".
        centre: float64 `[dim]`, subtracted from all rows beforehand, for "cosine".
        min_similarity: less similar rows are no neighbours; not for "squared_l2". With "cosine" they do not count in
            the recall.
        min_recall: recall below which an approximate search looks deeper until it is reached.
        memory_limit: bytes for rows and index; None: half of the machine's memory.
        folder: for `index="disk"`: existing folder for the cells.
        seed: key of what an index is trained on.

    Raises:
        TypeError: if features or groups are of a wrong type.
        ValueError: on wrong shapes or settings, or rows that are not finite (the message names them).
        MissingPackageError: if Faiss is not installed.

    Warns:
        UserWarning: if the deepest search stays below `min_recall`.

    Determinism:
        A function of the arguments. Faiss uses `OMP_NUM_THREADS` threads; one in a forked process.

    Cost:
        Exact: O(Q·N·dim) time. Others: about O(Q·√N·dim), and 1,000 queries exactly. Memory: the rows in float32, the
        index, 12·Q·k bytes of results, and blocks of 32 MB; rows that would take more than a quarter of `memory_limit`
        stay where they are and are read in blocks.
    """
    k = positive_integer("num_neighbors", num_neighbors)
    seed = integer_seed(seed)
    _check_choices(index, metric, min_similarity, min_recall, folder)
    limit = _half_of_memory() if memory_limit is None else positive_integer("memory_limit", memory_limit)
    source = feature_matrix("features", features)
    if metric != "cosine":
        # Distances are the same from anywhere; from the middle, float32 is precise enough for them. Inner products
        # of a query rank rows the same once a constant is taken away from all rows; it comes back in float64.
        centre = common_part(source, seed=seed)
    keep = 4 * source.size <= limit // 4
    base = Rows("features", source, centre=centre, unit=metric == "cosine", keep=keep)
    asked, shift = base, None
    if queries is not None or metric == "inner_product":
        given = source if queries is None else feature_matrix("queries", queries)
        if given.shape[1] != base.dim:
            raise ValueError(f"`queries` must have {base.dim} columns as `features`, got {given.shape[1]}.")
        own_centre = None if metric == "inner_product" else centre
        asked = Rows("queries", given, centre=own_centre, unit=base.unit, keep=4 * given.size <= limit // 4)
        shift = given if metric == "inner_product" else None
    own = np.arange(len(base)) if queries is None else np.full(len(asked), -1)
    base_codes, asked_codes, excluded = _exclusions(groups, query_groups, len(base), own, queries is None)
    kind = choose_kind(len(base), len(asked), base.dim, limit) if index == "auto" else index
    worst = np.float32(np.inf if metric == "squared_l2" else -np.inf)
    result = Neighbors(
        values=np.full((len(asked), k), worst, dtype=np.float32),
        ids=np.full((len(asked), k), -1, dtype=np.int64),
        missing=np.zeros(len(asked), dtype=np.int64),
        metric=metric,
        index="exact",
        effort="all rows",
        recall=1.0,
        recall_queries=0,
        deepened=0,
    )
    if len(base) == 0 or len(asked) == 0:
        return result
    searcher = build(base, kind, metric, seed=seed, memory_limit=limit, folder=None if folder is None else Path(folder))
    recall, recall_queries, deepened = _reach_recall(
        searcher, base, asked, own, k, metric, min_recall, min_similarity, seed, index == "auto"
    )
    if recall < min_recall and index == "auto" and _is_dear(searcher):
        searcher, recall, recall_queries, deepened = Exact(base, metric), 1.0, 0, deepened + 1
    elif recall < min_recall:
        warnings.warn(
            f"recall {recall:.3f} of {searcher.kind} search stays below `min_recall` {min_recall} at its deepest "
            f"({searcher.effort}). Use index='exact', or longer features.",
            stacklevel=2,
        )
    _fill(result, searcher, base, asked, own, excluded, base_codes, asked_codes, min_similarity, shift)
    return Neighbors(
        **{
            **vars(result),
            "index": searcher.kind,
            "effort": searcher.effort,
            "recall": recall,
            "recall_queries": recall_queries,
            "deepened": deepened,
        }
    )


def _fill(
    result: Neighbors,
    searcher: Searcher,
    base: Rows,
    asked: Rows,
    own: NDArray[np.int64],
    excluded: NDArray[np.int64],
    base_codes: NDArray[np.int64] | None,
    asked_codes: NDArray[np.int64],
    min_similarity: float,
    shift: NDArray[Any] | None,
) -> None:
    """Search all queries, then those that groups left short, with four times as many candidates."""
    k = result.ids.shape[1]
    metric = result.metric
    enough = np.minimum(len(base), k + excluded)  # with so many candidates, k remain after exclusion
    fetch = int(min(k + 1 + min(k, int(excluded.max())), enough.max()))
    pending = np.arange(len(asked))
    while len(pending):
        short = []
        block = max(1, _BLOCK_VALUES // (fetch * base.dim))
        for first in range(0, len(pending), block):
            rows = pending[first : first + block]
            queries = asked.take(slice(rows[0], rows[-1] + 1) if len(pending) == len(asked) else rows)
            found = searcher.search(queries, fetch)[1]
            # Candidates are compared once more: an index rounds in other ways for few queries than for many.
            values = compared(queries, base, found, metric)
            if shift is not None and base.centre is not None:
                values = (values + (np.asarray(shift[rows], np.float64) @ base.centre)[:, None]).astype(np.float32)
            keep = (found >= 0) & (found != own[rows, None])
            if metric != "squared_l2":
                keep &= values >= min_similarity
            if base_codes is not None:
                keep &= base_codes[found] != asked_codes[rows, None]
            order = np.argsort(np.where(keep, values if metric == "squared_l2" else -values, np.inf), 1, kind="stable")
            order = order[:, :k]
            chosen = np.take_along_axis(keep, order, 1)
            at_row, at_column = np.nonzero(chosen)
            result.values[rows[at_row], at_column] = np.take_along_axis(values, order, 1)[chosen]
            result.ids[rows[at_row], at_column] = np.take_along_axis(found, order, 1)[chosen]
            missing = np.maximum(np.minimum(k, len(base) - excluded[rows]) - chosen.sum(axis=1), 0)
            if metric != "squared_l2":
                missing[(found[:, -1] >= 0) & (values[:, -1] < min_similarity)] = 0
            result.missing[rows] = missing
            short.append(rows[(missing > 0) & (found[:, -1] >= 0) & (fetch < enough[rows])])
        if fetch >= _MOST_FETCHED:
            break
        pending = np.concatenate(short)
        fetch = int(min(4 * fetch, enough[pending].max(initial=0), _MOST_FETCHED))


def _reach_recall(
    searcher: Searcher,
    base: Rows,
    asked: Rows,
    own: NDArray[np.int64],
    k: int,
    metric: Metric,
    bound: float,
    min_similarity: float,
    seed: int,
    until_dear: bool,
) -> tuple[float, int, int]:
    """Measured recall, on how many queries, and how often the search had to be deepened for it.

    With `until_dear` it gives up where a deeper search takes longer than an exact one.
    """
    if searcher.exact:
        return 1.0, 0, 0
    count = min(RECALL_QUERIES, len(asked))
    chosen = np.sort(keyed_generator(seed, "recall").choice(len(asked), count, replace=False, shuffle=False))
    queries = asked.take(chosen)
    fetch = min(k + 1, len(base))
    truth = _without_self(Exact(base, metric), queries, own[chosen], base, fetch, metric)
    if metric == "cosine":
        truth[truth > -min_similarity] = np.inf  # less similar rows are not looked for
    deepened = 0
    while True:
        found = _without_self(searcher, queries, own[chosen], base, fetch, metric)
        recall = recall_of(found[:, :k], truth[:, :k])
        if recall >= bound or (until_dear and _is_dear(searcher)) or not searcher.deepen():
            break
        deepened += 1
        _log.info("recall %.3f below %.3f: searching deeper (%s)", recall, bound, searcher.effort)
    return recall, count, deepened


def _is_dear(searcher: Searcher) -> bool:
    return isinstance(searcher, Indexed) and searcher.deeper_is_dearer_than_exact


def _without_self(
    searcher: Searcher, queries: Float32, own: NDArray[np.int64], base: Rows, fetch: int, metric: Metric
) -> NDArray[np.float64]:
    """Distances of what was found, ascending, self left out; infinite where nothing was found."""
    found = searcher.search(queries, fetch)[1]
    distance = compared(queries, base, found, metric).astype(np.float64) * (1 if metric == "squared_l2" else -1)
    distance[(found < 0) | (found == own[:, None])] = np.inf
    return np.sort(distance, axis=1)


def recall_of(found: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    """Share of the true neighbours for which something as near was found: equally near rows may stand in.

    Args:
        found: float64 `[Q, k]`, distances found, infinite where nothing was.
        truth: float64 `[Q, k]`, true distances, infinite where there are fewer.

    Example:
        >>> recall_of(np.array([[0.1, 0.3, np.inf]]), np.array([[0.1, 0.1, 0.3]]))
        0.6666666666666666
    """
    there = np.isfinite(truth)
    if not there.any():
        return 1.0
    farthest = np.where(there, truth, -np.inf).max(axis=1, keepdims=True)
    slack = 1e-5 * np.abs(np.where(there, truth, 0)).max()
    hits = np.minimum((found <= farthest + slack).sum(axis=1), there.sum(axis=1))
    return float(hits.sum() / there.sum())


def _check_choices(
    index: str, metric: str, min_similarity: float, min_recall: float, folder: Path | str | None
) -> None:
    if index not in get_args(IndexKind):
        raise ValueError(f"`index` must be one of {get_args(IndexKind)}, got {index!r}.")
    if metric not in get_args(Metric):
        raise ValueError(f"`metric` must be one of {get_args(Metric)}, got {metric!r}.")
    if np.isnan(min_similarity):
        raise ValueError(f"`min_similarity` must be a number, got {min_similarity!r}.")
    if metric == "squared_l2" and min_similarity > -np.inf:
        raise ValueError(f"`min_similarity` must be left out for squared distances, got {min_similarity!r}.")
    if not 0 <= min_recall <= 1:
        raise ValueError(f"`min_recall` must be in [0, 1], got {min_recall!r}.")
    if (index == "disk") != (folder is not None):
        raise ValueError(f"`folder` must be given for index 'disk' and for no other, got {folder!r} and {index!r}.")


def _half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 4 << 30


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
