"""Documents that are there more than once: equal after normalisation, or near-copies by features of their tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.corpus.contamination import ngram_hashes
from adaptive_sampling.neighbors.features import HashedFeaturizer
from adaptive_sampling.neighbors.near_copies import connected_sets, near_copy_sets

NEAR_COPY_THRESHOLD = 0.85
# Counts of fewer tokens say too little: short texts of one form would pass for copies of each other.
MIN_BYTES = 256
_SKETCH_TOKENS = 1024
_SKETCHES_AT_A_TIME = 64
# Counts of tokens make long texts of one language alike; copies also share their runs of tokens.
_RUN = 5
_RUNS_KEPT = 128
_SHARED_RUNS = 0.4
_FIRST = np.uint32(0x85EBCA77)
_SECOND = np.uint32(0xC2B2AE3D)
_MIX = np.uint32(0x27D4EB2F)


def first_of_equal(digests: NDArray[np.uint8], candidates: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Index of the first candidate with the same digest, for each candidate; −1 for others.

    Args:
        digests: uint8 [N, 16].
        candidates: bool [N].

    Returns:
        int64 [N].
    """
    first = np.full(len(digests), -1, np.int64)
    rows = np.flatnonzero(candidates)
    if len(rows):
        keys = np.ascontiguousarray(digests[rows]).view("V16").ravel()
        _, index, inverse = np.unique(keys, return_index=True, return_inverse=True)
        first[rows] = rows[index[inverse]]
    return first


def sketch(tokens: NDArray[Any], limit: int = _SKETCH_TOKENS) -> NDArray[Any]:
    """Some `limit` tokens that stand for a longer document; a shorter one stands for itself.

    The document is cut where the hash of two neighbouring tokens says so, and pieces are kept by that hash: near-copies
    are cut alike and keep the same pieces, wherever text was inserted.

    Example:
        >>> sketch(np.arange(5)).tolist()
        [0, 1, 2, 3, 4]
    """
    if len(tokens) <= limit:
        return tokens
    ids = np.asarray(tokens).astype(np.uint32)
    hashed = ids[:-1] * _FIRST + ids[1:] * _SECOND
    hashed ^= hashed >> np.uint32(15)
    hashed *= _MIX
    hashed ^= hashed >> np.uint32(13)
    cuts = np.flatnonzero((hashed & np.uint32(15)) == 0)
    keys = hashed[cuts] >> np.uint32(4)
    # The smallest keys are a sample that does not depend on the length, and near-copies have most of them in common.
    chosen = np.argsort(keys, kind="stable")
    lengths = np.diff(cuts, append=len(ids))
    enough = int(np.searchsorted(np.cumsum(lengths[chosen]), limit)) + 1
    kept = np.sort(chosen[:enough])
    if not len(kept):  # one token over and over
        return tokens[:limit]
    places = np.repeat(cuts[kept], lengths[kept]) + _within(lengths[kept])
    some: NDArray[Any] = np.asarray(tokens)[places[: 2 * limit]]
    return some


def _within(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)


class _Sketches:
    """Sketches as rows of a dataset, short ones first, padded to the longest of a batch."""

    def __init__(self, read: Callable[[int], NDArray[Any]], lengths: NDArray[np.int64]) -> None:
        self._read = read
        self.order = np.argsort(lengths, kind="stable").astype(np.int64)

    def __len__(self) -> int:
        return len(self.order)

    def read(self, ids: NDArray[np.int64]) -> Mapping[str, Any]:
        rows = [self._read(number) for number in self.order[ids].tolist()]
        width = max(map(len, rows), default=0)
        inputs = np.zeros((len(rows), width), np.int64)
        labels = np.full((len(rows), width), -100, np.int64)
        for place, row in enumerate(rows):
            inputs[place, : len(row)] = row
            labels[place, : len(row)] = 0
        return {"input_ids": inputs, "labels": labels}


def fitted(read: Callable[[int], NDArray[Any]], lengths: NDArray[np.int64]) -> HashedFeaturizer:
    """What makes features of sketches, in the terms of these.

    Args:
        read: Sketch of a document by its number.
        lengths: int64 [N], tokens of each sketch.
    """
    return HashedFeaturizer(batch_size=_SKETCHES_AT_A_TIME).fit(_Sketches(read, lengths))


def features_of(
    featurizer: HashedFeaturizer, read: Callable[[int], NDArray[Any]], lengths: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Features of sketches, float32 [N, dim]; arguments as `fitted`."""
    rows = _Sketches(read, lengths)
    features = np.empty((len(rows), featurizer.dim), np.float32)
    features[rows.order] = featurizer.transform(rows)
    return features


def near_copies(
    features: NDArray[np.float32], read: Callable[[int], NDArray[Any]], *, threshold: float = NEAR_COPY_THRESHOLD
) -> NDArray[np.int64]:
    """Near-copy set of each document, by the features, search and sets that serve windows, confirmed by shared runs.

    Two documents of a set stay together if, of the 128 smallest hashes of their runs of 5 tokens, they share four in
    ten (bottom-k sketches, Broder 1997), or are linked through others that do.

    Args:
        features: float32 [N, dim], of the documents' sketches.
        read: All tokens of a document by its number.
        threshold: Similarity from which two documents count as near-copies.

    Returns:
        int64 [N]: the first document of the set.

    Cost: one search; then those that have a near-copy are read.
    """
    return _confirmed(near_copy_sets(features, threshold=threshold), read)


def _confirmed(sets: NDArray[np.int64], read: Callable[[int], NDArray[Any]]) -> NDArray[np.int64]:
    """Connected parts of each set whose documents share runs of tokens."""
    members = np.flatnonzero(np.bincount(sets, minlength=len(sets))[sets] > 1)
    runs = [np.unique(ngram_hashes(read(number), _RUN))[:_RUNS_KEPT] for number in members.tolist()]
    sizes = np.zeros(len(sets), np.int64)
    sizes[members] = [len(run) for run in runs]
    hashes = np.concatenate([np.zeros(0, np.uint64), *runs])
    owners = np.repeat(members, sizes[members])
    order = np.lexsort((owners, hashes, sets[owners]))
    hashes, owners = hashes[order], owners[order]
    new = np.ones(len(owners), bool)
    new[1:] = (hashes[1:] != hashes[:-1]) | (sets[owners[1:]] != sets[owners[:-1]])
    # Each document that has a run is paired with the first of its set that has it.
    first = owners[np.flatnonzero(new)][np.cumsum(new) - 1]
    pairs, shared = np.unique(np.stack([first, owners]), axis=1, return_counts=True)
    enough = shared >= _SHARED_RUNS * np.maximum(sizes[pairs[0]], sizes[pairs[1]])
    return connected_sets(len(sets), pairs[0][enough], pairs[1][enough])
