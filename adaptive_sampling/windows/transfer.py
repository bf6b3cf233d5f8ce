"""Weights of one set of windows to another over the same text."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._arrays import as_array
from adaptive_sampling.windows.dataset import WindowDataset

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
_CHUNK_WINDOWS = 1 << 18


def transfer_weights(old: WindowDataset, new: WindowDataset, weights: Any) -> Float64:
    """Weights for the windows of `new` from those of `old`, by overlap of the tokens that are targets.

    A new window gets the mean of the old windows' weights, each weighed by the targets that the two have in common. One
    that has none in common with any gets the mean of all old weights. Where all that it has in common is of weight 0,
    it is 0, so that what was excluded stays out.

    Args:
        old: The windows that have weights.
        new: Those that are to have some, over the same store.
        weights: Real [len(old)], finite and not negative.

    Returns:
        float64 [len(new)].

    Raises:
        TypeError: for other datasets, or weights that are no real numbers.
        ValueError: for weights of another length or sign, or datasets over different text or whose text moves.

    Cost: O((N + M) log N) time, 40 bytes per old window of memory.
    """
    for name, dataset in (("old", old), ("new", new)):
        if not isinstance(dataset, WindowDataset):
            raise TypeError(
                f"`{name}` must be a WindowDataset, got {dataset!r}. Token ranges are known of these alone."
            )
        if dataset.adaptive_weights_error is not None:
            raise ValueError(dataset.adaptive_weights_error)
    _check_same_text(old, new)
    given = as_array("weights", weights)
    if len(given) != len(old):
        raise ValueError(
            f"`weights` must have one entry per old window, {len(old)}, got {len(given)}. Give all of them."
        )
    if len(given) and given.dtype.kind not in "fiu":
        raise TypeError(f"`weights` must be real numbers, got dtype {given.dtype}. Convert to float64.")
    values = given.astype(np.float64)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(
            f"`weights` must be finite and not negative, got {values[first]} at position {first}. Clean them first."
        )
    mean = float(values.mean()) if len(values) else 1.0
    rows, starts, ends = _spans(old)
    # Around their mean, sums stay small and equal weights come out exactly equal.
    above = _Overlaps(starts, ends, values[rows] - mean)
    counts = _Overlaps(starts, ends, np.ones(len(rows), np.int64))
    positive = _Overlaps(starts, ends, (values[rows] > 0).astype(np.int64))
    moved = np.full(len(new), mean)
    for first in range(0, len(new), _CHUNK_WINDOWS):
        ids = np.arange(first, min(first + _CHUNK_WINDOWS, len(new)))
        at, span_starts, span_ends = new.target_spans(ids)
        common, of_positive = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
        total = np.zeros(len(ids))
        np.add.at(common, at, counts.within(span_starts, span_ends))
        np.add.at(of_positive, at, positive.within(span_starts, span_ends))
        np.add.at(total, at, above.within(span_starts, span_ends))
        some = common > 0
        moved[ids[some]] = np.maximum(mean + total[some] / common[some], 0.0)
        moved[ids[some & (of_positive == 0)]] = 0.0
    return moved


class _Overlaps:
    """Sums over intervals of value times length of what lies in a range.

    The sum up to x is that of value·(x − start) over the intervals begun before x, less that of value·(x − end) over
    those ended before; with integers it is exact, since what overflows comes back in the difference.
    """

    def __init__(self, starts: Int64, ends: Int64, values: NDArray[Any]) -> None:
        self._parts = []
        for borders in (starts, ends):
            order = np.argsort(borders, kind="stable")
            borders, own = borders[order], values[order]
            zero = np.zeros(1, values.dtype)
            self._parts.append((borders, np.append(zero, np.cumsum(own)), np.append(zero, np.cumsum(own * borders))))

    def within(self, starts: Int64, ends: Int64) -> NDArray[Any]:
        """The sum for each range."""
        sums: NDArray[Any] = self._up_to(ends) - self._up_to(starts)
        return sums

    def _up_to(self, positions: Int64) -> NDArray[Any]:
        sums: list[NDArray[Any]] = []
        for borders, values, moments in self._parts:
            count = np.searchsorted(borders, positions, side="left")
            sums.append(values[count] * positions - moments[count])
        begun, ended = sums
        result: NDArray[Any] = begun - ended
        return result


def _spans(dataset: WindowDataset) -> tuple[Int64, Int64, Int64]:
    parts = []
    for first in range(0, max(len(dataset), 1), _CHUNK_WINDOWS):
        ids = np.arange(first, min(first + _CHUNK_WINDOWS, len(dataset)))
        rows, starts, ends = dataset.target_spans(ids)
        parts.append((rows + first, starts, ends))
    rows, starts, ends = (np.concatenate(column) for column in zip(*parts, strict=True))
    return rows, starts, ends


def _check_same_text(old: WindowDataset, new: WindowDataset) -> None:
    one, other = old.store, new.store
    if one.path == other.path:
        return
    if not (
        np.array_equal(one.document_ends, other.document_ends)
        and np.array_equal(one.document_keys, other.document_keys)
    ):
        raise ValueError(
            f"`new` must be over the text of `old`, {str(one.path)!r} of {one.num_tokens} tokens, got "
            f"{str(other.path)!r} of {other.num_tokens}. Make both datasets from one store."
        )
