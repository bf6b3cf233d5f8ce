"""Draws and losses since the last log, by source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_SOURCES = 32
_UNNAMED = "all"


class ObservedSources:
    """Counts, for each source, the windows that updates took in and sums their losses.

    Args:
        sources: integers `[N]`, source of each window; None, or more than 32 of them: all windows are one source.
        names: of the sources.
    """

    def __init__(self, sources: Any, names: list[str] | None) -> None:
        self._source: NDArray[np.int64] | None = None if sources is None else np.asarray(sources, np.int64)
        count = 1 if self._source is None else int(self._source.max(initial=0)) + 1
        if count > _MOST_SOURCES:
            self._source, count = None, 1
        if self._source is None:
            self.names = [_UNNAMED]
        else:
            given = names is not None and len(names) >= count
            self.names = list(names) if given and names is not None else [str(i) for i in range(count)]
        self._restart()

    def _restart(self) -> None:
        self._draws = np.zeros(len(self.names))
        self._losses, self._finite = np.zeros(len(self.names)), np.zeros(len(self.names))

    def observe(self, ids: NDArray[np.int64], values: Mapping[str, NDArray[np.float32]]) -> None:
        """Windows of all ranks that an update takes in."""
        sources = np.zeros(len(ids), np.int64) if self._source is None else self._source[ids]
        self._draws += np.bincount(sources, minlength=len(self.names))
        losses = values.get("loss")
        if losses is not None:
            finite = np.isfinite(losses)
            self._finite += np.bincount(sources[finite], minlength=len(self.names))
            self._losses += np.bincount(sources[finite], losses[finite].astype(np.float64), minlength=len(self.names))

    def take(self) -> dict[str, float]:
        """Share of the draws and mean loss of each source since the last call; NaN where there were none."""
        total = self._draws.sum()
        numbers = {}
        for name, draws, losses, finite in zip(self.names, self._draws, self._losses, self._finite, strict=True):
            numbers[f"share_drawn/{name}"] = float(draws / total) if total else float("nan")
            numbers[f"mean_loss/{name}"] = float(losses / finite) if finite else float("nan")
        self._restart()
        return numbers


def sources_of(dataset: Any) -> ObservedSources:
    """Sources as a dataset tells them: `sources()` and, where it has a token store, their names."""
    tell = getattr(dataset, "sources", None)
    if not callable(tell):
        return ObservedSources(None, None)
    names = getattr(getattr(dataset, "store", None), "source_names", getattr(dataset, "source_names", None))
    return ObservedSources(tell(), None if names is None else [str(name) for name in names])
