"""Sets from links: connected parts, and a guard against parts that hang together by a chain alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
TakeRows = Callable[[Int64], NDArray[np.float32]]
_ROUNDS = 64


def connected_sets(num_rows: int, first: Int64, second: Int64) -> Int64:
    """Smallest member of each row's connected part in the graph of undirected edges (`first`, `second`).

    Roots hook onto smaller roots across every edge at once, then pointers are halved until each row points at its root.

    Args:
        num_rows: N.
        first: int64 `[E]`, one end of each edge.
        second: int64 `[E]`, the other end.

    Returns:
        int64 `[N]`.

    Example:
        >>> connected_sets(5, np.array([0, 3]), np.array([4, 4])).tolist()
        [0, 1, 2, 0, 0]
    """
    parent = np.arange(num_rows, dtype=np.int64)
    while True:
        root_first, root_second = parent[first], parent[second]
        apart = root_first != root_second
        if not apart.any():
            return parent
        first, second = first[apart], second[apart]
        low = np.minimum(root_first[apart], root_second[apart])
        high = np.maximum(root_first[apart], root_second[apart])
        np.minimum.at(parent, high, low)
        while True:
            grandparent = parent[parent]
            if np.array_equal(grandparent, parent):
                break
            parent = grandparent


def split_chains(take: TakeRows, sets: Int64, first: Int64, second: Int64, threshold: float) -> tuple[Int64, int]:
    """Take members out of sets whose middle they are not similar to.

    The middle of a set is the direction of the sum of its members. Who is at least `threshold` similar to it stays (if
    nobody is, only who is nearest to it); the others are linked anew among themselves; and so on with the new sets.

    Args:
        take: row numbers → float32 `[rows, dim]`, of unit length or zeros.
        sets: int64 `[N]`, smallest member of each row's set.
        first: int64 `[E]`, one end of each link.
        second: int64 `[E]`, the other end.
        threshold: cosine.

    Returns:
        int64 `[N]`, the new sets, named by their smallest members, and how many of the old ones were taken apart.
    """
    result = sets.copy()
    sizes = np.bincount(sets, minlength=len(sets))
    members = np.flatnonzero(sizes[sets] > 2)  # two that are linked are similar to their middle
    taken_apart = np.zeros(len(sets), dtype=bool)
    for _ in range(_ROUNDS):
        if not len(members):
            break
        leaves = ~_near_middle(take, result, members, threshold)
        outside = members[leaves]
        if not len(outside):
            break
        taken_apart[sets[outside]] = True
        touched = np.zeros(len(sets), dtype=bool)
        touched[result[outside]] = True
        old, inside = result.copy(), members[~leaves]
        inside = inside[touched[old[inside]]]
        # The inner ones keep together; the outer ones, of all sets at once, meet only along links between themselves.
        result[inside] = _smallest(old[inside], inside, len(sets))[old[inside]]
        is_outside = np.zeros(len(sets), dtype=bool)
        is_outside[outside] = True
        among = is_outside[first] & is_outside[second] & (old[first] == old[second])
        result[outside] = connected_sets(len(sets), first[among], second[among])[outside]
        changed = np.concatenate([inside, outside])  # both have a new middle
        members = changed[np.bincount(result[changed], minlength=len(sets))[result[changed]] > 2]
    return result, int(taken_apart.sum())


def _near_middle(take: TakeRows, sets: Int64, members: Int64, threshold: float) -> NDArray[np.bool_]:
    """Which members are at least `threshold` similar to the middle of their set, or at least the nearest to it."""
    order = np.argsort(sets[members], kind="stable")
    ordered = sets[members][order]
    new = np.r_[True, ordered[1:] != ordered[:-1]]
    starts, number = np.flatnonzero(new), np.cumsum(new) - 1
    own = take(members[order]).astype(np.float64)
    sums = np.add.reduceat(own, starts, axis=0)
    lengths = np.sqrt(np.einsum("sd,sd->s", sums, sums))
    sums /= np.where(lengths > 0, lengths, 1.0)[:, None]
    similarity = np.einsum("md,md->m", own, sums[number])
    # Equal rows are equally near and stay together; rows of zeros are only ever together with such.
    near = similarity >= np.minimum(threshold, np.maximum.reduceat(similarity, starts)[number])
    result = np.empty(len(members), dtype=np.bool_)
    result[order] = near | (lengths[number] == 0)
    return result


def join_to_middles(take: TakeRows, sets: Int64, nearest: Int64, threshold: float) -> Int64:
    """Put rows that are alone into the set of their nearest row, where they are similar to the middle of that set.

    What single copies differ by is averaged out in the middle of three or more: a copy that was changed more than the
    others is still close to it.

    Args:
        take: row numbers → float32 `[rows, dim]`, of unit length or zeros.
        sets: int64 `[N]`, smallest member of each row's set.
        nearest: int64 `[N]`, nearest row of each row, −1 where there is none.
        threshold: cosine to the middle.

    Returns:
        int64 `[N]`, the new sets, named by their smallest members.
    """
    sizes = np.bincount(sets, minlength=len(sets))
    joining = np.flatnonzero((sizes[sets] == 1) & (nearest >= 0))
    joining = joining[sizes[sets[nearest[joining]]] > 2]
    if not len(joining):
        return sets
    wanted = sets[nearest[joining]]
    names, number = np.unique(wanted, return_inverse=True)
    is_wanted = np.zeros(len(sets), dtype=bool)
    is_wanted[names] = True
    members = np.flatnonzero(is_wanted[sets])
    members = members[np.argsort(sets[members], kind="stable")]
    starts = np.flatnonzero(np.r_[True, np.diff(sets[members]) > 0])
    middles = np.add.reduceat(take(members).astype(np.float64), starts, axis=0)
    lengths = np.sqrt(np.einsum("sd,sd->s", middles, middles))
    middles /= np.where(lengths > 0, lengths, 1.0)[:, None]
    near = np.einsum("jd,jd->j", take(joining).astype(np.float64), middles[number]) >= threshold
    result = sets.copy()
    result[joining[near]] = wanted[near]
    return _smallest(result, np.arange(len(sets)), len(sets))[result]


def _smallest(sets: Int64, members: Int64, num_rows: int) -> Int64:
    """int64 `[num_rows]`: of each set named in `sets`, its smallest member."""
    smallest = np.full(num_rows, num_rows, dtype=np.int64)
    np.minimum.at(smallest, sets, members)
    return smallest
