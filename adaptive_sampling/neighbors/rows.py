"""Features as a search sees them: checked, without what all rows share, of unit length where asked for, in blocks.

Differences are taken in float64: of features around 10⁴ a float32 keeps three digits behind the point, of their squares
none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import keyed_generator
from adaptive_sampling.neighbors._checks import feature_matrix

Float32 = NDArray[np.float32]
_BLOCK_BYTES = 1 << 25
_SAMPLE = 2048
# Rows this near, as a share of how far apart rows are, count as one when the centre is taken.
_ONE_PLACE = 0.3
_FAR = 0.95
_LARGEST = {True: 1e300, False: 1e36}
"""Square of a row's length that can still be compared: in float64 where rows become unit vectors, else in float32."""
_SMALLEST = 1e-30
"""Of the longest row, where rows do not become unit vectors: below it, squares of differences are lost in float32."""


class Rows:
    """Rows of a feature matrix, made ready block by block.

    Args:
        name: how errors call the matrix.
        features: real `[N, dim]`, any layout; a memory map is read in blocks.
        centre: float64 `[dim]`, subtracted; None: nothing is.
        unit: scale rows to unit length afterwards; rows of zeros stay zeros.
        keep: hold all rows in memory, float32.

    Raises:
        TypeError: if the values are no real numbers.
        ValueError: on a wrong shape, rows that are not finite, or such whose squares are too large or too small for
            float32; the message names the rows.
    """

    def __init__(
        self,
        name: str,
        features: Any,
        *,
        centre: NDArray[np.float64] | None = None,
        unit: bool = True,
        keep: bool = True,
    ) -> None:
        self.name = name
        self._source = feature_matrix(name, features)
        self.centre = centre
        self.unit = unit
        self.kept: Float32 | None = None
        kept = np.empty(self._source.shape, dtype=np.float32) if keep else None
        bad: list[NDArray[np.int64]] = []
        self._longest = 0.0
        for first, last in self.spans():
            rows = self._made(slice(first, last), bad, first)
            if kept is not None:
                kept[first:last] = rows
        if bad:
            self._refuse(np.concatenate(bad))
        if not unit and 0 < self._longest < _SMALLEST:
            self._refuse(np.arange(len(self)))
        self.kept = kept

    def _refuse(self, rows: NDArray[np.int64]) -> None:
        not_finite = rows[~np.isfinite(np.asarray(self._source[rows], np.float64)).all(axis=1)]
        if len(not_finite):
            raise ValueError(
                f"`{self.name}` must be finite, got NaN or infinity in {len(not_finite)} rows, first "
                f"{not_finite[:5].tolist()}. Drop or repair these rows."
            )
        largest = np.abs(np.asarray(self._source[rows[:1024]], np.float64)).max()
        raise ValueError(
            f"`{self.name}` must be of a size whose squares can be told apart, got values up to "
            f"{largest:.3g} in {len(rows)} rows, first {rows[:5].tolist()}. Divide all "
            "features by their largest value."
        )

    def __len__(self) -> int:
        return len(self._source)

    @property
    def dim(self) -> int:
        """Columns."""
        return int(self._source.shape[1])

    def spans(self, rows_per_block: int | None = None) -> Iterator[tuple[int, int]]:
        """First row and the row behind the last of each block."""
        size = rows_per_block or max(1, _BLOCK_BYTES // (8 * self.dim))
        return ((first, min(first + size, len(self))) for first in range(0, len(self), size))

    def take(self, rows: slice | NDArray[np.int64]) -> Float32:
        """float32 `[rows, dim]`, C-contiguous; rows may be named by a slice or by their numbers."""
        if self.kept is not None:
            return self.kept[rows]
        return self._made(rows, None, 0)

    def all(self) -> Float32:
        """float32 `[N, dim]`, all rows."""
        return self.take(slice(0, len(self)))

    def _made(self, rows: slice | NDArray[np.int64], bad: list[NDArray[np.int64]] | None, first: int) -> Float32:
        wide = np.array(self._source[rows], dtype=np.float64, order="C")
        if self.centre is not None:
            wide -= self.centre
        # One sum per row finds what is not finite without a boolean array of the size of the features.
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("nd,nd->n", wide, wide)
        # Written so that NaN counts as too large.
        too_large = ~(squares <= _LARGEST[self.unit])
        if bad is not None and too_large.any():
            bad.append(np.flatnonzero(too_large) + first)
            return np.zeros(wide.shape, np.float32)
        if bad is not None:
            self._longest = max(self._longest, float(squares.max(initial=0.0)))
        if self.unit:
            wide /= np.sqrt(np.where(squares > 0, squares, 1.0))[:, None]
        return wide.astype(np.float32)


def common_part(features: NDArray[Any], *, seed: int = 0) -> NDArray[np.float64]:
    """What rows have in common, float64 `[dim]`: their mean, in which rows at one place count as one row.

    A plain mean moves towards whatever is copied most; subtracted, it would take away the very thing that makes copies
    alike. Two rows are at one place if their squared distance is below 0.3 of what 95 % of the rows are within, for
    both of them.

    Args:
        features: real `[N, dim]`, as `feature_matrix` gives it; rows that are not finite are left out.
        seed: key of the rows looked at, 2,048 at most.

    Cost:
        O(2048²·dim), whatever N.
    """
    chosen = np.arange(len(features))
    if len(features) > _SAMPLE:
        chosen = np.sort(keyed_generator(seed, "centre").choice(len(features), _SAMPLE, replace=False, shuffle=False))
    sample = np.asarray(features[chosen], dtype=np.float64)
    sample = sample[np.isfinite(sample).all(axis=1)]
    if len(sample) == 0:
        return np.zeros(features.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        mean = sample.mean(axis=0)
        sample -= mean
        squares = np.einsum("nd,nd->n", sample, sample)
    if not squares.max() <= _LARGEST[True]:
        return np.zeros(features.shape[1])  # `Rows` refuses them
    apart = np.maximum(squares[:, None] + squares - 2 * (sample @ sample.T), 0)
    np.fill_diagonal(apart, 0)
    reach = _ONE_PLACE * np.quantile(apart, _FAR, axis=1)
    # Equal rows may be found a rounding apart.
    same = apart <= np.minimum(reach[:, None], reach) + 1e-12 * squares.max()
    weights = 1.0 / np.count_nonzero(same, axis=1)
    return np.asarray(mean + weights @ sample / weights.sum())
