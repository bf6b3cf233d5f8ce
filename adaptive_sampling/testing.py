"""Checks that users of the package can run on their own samplers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from adaptive_sampling._arrays import checked_integer

__all__ = ["assert_resumes_exactly"]


def assert_resumes_exactly(make_sampler: Callable[[], Any], *, stops: Iterable[int] | None = None) -> None:
    """Fail unless a sampler restored from its state yields the ids of the unbroken one.

    Tried are stops at the start, after one id, in the middle, at the last id of an epoch, at its end, and in the next
    epoch; each state is changed by a second stop right after the first, as in a run that is interrupted twice.

    Args:
        make_sampler: makes a fresh sampler with `state_dict`, `load_state_dict`, `__iter__` and `__len__`, the same one
            at each call: give it a seed.
        stops: numbers of ids after which to stop, in any epoch; default: as above.

    Raises:
        AssertionError: naming the stop and the first position that differs.
        TypeError, ValueError: if a stop is no integer of at least 0.

    Example:
        >>> from adaptive_sampling import AdaptiveSampler
        >>> assert_resumes_exactly(lambda: AdaptiveSampler(20, seed=0))
    """
    length = len(make_sampler())
    if stops is None:
        stops = {0, 1, length // 2, length - 1, length, length + 1, 2 * length - 1}
    stops = sorted(checked_integer("stops", stop, 0) for stop in stops)
    count = max([2 * length, *stops]) + length
    expected = _take(make_sampler(), count)
    if _take(make_sampler(), count) != expected:
        raise AssertionError("two fresh samplers yield different ids. Give `make_sampler` a fixed seed.")
    for stop in stops:
        for second in (0, 1):
            first = make_sampler()
            got = _take(first, stop)
            middle = make_sampler()
            middle.load_state_dict(_copied(first.state_dict()))
            got += _take(middle, second)
            last = make_sampler()
            last.load_state_dict(_copied(middle.state_dict()))
            got += _take(last, count - stop - second)
            if got != expected:
                at = int(np.flatnonzero(np.not_equal(got, expected))[0])
                raise AssertionError(
                    f"stopped after {stop} ids and {second} more, position {at} differs: got id {got[at]}, "
                    f"the unbroken sampler yields {expected[at]}."
                )


def _take(sampler: Any, count: int) -> list[int]:
    ids: list[int] = []
    while len(ids) < count:
        before = len(ids)
        for value in sampler:
            ids.append(int(value))
            if len(ids) == count:
                break
        if len(ids) == before:
            raise AssertionError(f"the sampler yields no id after {before}.")
    return ids


def _copied(state: Any) -> Any:
    """The state as a checkpoint would give it back: no object shared with the sampler that made it."""
    if isinstance(state, torch.Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_copied(value) for value in state)
    return state
