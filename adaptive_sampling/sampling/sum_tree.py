"""A 64-ary tree of sums over a long array: find the element under a point, change elements, in O(log N).

The leaves are the caller's own array; each level above holds the sums of 64 entries of the level below. A changed sum
is always added up afresh from its 64 parts, so float sums do not drift and integer sums are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.sampling._chunks import for_each_chunk

FANOUT = 64
_SHORT_LEVEL = 1 << 14
_TOGETHER = 1024  # points whose rows of children stay in the processor's cache

Allocate = Callable[[int, Any], NDArray[Any]]  # (length, dtype) → an array, of zeros unless somebody filled it before


def padded_size(num_elements: int) -> int:
    """Length that the leaves of a tree over `num_elements` need: the next multiple of 64, at least 64."""
    return max(-(-num_elements // FANOUT), 1) * FANOUT


def level_lengths(num_leaves: int) -> list[int]:
    """How many sums each level above `num_leaves` leaves holds, lowest first."""
    lengths = [padded_size(num_leaves // FANOUT)]
    while lengths[-1] > FANOUT:
        lengths.append(padded_size(lengths[-1] // FANOUT))
    return lengths


class SumTree:
    """Sums over `leaves` by powers of 64.

    Args:
        leaves: array of shape `[padded_size(N)]`, non-negative, zero behind N. It is kept, not copied.
        dtype: dtype of the sums: `int64` for counts, `float64` for weights.
        allocate: makes the arrays of sums.
        filled: leaves and sums stand already in what `allocate` gives, or will be put there: nothing is added up.

    Cost:
        Memory N/63 sums of 8 bytes beside the leaves. `find` and `refresh` take O(k · log₆₄ N) for k elements,
        `rebuild` O(N).
    """

    def __init__(
        self,
        leaves: NDArray[Any],
        dtype: type[np.int64] | type[np.float64],
        *,
        allocate: Allocate = np.zeros,
        filled: bool = False,
    ) -> None:
        if leaves.ndim != 1 or len(leaves) % FANOUT or not len(leaves):
            raise ValueError(
                f"`leaves` must be one-dimensional with a length that is a multiple of {FANOUT}, got shape "
                f"{leaves.shape!r}. Use padded_size()."
            )
        self.leaves = leaves
        self._levels: list[NDArray[Any]] = [allocate(length, dtype) for length in level_lengths(len(leaves))]
        if not filled:
            self.rebuild()

    @property
    def total(self) -> Any:
        """Sum of all leaves, as a NumPy scalar of the tree's dtype."""
        return np.add.reduce(self._levels[-1])

    def rebuild(self) -> None:
        """Add up every sum afresh, after the leaves were changed as a whole. O(N)."""
        first = self._levels[0]

        def work(part: slice) -> None:
            # Converting first is several times faster than a sum that converts on its way.
            rows = self.leaves[part].astype(first.dtype).reshape(-1, FANOUT)
            first[part.start // FANOUT : part.start // FANOUT + len(rows)] = rows.sum(1)

        for_each_chunk(len(self.leaves), work)
        for below, above in zip(self._levels, self._levels[1:], strict=False):
            above[: len(below) // FANOUT] = below.reshape(-1, FANOUT).sum(1)

    def refresh(self, ids: NDArray[np.int64]) -> None:
        """Add up the sums above the leaves `ids`, after these were changed. Sorted ids are faster; repeats are fine."""
        below: NDArray[Any] = self.leaves
        parents = ids
        for level in self._levels:
            parents = _distinct(parents // FANOUT)
            level[parents] = below.reshape(-1, FANOUT).take(parents, 0).astype(level.dtype, copy=False).sum(1)
            below = level

    def add(self, ids: NDArray[np.int64], amounts: NDArray[Any]) -> None:
        """Add `amounts` to the leaves `ids`, which may repeat, and to the sums above them. Exact for integers only.

        Args:
            ids: int64 `[k]`.
            amounts: `[k]` in the dtype of the leaves.
        """
        np.add.at(self.leaves, ids, amounts)
        amounts = amounts.astype(self._levels[0].dtype)
        for level in self._levels:
            ids = ids // FANOUT
            np.add.at(level, ids, amounts)

    def find(self, points: NDArray[Any]) -> NDArray[np.int64]:
        """Ids of the elements under `points`.

        Args:
            points: shape `[k]`, each in [0, total), in the tree's dtype. Sorted points are faster.

        Returns:
            int64 `[k]`: i such that sum(leaves[:i]) ≤ point < sum(leaves[:i+1]). An element of zero is never returned
            while any leaf is positive, whatever the rounding of float sums.
        """
        rest = np.array(points, dtype=self._levels[0].dtype)
        # Far down the tree, levels are long and points are few; near the top one search over the whole level is
        # cheaper than a step per level.
        longest = max(_SHORT_LEVEL, 8 * len(rest))
        first = next(i for i, level in enumerate(self._levels) if len(level) <= longest)
        node, rest = _search(self._levels[first], rest)
        for start in range(0, len(rest), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            for level in [*self._levels[:first][::-1], self.leaves]:
                node[part] = _descend(level, node[part], rest[part])
        return node


def _search(level: NDArray[Any], rest: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The nodes of `level` under the points `rest`, and what remains of each point inside its node."""
    reach = level.cumsum()
    node: NDArray[np.int64] = np.searchsorted(reach, rest, side="right")
    if rest.dtype.kind == "f":
        node = np.minimum(node, np.flatnonzero(level)[-1])
    rest -= np.where(node > 0, reach[node - 1], 0)
    # Where no sum below can pass 31 bits, half as many bytes need to be moved.
    short = rest.dtype.kind == "i" and reach[-1] < 2**31
    return node, rest.astype(np.int32) if short else rest


def _descend(level: NDArray[Any], node: NDArray[np.int64], rest: NDArray[Any]) -> NDArray[np.int64]:
    """From nodes to their children in `level`; what lies before the child is taken off `rest`."""
    children = level.reshape(-1, FANOUT).take(node, 0)
    reach = children.cumsum(1, dtype=rest.dtype)
    child = (reach <= rest[:, None]).argmin(1)
    if rest.dtype.kind == "f":
        # Sums of floats need not add up to their parent: a point past the end belongs to the last child that holds
        # anything.
        past = np.flatnonzero(reach[:, -1] <= rest)
        child[past] = FANOUT - 1 - (children[past, ::-1] > 0).argmax(1)
    before = reach.take(np.arange(-1, len(reach) * FANOUT - 1, FANOUT) + child)
    before[child == 0] = 0
    rest -= before
    below: NDArray[np.int64] = node * FANOUT + child
    return below


def _distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    steps = np.diff(values)
    if (steps < 0).any():
        unique: NDArray[np.int64] = np.unique(values)
        return unique
    return values[np.flatnonzero(np.concatenate([[True], steps > 0]))] if len(values) else values
