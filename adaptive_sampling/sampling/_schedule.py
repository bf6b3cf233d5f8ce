"""Weights that wait for their place in the stream, so that the order does not depend on how far loaders prefetch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray


class Change(NamedTuple):
    """New weights.

    Attributes:
        number: how many calls changed weights before this one; the same on all ranks.
        position: stream position from which they count.
        ids: whose weights, or None for all.
        values: the weights.
    """

    number: int
    position: int
    ids: NDArray[np.int64] | None
    values: NDArray[np.float32]


Apply = Callable[[Change], None]


class WeightSchedule:
    """Pending changes in the order in which they were made."""

    def __init__(self) -> None:
        self._pending: list[Change] = []

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, change: Change) -> None:
        """Append a change; positions must not fall."""
        if self._pending and change.position < self._pending[-1].position:
            raise ValueError(
                f"`position` must not fall, got {change.position} behind {self._pending[-1].position}. "
                "Schedule weights in the order of the stream."
            )
        self._pending.append(change)

    @property
    def next_position(self) -> int | None:
        """Where the first pending change counts from."""
        return self._pending[0].position if self._pending else None

    def clear(self) -> None:
        """Forget all pending changes."""
        self._pending.clear()

    def drop_applied(self, applied: int) -> None:
        """Forget the changes with numbers below `applied`, which another rank of the node has carried out."""
        while self._pending and self._pending[0].number < applied:
            self._pending.pop(0)

    def apply_until(self, position: int, apply: Apply) -> None:
        """Apply, in order, what counts for a block that starts at `position`."""
        while self._pending and self._pending[0].position <= position:
            apply(self._pending.pop(0))

    def apply_all(self, apply: Apply) -> None:
        """Apply everything now."""
        while self._pending:
            apply(self._pending.pop(0))

    def latest(self, base: NDArray[np.float32]) -> NDArray[np.float32]:
        """`base` with all pending changes; `base` itself when there are none."""
        if not self._pending:
            return base
        weights = base.copy()
        for change in self._pending:
            weights[slice(None) if change.ids is None else change.ids] = change.values
        return weights

    def state_list(self) -> list[dict[str, Any]]:
        """Tensors and primitives, one entry per pending change."""
        return [
            {
                "position": change.position,
                "ids": None if change.ids is None else torch.from_numpy(change.ids.copy()),
                "values": torch.from_numpy(change.values.copy()),
            }
            for change in self._pending
        ]

    def load_state_list(self, state: list[dict[str, Any]], first_number: int) -> None:
        """Counterpart of `state_list`, with arrays for tensors; changes are numbered anew from `first_number` on."""
        self._pending = [
            Change(
                first_number + i,
                int(entry["position"]),
                None if entry["ids"] is None else entry["ids"].copy(),
                entry["values"].copy(),
            )
            for i, entry in enumerate(state)
        ]
