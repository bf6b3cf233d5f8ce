"""From which similarity on two rows are near-copies: where the data leaves a gap, near what is known to be good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

USUAL = 0.85
"""With hashed features 0.85 was good on text and 0.7 did harm; unrelated text is at 0.55, copies with 3 % of their
tokens changed are at 0.94."""
_LOWEST, _HIGHEST = 0.75, 0.97
_BINS = 200
_SMOOTHING = 0.015
_PULL = 0.5
_PULL_WIDTH = 0.15
_FEWEST = 200


@dataclass(frozen=True)
class SimilarityHistogram:
    """How similar rows are to their nearest neighbour, and the threshold on it.

    Attributes:
        edges: float64 `[bins + 1]`, of similarity.
        counts: int64 `[bins]`, rows whose nearest similarity is in the bin; what is below the first edge is in the
            first bin.
        threshold: similarity from which two rows are near-copies.
        estimated: whether it was read from the counts; else it was given, or rows were too few.
        without: rows that have no neighbour at all.
    """

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]
    threshold: float
    estimated: bool
    without: int


def read_threshold(nearest_similarity: NDArray[Any], given: float | None = None) -> SimilarityHistogram:
    """The histogram of nearest similarities and the least populated similarity near 0.85.

    Rows just at the threshold are those for which the decision is arbitrary. So it is put where smoothed counts (over
    their mean on [0, 1]) are lowest, with a pull of 0.5·((t − 0.85)/0.15)² towards 0.85, within [0.75, 0.97]. A gap
    between copies and the rest is found wherever it is; without a gap 0.85 remains.

    Args:
        nearest_similarity: real `[N]`, cosine; −inf for rows without any neighbour.
        given: a threshold that stands; None: estimate it. Fewer than 200 rows with a neighbour are too few: 0.85.

    Example:
        >>> similarities = np.concatenate([np.full(900, 0.5), np.full(900, 0.85), np.full(900, 0.88)])
        >>> round(read_threshold(similarities).threshold, 2)
        0.8
    """
    similarity = np.asarray(nearest_similarity, dtype=np.float64)
    there = similarity[similarity > -np.inf]
    edges = np.linspace(0.0, 1.0, _BINS + 1)
    counts = np.histogram(np.clip(there, 0.0, 1.0), edges)[0].astype(np.int64)
    threshold, estimated = USUAL, False
    if given is not None:
        threshold = given
    elif len(there) >= _FEWEST:
        threshold, estimated = _least_populated(edges, counts), True
    return SimilarityHistogram(edges, counts, threshold, estimated, len(similarity) - len(there))


def _least_populated(edges: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    middles = (edges[:-1] + edges[1:]) / 2
    candidates = edges[(edges >= _LOWEST - 1e-9) & (edges <= _HIGHEST + 1e-9)]
    kernel = np.exp(-0.5 * ((candidates[:, None] - middles) / _SMOOTHING) ** 2)
    # What lies beyond 1 is missing under the kernel; without this, 1 would look like a gap.
    smooth = (kernel @ counts) / kernel.sum(axis=1) / (counts.sum() / len(counts))
    return float(candidates[np.argmin(smooth + _PULL * ((candidates - USUAL) / _PULL_WIDTH) ** 2)])
