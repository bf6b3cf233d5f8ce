"""A feature vector per window from its tokens alone: no model, no download.

Tokens and pairs of neighbouring tokens are hashed into 512 buckets and counted. Square roots even out the variance of
counts, the inverse document frequency lowers what is everywhere, a Gaussian projection shortens the vector, and what
all windows share is subtracted, so that the inner product of two unit vectors is near 0 for unrelated windows and near
1 for near-copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import keyed_generator
from adaptive_sampling.neighbors._checks import positive_integer

NUM_BUCKETS = 512
_SHIFT = np.uint32(32 - 9)  # the top 9 bits of a 32-bit product
_TOKEN = np.uint32(0x9E3779B1)
_FIRST = np.uint32(0x85EBCA77)
_SECOND = np.uint32(0xC2B2AE3D)
_MIX = np.uint32(0x27D4EB2F)
# Below this many rows the common part is not known well enough to subtract it whole: of two near-copies alone, it would
# leave two opposite vectors.
_ROWS_FOR_CENTRE = 16


class ReadableWindows(Protocol):
    """What is needed of a dataset: its length, and a batch of rows by id."""

    def __len__(self) -> int:
        """Number of windows."""

    def read(self, ids: NDArray[np.int64]) -> Mapping[str, Any]:
        """`{"input_ids": int64 [B, W], "labels": int64 [B, W]}`; labels of −100 at the end of a row mark padding."""


def token_features(input_ids: Any, labels: Any = None) -> NDArray[np.float64]:
    """Square roots of the hashed token and token-pair counts of each row.

    Args:
        input_ids: integers `[B, W]`, tokens.
        labels: integers `[B, W]`; positions of a trailing run of −100 are padding and do not count. None: no padding.

    Returns:
        float64 `[B, 512]`; the squares of a row sum to 2·length − 1 (0 for a row that is all padding).

    Raises:
        ValueError: if the arrays are not two-dimensional or differ in shape.

    Example:
        >>> float((token_features([[3, 1, 4, 1]]) ** 2).sum().round(9))
        7.0
    """
    tokens = np.asarray(input_ids)
    if tokens.ndim != 2:
        raise ValueError(f"`input_ids` must have shape [rows, tokens], got {tokens.shape}.")
    rows, width = tokens.shape
    if tokens.size == 0:
        return np.zeros((rows, NUM_BUCKETS))
    lengths = None
    if labels is not None:
        real = np.asarray(labels) != -100
        if real.shape != tokens.shape:
            raise ValueError(f"`labels` must have the shape of `input_ids` {tokens.shape}, got {real.shape}.")
        if not real[:, -1].all():
            lengths = np.where(real.any(1), width - real[:, ::-1].argmax(1), 0)
    tokens = tokens.astype(np.uint32)
    singles = (tokens * _TOKEN) >> _SHIFT
    pairs = tokens[:, :-1] * _FIRST
    pairs += tokens[:, 1:] * _SECOND
    pairs ^= pairs >> np.uint32(15)
    pairs *= _MIX
    pairs >>= _SHIFT
    first_bucket = (np.arange(rows, dtype=np.int64) * NUM_BUCKETS)[:, None]
    counts = np.zeros(rows * NUM_BUCKETS, dtype=np.int64)
    for hashed, shorter in ((singles, 0), (pairs, 1)):
        buckets = first_bucket + hashed
        if lengths is not None:
            kept = buckets[np.arange(width - shorter) < lengths[:, None] - shorter]
        else:
            kept = buckets.ravel()
        counts += np.bincount(kept, minlength=rows * NUM_BUCKETS)
    return np.sqrt(counts).reshape(rows, NUM_BUCKETS)


class HashedFeaturizer:
    """Features of any dataset, in the terms of the dataset it was fitted to.

    Held-out windows are comparable with training windows only if document frequencies, centre and projection are those
    of the training windows: fit on these, transform both.

    Args:
        dim: length of a feature vector.
        seed: key of the projection.
        batch_size: windows read at a time.

    Raises:
        ValueError: if `dim` or `batch_size` is no positive integer.

    Determinism:
        A function of dataset and arguments; `batch_size` may change the last bit of a float32.

    Cost:
        `fit` and `transform` each read every window once; memory is one batch.
    """

    def __init__(self, dim: int = 64, *, seed: int = 0, batch_size: int = 256) -> None:
        self.dim = positive_integer("dim", dim)
        self.seed = seed
        self.batch_size = positive_integer("batch_size", batch_size)
        self._centre: NDArray[np.float64] | None = None
        self._projection: NDArray[np.float64] | None = None

    def fit(self, dataset: ReadableWindows) -> HashedFeaturizer:
        """Learn how often each bucket is hit and what all windows have in common; returns itself."""
        num_windows = len(dataset)
        hits = np.zeros(NUM_BUCKETS, dtype=np.int64)
        total = np.zeros(NUM_BUCKETS)
        for _, rows in self._batches(dataset):
            hits += np.count_nonzero(rows, axis=0)
            total += rows.sum(axis=0)
        frequency = np.log((1 + num_windows) / (1 + hits)) + 1
        gaussian = keyed_generator(self.seed, "hashed features", self.dim).standard_normal((NUM_BUCKETS, self.dim))
        self._projection = frequency[:, None] * gaussian
        self._centre = total / (num_windows + _ROWS_FOR_CENTRE)
        return self

    def transform(self, dataset: ReadableWindows) -> NDArray[np.float32]:
        """Features of `dataset`.

        Returns:
            float32 `[N, dim]`, rows of unit length; a row of zeros where a window holds no token.

        Raises:
            RuntimeError: before `fit`.
        """
        if self._centre is None or self._projection is None:
            raise RuntimeError("a HashedFeaturizer must be fitted before `transform`. Call fit(dataset) first.")
        features = np.empty((len(dataset), self.dim), dtype=np.float32)
        for first, rows in self._batches(dataset):
            vectors = (rows - self._centre) @ self._projection
            empty = ~rows.any(axis=1)
            vectors[empty] = 0
            norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
            features[first : first + len(rows)] = vectors / np.where(norms > 0, norms, 1)[:, None]
        return features

    def _batches(self, dataset: ReadableWindows) -> Iterator[tuple[int, NDArray[np.float64]]]:
        num_windows = len(dataset)
        for first in range(0, num_windows, self.batch_size):
            ids = np.arange(first, min(first + self.batch_size, num_windows), dtype=np.int64)
            batch = dataset.read(ids)
            yield first, token_features(batch["input_ids"], batch["labels"])


def hashed_features(
    dataset: ReadableWindows, dim: int = 64, *, seed: int = 0, batch_size: int = 256
) -> NDArray[np.float32]:
    """Feature vectors of all windows of `dataset`, from hashed counts of their tokens and token pairs.

    Inner products of rows are near 1 for near-copies and near 0 for unrelated windows.

    Args:
        dataset: anything with `len()` and `read(ids)`, see `ReadableWindows`.
        dim: length of a feature vector.
        seed: key of the projection.
        batch_size: windows read at a time.

    Returns:
        float32 `[N, dim]`, rows of unit length; a row of zeros where a window holds no token.

    Raises:
        ValueError: if `dim` or `batch_size` is no positive integer.

    Cost:
        Two readings of the dataset, O(N·W) time; memory beyond the result is one batch.
    """
    featurizer = HashedFeaturizer(dim, seed=seed, batch_size=batch_size)
    return featurizer.fit(dataset).transform(dataset)
