"""Histograms that no value can break: 64 bins, computed once, whatever the logger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BINS = 64
_LARGEST = 1e19  # beyond it, squares and widths of bins leave what loggers can hold


@dataclass(frozen=True)
class Histogram:
    """Attributes:
    counts: int64 `[64]`.
    edges: float64 `[65]`.
    values: float64 `[k]`, the finite values themselves, clamped to ±1e19.
    """

    counts: NDArray[np.int64]
    edges: NDArray[np.float64]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, values: Any) -> Histogram | None:
        """The histogram of what is finite in `values`, `[N]`; None if nothing is."""
        array = np.asarray(values, np.float64).reshape(-1)
        array = np.clip(array[np.isfinite(array)], -_LARGEST, _LARGEST)
        if not len(array):
            return None
        low, high = float(array.min()), float(array.max())
        # Equal values still need a bin with a width to be seen, one that floats around them can tell.
        width = max(high - low, 1e-6, abs(low) * 1e-6)
        counts, edges = np.histogram(array, bins=_BINS, range=(low, low + width))
        return cls(counts.astype(np.int64), edges, array)

    def raw(self) -> dict[str, Any]:
        """Arguments of TensorBoard's `add_histogram_raw`."""
        return {
            "min": float(self.values.min()),
            "max": float(self.values.max()),
            "num": len(self.values),
            "sum": float(self.values.sum()),
            "sum_squares": float(np.square(self.values).sum()),
            "bucket_limits": self.edges[1:].tolist(),
            "bucket_counts": self.counts.tolist(),
        }

    def picture(self, title: str) -> str:
        """The bars as an SVG file of 640 × 240."""
        highest = max(int(self.counts.max()), 1)
        bars = "".join(
            f'<rect x="{20 + 600 * i / _BINS:.1f}" y="{210 - 180 * n / highest:.1f}" width="{580 / _BINS:.1f}" '
            f'height="{180 * n / highest:.1f}" fill="#4477aa"/>'
            for i, n in enumerate(self.counts.tolist())
        )
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" width="640" height="240" font-family="sans-serif" font-size="12">'
            f'<rect width="640" height="240" fill="white"/><text x="20" y="18">{title} (n = {len(self.values)}, '
            f"highest bar {highest})</text>{bars}"
            f'<text x="20" y="228">{self.edges[0]:.4g}</text>'
            f'<text x="620" y="228" text-anchor="end">{self.edges[-1]:.4g}</text></svg>\n'
        )
