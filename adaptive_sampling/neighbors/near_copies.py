"""Near-copy sets: rows that are linked, directly or through others, by a similarity above a threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import hash_rows
from adaptive_sampling.neighbors._checks import feature_matrix, group_codes, unit_threshold
from adaptive_sampling.neighbors._sets import connected_sets as connected_sets
from adaptive_sampling.neighbors._sets import join_to_middles, split_chains
from adaptive_sampling.neighbors.indexes import IndexKind
from adaptive_sampling.neighbors.rows import Rows, common_part
from adaptive_sampling.neighbors.search import Neighbors, nearest
from adaptive_sampling.neighbors.threshold import USUAL, SimilarityHistogram, read_threshold

_FEW = 16
# A row this much less similar than the threshold to its nearest one is not as similar as that to the middle of a set.
_MARGIN = 0.2
_ROUNDING = 1e-6  # a float32 inner product of a unit vector with itself may fall short of 1 by a few last places


@dataclass(frozen=True)
class NearCopies:
    """Near-copy sets and what they were read from.

    Attributes:
        sets: int64 `[N]`: the smallest row of the set that a row belongs to.
        nearest_similarity: float32 `[N]`, cosine to the nearest row of another group; −inf where there is none.
        histogram: of these, with the threshold.
        neighbors: the search behind it.
        split: sets that were taken apart because they hung together by a chain alone.
    """

    sets: NDArray[np.int64]
    nearest_similarity: NDArray[np.float32]
    histogram: SimilarityHistogram
    neighbors: Neighbors
    split: int

    @property
    def threshold(self) -> float:
        """Similarity from which two rows are near-copies."""
        return self.histogram.threshold

    @property
    def sizes(self) -> NDArray[np.int64]:
        """int64 `[N]`, rows in the set of each row, itself included."""
        return np.bincount(self.sets, minlength=len(self.sets)).astype(np.int64)[self.sets]


def find_near_copies(
    features: Any,
    groups: Any = None,
    *,
    threshold: float | None = None,
    num_neighbors: int = 20,
    index: IndexKind = "auto",
    memory_limit: int | None = None,
    seed: int = 0,
) -> NearCopies:
    """Near-copy sets of the rows, by the cosine of what is left of them without what they have in common.

    Two rows are linked if one is among the other's `num_neighbors` nearest and their similarity is at least
    `threshold`, or if they are equal. Rows of one group (a document, whose windows overlap) are never linked with each
    other, but may share a set through rows of other groups. Sets are the connected parts; but a row that is further
    from the middle of its set than `threshold` only hangs on a chain, and is put into a set with others of its kind;
    and a row that is alone joins the set of its nearest row if it is `threshold` similar to the middle of that set.

    Args:
        features: real `[N, dim]`.
        groups: integers `[N]`; None: every row is its own group.
        threshold: similarity in (0, 1] from which two rows count as near-copies; None: read from the data, see
            `read_threshold`.
        num_neighbors: neighbours looked at per row.
        index: see `nearest`.
        memory_limit: see `nearest`.
        seed: see `nearest`.

    Raises:
        TypeError: if features or groups are of a wrong type.
        ValueError: on wrong shapes or settings, or rows that are not finite.
        MissingPackageError: if Faiss is not installed.

    Cost:
        One search over all rows, then O(N·k·log N).
    """
    given = None if threshold is None else unit_threshold("threshold", threshold)
    return _found(
        features, groups, given, num_neighbors=num_neighbors, index=index, memory_limit=memory_limit, seed=seed
    )


def _found(features: Any, groups: Any, given: float | None, *, seed: int, **search: Any) -> NearCopies:
    """`find_near_copies` with a threshold that is checked; `search`: further arguments of `nearest`."""
    source = feature_matrix("features", features)
    codes = np.arange(len(source)) if groups is None else group_codes("groups", groups, len(source))
    centre = _centre(source, seed)
    found = nearest(source, groups=groups, centre=centre, seed=seed, **search)
    similarity = found.values[:, 0].copy()
    rows = Rows("features", source, centre=centre, keep=False)  # members of sets alone are looked at
    equal = _equal_rows(source, codes)
    # Rows without content are as near to each other as any, whatever an inner product of zeros says.
    similarity[np.concatenate(equal)] = 1.0
    histogram = read_threshold(similarity, given)
    linked = found.values >= histogram.threshold - _ROUNDING
    first, column = np.nonzero(linked & (found.ids >= 0))
    second = found.ids[first, column]
    sets, split = split_chains(
        rows.take,
        connected_sets(len(rows), np.concatenate([first, equal[0]]), np.concatenate([second, equal[1]])),
        np.concatenate([first, equal[0]]),
        np.concatenate([second, equal[1]]),
        histogram.threshold - _ROUNDING,
    )
    sets = join_to_middles(rows.take, sets, found.ids[:, 0], histogram.threshold - _ROUNDING)
    return NearCopies(sets, similarity, histogram, found, split)


def near_copy_sets(
    features: Any,
    groups: Any = None,
    *,
    threshold: float | None = None,
    num_neighbors: int = 20,
    index: IndexKind = "auto",
    seed: int = 0,
) -> NDArray[np.int64]:
    """Label of each row's near-copy set: `find_near_copies(...).sets`, see there.

    With a threshold given, rows far below it are not looked for, which makes the search shallower.

    Returns:
        int64 `[N]`: the smallest row of the set that a row belongs to.
    """
    given = None if threshold is None else unit_threshold("threshold", threshold)
    least = -np.inf if given is None else given - _MARGIN
    return _found(
        features, groups, given, num_neighbors=num_neighbors, index=index, min_similarity=least, seed=seed
    ).sets


def near_duplicates_of(
    features_train: Any,
    features_query: Any,
    threshold: float = USUAL,
    *,
    index: IndexKind = "auto",
    seed: int = 0,
) -> NDArray[np.bool_]:
    """Which queries (held-out rows) have a near-copy among the training rows.

    Both must be in the same terms: one `HashedFeaturizer`, fitted to the training windows, transforms both. They are
    compared as they are, by the cosine.

    Args:
        features_train: real `[N, dim]`.
        features_query: real `[Q, dim]`.
        threshold: similarity in (0, 1] from which a query counts as a near-copy.
        index: see `nearest`.
        seed: see `nearest`.

    Returns:
        bool `[Q]`.

    Raises:
        TypeError: if features are no real numbers.
        ValueError: on wrong shapes or settings, or rows that are not finite.
        MissingPackageError: if Faiss is not installed.
    """
    limit = unit_threshold("threshold", threshold)
    found = nearest(features_train, features_query, num_neighbors=1, index=index, seed=seed)
    return np.asarray(found.values[:, 0] >= limit - _ROUNDING)


def _centre(source: NDArray[Any], seed: int) -> NDArray[np.float64]:
    """What rows have in common; nothing where a few rows of unit length were made ready already.

    Of a few rows nothing is known to be common to all: of two near-copies alone it would leave two opposite vectors.
    """
    if len(source) < _FEW:
        lengths = np.linalg.norm(np.asarray(source, dtype=np.float64), axis=1)
        if (np.abs(lengths[lengths != 0] - 1) < 1e-3).all():
            return np.zeros(source.shape[1])
    return common_part(source, seed=seed)


def _equal_rows(rows: NDArray[Any], codes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges between equal rows where more than one group holds them: a search that is full of copies may miss some."""
    if len(rows) == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    keys = np.empty(len(rows), dtype=np.uint64)
    for first in range(0, len(rows), 1 << 16):
        part = slice(first, first + (1 << 16))
        block = np.ascontiguousarray(rows[part]) + 0.0  # −0 equals 0, though its bits do not
        keys[part] = hash_rows(("equal rows",), *block.astype(np.float64).view(np.uint64).T)
    _, leader, inverse = np.unique(keys, return_index=True, return_inverse=True)
    representative = leader[inverse]
    several = np.zeros(len(leader), dtype=bool)
    several[inverse[codes != codes[representative]]] = True
    linked = np.flatnonzero(several[inverse] & (representative != np.arange(len(rows))))
    equal = np.ones(len(linked), dtype=bool)
    for first in range(0, len(linked), 1 << 16):
        some = linked[first : first + (1 << 16)]
        equal[first : first + (1 << 16)] = (rows[some] == rows[representative[some]]).all(axis=1)
    linked = linked[equal]
    return linked.astype(np.int64), representative[linked].astype(np.int64)
