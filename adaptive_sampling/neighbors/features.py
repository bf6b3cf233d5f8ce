"""A feature vector per window, or per document, from its tokens alone: no model, no download.

Tokens and pairs of neighbouring tokens are hashed into 512 buckets and counted. Square roots even out the variance of
counts, the inverse document frequency lowers what is everywhere, a Gaussian projection shortens the vector, and what
all rows have in common is subtracted, so that the inner product of two unit vectors is near 0 for unrelated rows and
near 1 for near-copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from adaptive_sampling._random import keyed_generator
from adaptive_sampling.neighbors._checks import integer_seed, positive_integer
from adaptive_sampling.neighbors.feature_file import Float32, Progress, fill_features
from adaptive_sampling.neighbors.rows import common_part

NUM_BUCKETS = 512
_SHIFT = np.uint32(32 - 9)  # the top 9 bits of a 32-bit product
_TOKEN = np.uint32(0x9E3779B1)
_FIRST = np.uint32(0x85EBCA77)
_SECOND = np.uint32(0xC2B2AE3D)
_MIX = np.uint32(0x27D4EB2F)
_FITTED_ROWS = 2048
# Below this many rows the common part is not known well enough to subtract it whole.
_ROWS_FOR_CENTRE = 16
_TOKENS_AT_A_TIME = 1 << 22


class ReadableWindows(Protocol):
    """What is needed of a dataset: its length, and a batch of rows by id."""

    def __len__(self) -> int:
        """Number of windows."""

    def read(self, ids: NDArray[np.int64]) -> Mapping[str, Any]:
        """`{"input_ids": int64 [B, W], "labels": int64 [B, W]}`; labels of −100 at the end of a row mark padding."""


class Documents:
    """Whole documents of a token stream, in the place of windows.

    Args:
        tokens: integers `[T]`: an array, a memory map, or what an integer array indexes as it does those.
        document_ends: integers `[D]`, ascending: the token behind each document's last.

    Raises:
        ValueError: if the ends do not ascend within the tokens.

    Example:
        >>> features = hashed_features(Documents([5, 6, 7, 0, 5, 6, 7, 0], [4, 8]))
        >>> round(float(features[0] @ features[1]), 3)
        1.0
    """

    def __init__(self, tokens: Any, document_ends: Any) -> None:
        # A sequence becomes an array; an array in pieces stays as it is, since one array of it would be a copy.
        self.tokens = tokens if isinstance(getattr(tokens, "dtype", None), np.dtype) else np.asarray(tokens)
        self.ends = np.asarray(document_ends, dtype=np.int64)
        self.starts = np.concatenate([np.zeros(1, np.int64), self.ends])[:-1]
        if (self.ends < self.starts).any() or self.ends.max(initial=0) > len(self.tokens):
            raise ValueError(f"`document_ends` must ascend to at most {len(self.tokens)} tokens, got others.")

    def __len__(self) -> int:
        return len(self.ends)

    def count_features(self, ids: NDArray[np.int64]) -> Float32:
        """As `token_features`, of documents of any length."""
        lengths = self.ends[ids] - self.starts[ids]
        row_ends = np.cumsum(lengths)
        shift = self.starts[ids] - (row_ends - lengths)
        counts = np.zeros(len(ids) * NUM_BUCKETS, dtype=np.int64)
        total = int(row_ends[-1]) if len(ids) else 0
        for first in range(0, total, _TOKENS_AT_A_TIME):
            last = min(first + _TOKENS_AT_A_TIME, total)
            place = np.arange(first, min(last + 1, total))  # one more, for the pair across the border
            row = np.searchsorted(row_ends, place, side="right")
            tokens = self.tokens[place + shift[row]].astype(np.uint32)
            singles, pairs = _hashed(tokens)
            at = row * NUM_BUCKETS
            counts += np.bincount((at + singles)[: last - first], minlength=len(counts))
            counts += np.bincount((at[:-1] + pairs)[row[1:] == row[:-1]], minlength=len(counts))
        return np.sqrt(counts.astype(np.float32)).reshape(len(ids), NUM_BUCKETS)


def token_features(input_ids: Any, labels: Any = None) -> Float32:
    """Square roots of the hashed token and token-pair counts of each row.

    Args:
        input_ids: integers `[B, W]`, tokens.
        labels: integers `[B, W]`; positions of a trailing run of −100 are padding and do not count. None: no padding.

    Returns:
        float32 `[B, 512]`; the squares of a row sum to 2·length − 1 (0 for a row that is all padding).

    Raises:
        ValueError: if the arrays are not two-dimensional or differ in shape.

    Example:
        >>> float((token_features([[3, 1, 4, 1]]) ** 2).sum().round(4))
        7.0
    """
    tokens = np.asarray(input_ids)
    if tokens.ndim != 2:
        raise ValueError(f"`input_ids` must have shape [rows, tokens], got {tokens.shape}.")
    rows, width = tokens.shape
    if tokens.size == 0:
        return np.zeros((rows, NUM_BUCKETS), dtype=np.float32)
    lengths = None
    if labels is not None:
        labels = np.asarray(labels)
        if labels.shape != tokens.shape:
            raise ValueError(f"`labels` must have the shape of `input_ids` {tokens.shape}, got {labels.shape}.")
        if (labels[:, -1] == -100).any():
            real = labels != -100
            lengths = np.where(real.any(1), width - real[:, ::-1].argmax(1), 0)
    buckets = np.empty((rows, 2 * width - 1), np.int64)
    singles, pairs = _hashed(tokens.astype(np.uint32))
    first_bucket = (np.arange(rows, dtype=np.int64) * NUM_BUCKETS)[:, None]
    np.add(first_bucket, singles, out=buckets[:, :width])
    np.add(first_bucket, pairs, out=buckets[:, width:])
    if lengths is not None:
        for part, shorter in ((buckets[:, :width], 0), (buckets[:, width:], 1)):
            # One bucket for all that is padding.
            np.putmask(part, np.arange(width - shorter) >= lengths[:, None] - shorter, rows * NUM_BUCKETS)
    counts = np.bincount(buckets.reshape(-1), minlength=rows * NUM_BUCKETS + 1)
    return np.sqrt(counts[:-1].astype(np.float32)).reshape(rows, NUM_BUCKETS)


def _hashed(tokens: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Bucket of each token, and of each pair of neighbours along the last axis."""
    singles = (tokens * _TOKEN) >> _SHIFT
    pairs = tokens[..., :-1] * _FIRST
    pairs += tokens[..., 1:] * _SECOND
    pairs ^= pairs >> np.uint32(15)
    pairs *= _MIX
    pairs >>= _SHIFT
    return singles, pairs


class HashedFeaturizer:
    """Features of any dataset, in the terms of the dataset it was fitted to.

    Held-out rows are comparable with training rows only if document frequencies, centre and projection are those of
    the training rows: fit on these, transform both.

    Args:
        dim: length of a feature vector.
        seed: key of the projection and of the rows looked at by `fit`.
        batch_size: rows read at a time.

    Raises:
        ValueError: if `dim` or `batch_size` is no positive integer.

    Determinism:
        A function of dataset and arguments; `batch_size` may change the last bit of a float32.

    Cost:
        `fit` reads 2,048 rows at most, `transform` reads every row once; memory is one batch.
    """

    def __init__(self, dim: int = 64, *, seed: int = 0, batch_size: int = 256) -> None:
        self.dim = positive_integer("dim", dim)
        self.seed = integer_seed(seed)
        self.batch_size = positive_integer("batch_size", batch_size)
        self._centre: NDArray[np.float64] | None = None
        self._projection: Float32 | None = None

    def fit(self, dataset: ReadableWindows | Documents) -> HashedFeaturizer:
        """Learn how often each bucket is hit and what rows have in common; returns itself.

        Raises:
            TypeError: if `dataset` cannot be read by ids, or `seed` is no integer.
        """
        _check_readable(dataset)
        num_rows = len(dataset)
        chosen = np.arange(num_rows)
        if num_rows > _FITTED_ROWS:
            generator = keyed_generator(self.seed, "hashed features of")
            chosen = np.sort(generator.choice(num_rows, _FITTED_ROWS, replace=False, shuffle=False))
        parts = [
            _unit(_counts(dataset, chosen[first : first + self.batch_size]))
            for first in range(0, len(chosen), self.batch_size)
        ]
        rows = np.concatenate([np.empty((0, NUM_BUCKETS)), *parts], dtype=np.float64)
        rows = rows[rows.any(axis=1)]
        frequency = np.log((1 + len(rows)) / (1 + np.count_nonzero(rows, axis=0))) + 1
        gaussian = keyed_generator(self.seed, "hashed features", self.dim).standard_normal((NUM_BUCKETS, self.dim))
        self._projection = (frequency[:, None] * gaussian).astype(np.float32)
        # Of a single place nothing is known to be common to all: subtracted, it would leave nothing.
        centre = common_part(rows * frequency, seed=self.seed) / frequency
        centre = centre * (len(rows) / (len(rows) + _ROWS_FOR_CENTRE))
        self._centre = centre if len(rows) and (np.abs(rows - centre).max() > 1e-6) else np.zeros(NUM_BUCKETS)
        return self

    def transform(
        self,
        dataset: ReadableWindows | Documents,
        *,
        out: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Float32:
        """Features of `dataset`.

        Args:
            dataset: windows or documents.
            out: `.npy` file to write; it goes on where it was interrupted, see `fill_features`.
            progress: called with ("features", rows done, N).

        Returns:
            float32 `[N, dim]`, rows of unit length; a row of zeros where a row holds no token.

        Raises:
            RuntimeError: before `fit`.
            TypeError: if `dataset` cannot be read by ids, or `seed` is no integer.
        """
        _check_readable(dataset)
        if self._centre is None or self._projection is None:
            raise RuntimeError("a HashedFeaturizer must be fitted before `transform`. Call fit(dataset) first.")
        projection = self._projection
        centre = (self._centre @ projection.astype(np.float64)).astype(np.float32)

        def compute(first: int, last: int) -> Float32:
            rows = _counts(dataset, np.arange(first, last, dtype=np.int64))
            norms = np.sqrt(np.einsum("nd,nd->n", rows, rows))[:, None]
            # Scaled and centred behind the projection, which is an eighth as wide.
            vectors = (rows @ projection) / np.where(norms > 0, norms, 1) - centre
            return np.asarray(_unit(np.where(norms > 0, vectors, 0)), dtype=np.float32)

        # The products are so small that threads would spend their time waiting for the next one.
        with threadpool_limits(limits=1, user_api="blas"):
            return fill_features(
                compute,
                len(dataset),
                self.dim,
                batch_size=self.batch_size,
                settings={"features": "hashed", "seed": self.seed},
                out=out,
                progress=progress,
            )


def _check_readable(dataset: Any) -> None:
    if isinstance(dataset, Documents) or (callable(getattr(dataset, "read", None)) and hasattr(dataset, "__len__")):
        return
    raise TypeError(
        "`dataset` must be a WindowDataset, or an object with len() and read(ids) -> {'input_ids': …, 'labels': …}, "
        f"got {type(dataset).__name__}. Give it a `read`, or make an array of features [N, dim] of your own and call "
        "ads.scarcity_scores(array)."
    )


def _counts(dataset: ReadableWindows | Documents, ids: NDArray[np.int64]) -> Float32:
    if isinstance(dataset, Documents):
        return dataset.count_features(ids)
    batch = dataset.read(ids)
    return token_features(batch["input_ids"], batch["labels"])


def _unit(rows: NDArray[Any]) -> NDArray[Any]:
    norms = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return rows / np.where(norms > 0, norms, 1)[:, None]


def hashed_features(
    dataset: ReadableWindows | Documents,
    dim: int = 64,
    *,
    seed: int = 0,
    batch_size: int = 256,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Float32:
    """Feature vectors of all windows (or `Documents`), from hashed counts of their tokens and token pairs.

    Inner products of rows are near 1 for near-copies and near 0 for unrelated rows.

    Args:
        dataset: anything with `len()` and `read(ids)`, see `ReadableWindows`, or `Documents`.
        dim: length of a feature vector.
        seed: key of the projection.
        batch_size: rows read at a time.
        out: `.npy` file to write; called again after an interruption, it goes on where it was.
        progress: called with ("features", rows done, N).

    Returns:
        float32 `[N, dim]`, rows of unit length; a row of zeros where a row holds no token. With `out`, a memory map.

    Raises:
        TypeError: if `dataset` cannot be read by ids, or `seed` is no integer.
        ValueError: if `dim` or `batch_size` is no positive integer, or `out` does not end with .npy.
        FileExistsError: if `out` exists.

    Cost:
        One reading of the dataset, O(N·W) time; memory beyond the result is one batch.
    """
    featurizer = HashedFeaturizer(dim, seed=seed, batch_size=batch_size)
    return featurizer.fit(dataset).transform(dataset, out=out, progress=progress)
