"""Which window belongs to which source, and how many targets it holds, in O(runs) memory.

Windows of one source come in runs (the windows of a document, of a file), so runs are kept and never an entry per
window: local number = place among the windows of the same source, in the order of ids.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._arrays import as_array

_CHUNK = 1 << 20

Int64 = NDArray[np.int64]


class SourceMap:
    """Maps window ids to (source, local number) and back.

    Args:
        names: one name per source.
        scan: gives, each time it is called, consecutive pieces of two arrays over all windows: index of the source,
            number of valid targets.

    Cost:
        20 bytes per run of equal sources, 16 per window that holds fewer targets than its source's largest.
    """

    def __init__(self, names: Sequence[Any], scan: Callable[[], Iterator[tuple[Int64, Int64]]]) -> None:
        self.names = list(names)
        self.largest = np.zeros(len(self.names), np.int64)  # targets of a full window, per source
        starts, sources = [], []
        self.num_windows, last = 0, -1
        for source, targets in scan():
            np.maximum.at(self.largest, source, targets)
            changes = np.flatnonzero(np.concatenate([[last], source[:-1]]) != source)
            starts.append(self.num_windows + changes)
            sources.append(source[changes])
            self.num_windows += len(source)
            last = int(source[-1])
        self._run_starts = np.concatenate(starts)
        self._run_sources = np.concatenate(sources).astype(np.int32)
        self._number_runs()
        self._short = self._short_windows(scan)

    def _number_runs(self) -> None:
        lengths = np.diff(self._run_starts, append=self.num_windows)
        order = np.argsort(self._run_sources, kind="stable")
        ordered = self._run_sources[order]
        self._bounds = np.searchsorted(ordered, np.arange(len(self.names) + 1))
        self.counts = np.bincount(self._run_sources, weights=lengths, minlength=len(self.names)).astype(np.int64)
        before = np.cumsum(lengths[order]) - lengths[order]
        self._ordered_local = before - (np.cumsum(self.counts) - self.counts)[ordered]
        self._ordered_start = self._run_starts[order]
        self._run_local = np.empty_like(self._ordered_local)
        self._run_local[order] = self._ordered_local

    def _short_windows(self, scan: Callable[[], Iterator[tuple[Int64, Int64]]]) -> list[tuple[Int64, Int64]]:
        """Per source: local numbers of the windows that hold fewer targets than the largest, and how many fewer."""
        ids, missing, first = [], [], 0
        for source, targets in scan():
            short = np.flatnonzero(targets < self.largest[source])
            ids.append(first + short)
            missing.append(self.largest[source[short]] - targets[short])
            first += len(source)
        sources, local = self.locate(np.concatenate(ids))
        order = np.argsort(sources, kind="stable")
        bounds = np.searchsorted(sources[order], np.arange(len(self.names) + 1))
        fewer = np.concatenate(missing)
        return [(local[order[a:b]], fewer[order[a:b]]) for a, b in itertools.pairwise(bounds)]

    def locate(self, ids: Int64) -> tuple[NDArray[np.int32], Int64]:
        """Source and local number of each id."""
        run = np.searchsorted(self._run_starts, ids, side="right") - 1
        return self._run_sources[run], self._run_local[run] + ids - self._run_starts[run]

    def ids(self, source: int, local: Int64) -> Int64:
        """Window ids of local numbers of one source."""
        runs = slice(self._bounds[source], self._bounds[source + 1])
        run = np.searchsorted(self._ordered_local[runs], local, side="right") - 1
        ids: Int64 = self._ordered_start[runs][run] + local - self._ordered_local[runs][run]
        return ids

    def gather(self, source: int, values: NDArray[Any]) -> NDArray[Any]:
        """The part of `values`, `[N]`, that belongs to `source`, in local order."""
        part = np.empty(self.counts[source], values.dtype)
        for start in range(0, len(part), _CHUNK):
            local = np.arange(start, min(start + _CHUNK, len(part)))
            part[local] = values[self.ids(source, local)]
        return part

    def scatter(self, source: int, part: NDArray[Any], out: NDArray[Any]) -> None:
        """Counterpart of `gather`: write `part` to its places in `out`."""
        for start in range(0, len(part), _CHUNK):
            local = np.arange(start, min(start + _CHUNK, len(part)))
            out[self.ids(source, local)] = part[local]

    def missing_targets(self, source: int, weights: NDArray[np.float32]) -> float:
        """Σ weight · targets that the window holds fewer than the largest of `source`; weights in local order."""
        local, fewer = self._short[source]
        return float((weights[local].astype(np.float64) * fewer).sum())

    def fewer_targets(self, source: int, local: Int64) -> Int64:
        """How many targets fewer than the largest of `source` its windows `local` hold."""
        short, fewer = self._short[source]
        if not len(short):
            return np.zeros(len(local), np.int64)
        place = np.minimum(np.searchsorted(short, local), len(short) - 1)
        return np.where(short[place] == local, fewer[place], 0)


def source_map(dataset: Any, num_windows: int, sources: Any = None) -> SourceMap:
    """The map of a dataset that knows its sources, or of one source per window.

    Args:
        dataset: with `sources(ids)`, `source_names` (or `store.source_names`) and, where windows differ in length,
            `valid_targets(ids)`; anything where `sources` is given.
        num_windows: N.
        sources: `[N]` integers or strings, the source of each window, which are names at the same time.

    Raises:
        TypeError: if neither says what the sources are.
        ValueError: if `sources` is of another length.
    """
    if sources is not None:
        array = as_array("sources", sources)
        if len(array) != num_windows:
            raise ValueError(f"`sources` must have length {num_windows}, got {len(array)}. Give one per window.")
        if array.dtype.kind not in "iuUSO":
            raise TypeError(f"`sources` must be integers or strings, got dtype {array.dtype}.")
        try:
            unique, index = np.unique(array, return_inverse=True)
        except TypeError:
            kinds = sorted({type(name).__name__ for name in array.tolist()})
            raise TypeError(f"`sources` must be integers or strings throughout, got {', '.join(kinds)}.") from None
        names = unique.tolist()

        def read(ids: Int64) -> Int64:
            return index[ids].astype(np.int64)

    elif hasattr(dataset, "sources") and (hasattr(dataset, "source_names") or hasattr(dataset, "store")):
        names = list(dataset.source_names if hasattr(dataset, "source_names") else dataset.store.source_names)

        def read(ids: Int64) -> Int64:
            return np.asarray(dataset.sources(ids), np.int64)

    else:
        raise TypeError(
            f"`source_shares` needs the source of each window, which {type(dataset).__name__} does not tell. "
            "Build the sampler on a WindowDataset, or give `sources`, one per window."
        )

    def scan() -> Iterator[tuple[Int64, Int64]]:
        for start in range(0, num_windows, _CHUNK):
            ids = np.arange(start, min(start + _CHUNK, num_windows))
            targets = dataset.valid_targets(ids) if hasattr(dataset, "valid_targets") else np.ones(len(ids), np.int64)
            yield read(ids), np.asarray(targets, np.int64)

    return SourceMap(names, scan)
