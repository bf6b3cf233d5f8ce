"""Kinds of search over prepared rows: each finds candidates, and each can be told to look deeper.

| kind | finds | memory beside the rows | when "auto" takes it |
|---|---|---|---|
| exact | all | none | up to 40,000 rows among each other, or as many pairs |
| ivf | the rows in the nearest cells of a k-means partition | the rows once more | what fits in memory |
| hnsw | along a graph of near rows | the rows once more, 136 bytes each | over 512 columns, up to 100,000 rows |
| ivfpq | as ivf, of codes of dim/4 bytes; then compared as they are | dim/4 + 8 bytes a row | what else would not fit |
| disk | as ivf, cells on disk, filled shard by shard | one shard | never: it needs a `folder` |

Where the wanted recall needs so many cells that comparing all rows is faster, "auto" compares all rows after all.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import keyed_generator, stable_hash
from adaptive_sampling.neighbors._faiss import safe_threads
from adaptive_sampling.neighbors.rows import Float32, Rows

IndexKind = Literal["auto", "exact", "ivf", "hnsw", "ivfpq", "disk"]
Metric = Literal["cosine", "inner_product", "squared_l2"]

EXACT_UP_TO = 40_000
"""All of 33,269 × 64 hashed rows among each other: 9 s of processor time; an IVF of the wanted recall 12, HNSW 24."""
_HNSW_FROM_DIM = 512
_HNSW_UP_TO = 100_000
_ROWS_PER_CELL = 39  # Faiss trains its cells on at least so many rows each
_ITERATIONS = 10
_PROBED_CELLS = 8
# Row by row, cells take some 6.6 times as long as a comparison with all rows at once (98,721 rows of 64 on two cores).
_DEAREST_SHARE = 0.15
_HNSW_LINKS = 16
_PQ_BITS = 8
_PQ_DIMS_PER_CODE = 4
_MOST_COMPARED = 256


class Searcher(Protocol):
    """One index over all rows.

    Attributes:
        kind: what it is, in the words of `IndexKind`.
        exact: whether it finds all.
        effort: how deep it looks, in words.
    """

    kind: str
    exact: bool

    @property
    def effort(self) -> str:
        """How deep it looks, for people."""

    def search(self, queries: Float32, count: int) -> tuple[Float32, NDArray[np.int64]]:
        """Values and ids `[Q, count]` of the nearest rows, nearest first; −1 where none was found."""

    def deepen(self) -> bool:
        """Look twice as deep from now on; False if it already looks everywhere."""


class Exact:
    """Every query against every row, in blocks; no index and no copy of the rows."""

    kind, exact, effort = "exact", True, "all rows"

    def __init__(self, rows: Rows, metric: Metric) -> None:
        self._rows = rows
        self._metric = metric

    def search(self, queries: Float32, count: int) -> tuple[Float32, NDArray[np.int64]]:
        """As `Searcher.search`; of equal rows the first ones, where blocks meet."""
        sign = -1 if self._metric == "squared_l2" else 1
        values = np.full((len(queries), 0), -np.inf, dtype=np.float32)
        ids = np.empty((len(queries), 0), dtype=np.int64)
        whole = self._rows.kept is not None
        for first, last in self._rows.spans(max(1, len(self._rows)) if whole else None):
            more, found = _knn(queries, self._rows.take(slice(first, last)), min(count, last - first), self._metric)
            values = np.concatenate([values, sign * more], axis=1)
            ids = np.concatenate([ids, np.where(found >= 0, found + first, -1)], axis=1)
            if ids.shape[1] > count:
                order = np.argsort(-values, axis=1, kind="stable")[:, :count]
                values, ids = np.take_along_axis(values, order, 1), np.take_along_axis(ids, order, 1)
        missing = count - ids.shape[1]
        if missing > 0:
            ids = np.pad(ids, ((0, 0), (0, missing)), constant_values=-1)
            values = np.pad(values, ((0, 0), (0, missing)), constant_values=-np.inf)
        return sign * values, ids

    def deepen(self) -> bool:
        """There is nothing deeper."""
        return False


def _knn(queries: Float32, base: Float32, count: int, metric: Metric) -> tuple[Float32, NDArray[np.int64]]:
    with safe_threads() as faiss:
        kind = faiss.METRIC_L2 if metric == "squared_l2" else faiss.METRIC_INNER_PRODUCT
        if getattr(faiss, "get_num_gpus", int)() > 0:
            resources = faiss.StandardGpuResources()
            values, ids = faiss.knn_gpu(resources, queries, np.ascontiguousarray(base), count, metric=kind)
        else:
            values, ids = faiss.knn(queries, base, count, metric=kind)
    return np.asarray(values, np.float32), np.asarray(ids, np.int64)


class Indexed:
    """A Faiss index that looks at a part of the rows."""

    exact = False

    def __init__(self, kind: str, index: Any, knob: str, depth: int, most: int, folder: Path | None = None) -> None:
        self.kind = kind
        self._index = index
        self._knob = knob
        self._most = most
        self._owner = getattr(index, "hnsw", index)
        self._folder = folder
        self._set(min(depth, most))

    def _set(self, depth: int) -> None:
        self._depth = depth
        setattr(self._owner, self._knob, depth)

    @property
    def effort(self) -> str:
        """How deep it looks."""
        return f"{self._knob} {self._depth} of {self._most}"

    def search(self, queries: Float32, count: int) -> tuple[Float32, NDArray[np.int64]]:
        """As `Searcher.search`."""
        with safe_threads():
            values, ids = self._index.search(queries, count)
        return np.asarray(values, np.float32), np.asarray(ids, np.int64)

    def deepen(self) -> bool:
        """Twice the cells, or twice the candidates along the graph."""
        if self._depth >= self._most:
            return False
        self._set(min(2 * self._depth, self._most))
        return True

    @property
    def deeper_is_dearer_than_exact(self) -> bool:
        """Would twice as deep a search take longer than to compare all rows?"""
        return self.kind == "ivf" and 2 * self._depth > _DEAREST_SHARE * self._most


class Coded:
    """An index of short codes: many candidates are fetched and compared as they are."""

    exact = False

    def __init__(self, cells: Indexed, rows: Rows, metric: Metric) -> None:
        self.kind = "ivfpq"
        self._cells = cells
        self._rows = rows
        self._metric = metric
        self._factor = 4

    @property
    def effort(self) -> str:
        """How deep it looks, and how many candidates are compared for each neighbour."""
        return f"{self._cells.effort}, {self._factor} candidates each"

    def search(self, queries: Float32, count: int) -> tuple[Float32, NDArray[np.int64]]:
        """As `Searcher.search`, with values of the rows themselves."""
        fetch = min(len(self._rows), self._factor * count)
        values = np.empty((len(queries), count), dtype=np.float32)
        ids = np.empty((len(queries), count), dtype=np.int64)
        block = max(1, (1 << 24) // (fetch * self._rows.dim))
        for first in range(0, len(queries), block):
            part = slice(first, first + block)
            found = self._cells.search(queries[part], fetch)[1]
            exact = compared(queries[part], self._rows, found, self._metric)
            worst = np.inf if self._metric == "squared_l2" else -np.inf
            exact = np.where(found >= 0, exact, np.float32(worst))
            order = np.argsort(exact if worst > 0 else -exact, axis=1, kind="stable")[:, :count]
            values[part] = np.take_along_axis(exact, order, 1)
            ids[part] = np.take_along_axis(found, order, 1)
        return values, ids

    def deepen(self) -> bool:
        """Twice the cells and twice the candidates."""
        deeper = self._cells.deepen()
        if self._factor < _MOST_COMPARED:
            self._factor *= 2
            deeper = True
        return deeper


def compared(queries: Float32, rows: Rows, ids: NDArray[np.int64], metric: Metric) -> Float32:
    """Values between each query and the rows `ids` `[Q, k]`, float32 `[Q, k]`; of no meaning where an id is −1."""
    near = rows.take(ids.ravel()).reshape(*ids.shape, rows.dim)
    if metric == "squared_l2":
        near = near - queries[:, None]
        return np.asarray(np.einsum("qkd,qkd->qk", near, near))
    return np.asarray(np.matmul(near, queries[:, :, None])[:, :, 0])


def choose_kind(num_rows: int, num_queries: int, dim: int, memory_limit: int) -> IndexKind:
    """The kind that "auto" stands for; see the table above.

    Args:
        num_rows: N.
        num_queries: Q; few of them are compared with all rows sooner than an index is built.
        dim: columns.
        memory_limit: bytes.
    """
    if num_rows * num_queries <= EXACT_UP_TO**2:
        return "exact"
    if 2 * 4 * num_rows * dim > memory_limit:
        return "ivfpq"
    return "hnsw" if dim > _HNSW_FROM_DIM and num_rows <= _HNSW_UP_TO else "ivf"


def build(
    rows: Rows, kind: IndexKind, metric: Metric, *, seed: int, memory_limit: int, folder: Path | None
) -> Searcher:
    """An index of `kind` over all rows; exact search instead where there are too few rows to train on.

    Args:
        rows: what is searched.
        kind: not "auto".
        metric: what is compared.
        seed: key of what is trained on.
        memory_limit: bytes; shards of "disk" take a quarter of it.
        folder: for "disk": an existing folder.

    Determinism:
        A graph is built by one thread, since with several it depends on which is faster.
    """
    count = len(rows)
    cells = min(int(4 * math.sqrt(count)), count // _ROWS_PER_CELL)
    if kind == "exact" or (kind == "hnsw" and count < 1000) or (kind != "hnsw" and cells < 2):
        return Exact(rows, metric)
    if kind == "hnsw":
        return _graph(rows, metric)
    if kind == "ivfpq" and count < _ROWS_PER_CELL << _PQ_BITS:
        return Exact(rows, metric)
    trained = _train_cells(rows, cells, metric, seed, codes=kind == "ivfpq")
    if kind == "disk":
        from adaptive_sampling.neighbors.shards import fill_on_disk

        assert folder is not None
        trained = fill_on_disk(trained, rows, folder, rows_per_shard=max(1, memory_limit // (16 * rows.dim)))
    else:
        with safe_threads():
            for first, last in rows.spans():
                trained.add(rows.take(slice(first, last)))
    index = Indexed(kind, trained, "nprobe", _PROBED_CELLS, cells)
    return Coded(index, rows, metric) if kind == "ivfpq" else index


def _graph(rows: Rows, metric: Metric) -> Indexed:
    with safe_threads(1) as faiss:
        graph = faiss.IndexHNSWFlat(rows.dim, _HNSW_LINKS, _faiss_metric(faiss, metric))
        graph.hnsw.efConstruction = 40
        for first, last in rows.spans():
            graph.add(rows.take(slice(first, last)))
    return Indexed("hnsw", graph, "efSearch", 32, len(rows))


def _train_cells(rows: Rows, cells: int, metric: Metric, seed: int, *, codes: bool) -> Any:
    with safe_threads() as faiss:
        kind = _faiss_metric(faiss, metric)
        centres = faiss.IndexFlatL2(rows.dim) if metric == "squared_l2" else faiss.IndexFlatIP(rows.dim)
        if codes:
            parts = _divisor(rows.dim, max(1, rows.dim // _PQ_DIMS_PER_CODE))
            index = faiss.IndexIVFPQ(centres, rows.dim, cells, parts, _PQ_BITS, kind)
            index.pq.cp.seed = stable_hash(seed, "codes") % (1 << 31)
        else:
            index = faiss.IndexIVFFlat(centres, rows.dim, cells, kind)
        index.cp.seed = stable_hash(seed, "cells") % (1 << 31)
        index.cp.spherical = metric != "squared_l2"
        index.cp.niter = _ITERATIONS
        num_train = min(len(rows), max(_ROWS_PER_CELL * cells, _ROWS_PER_CELL << _PQ_BITS if codes else 0))
        chosen = keyed_generator(seed, "cell training").choice(len(rows), num_train, replace=False, shuffle=False)
        index.train(rows.take(np.sort(chosen)))
        # Faiss does not keep Python's objects alive: the index must own its quantizer.
        centres.this.disown()
        index.own_fields = True
    return index


def _faiss_metric(faiss: Any, metric: Metric) -> Any:
    return faiss.METRIC_L2 if metric == "squared_l2" else faiss.METRIC_INNER_PRODUCT


def _divisor(number: int, most: int) -> int:
    return next(part for part in range(most, 0, -1) if number % part == 0)
