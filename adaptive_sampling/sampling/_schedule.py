"""Weights that wait for their place in the stream, so that the order does not depend on how far loaders prefetch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Apply = Callable[[NDArray[np.int64] | None, NDArray[np.float32]], None]


class WeightSchedule:
    """Pending changes in the order in which they were made: (stream position, ids or None for all, values)."""

    def __init__(self) -> None:
        self._pending: list[tuple[int, NDArray[np.int64] | None, NDArray[np.float32]]] = []

    def add(self, position: int, ids: NDArray[np.int64] | None, values: NDArray[np.float32]) -> None:
        """Append a change; positions must not fall."""
        if self._pending and position < self._pending[-1][0]:
            raise ValueError(f"`position` must not fall, got {position} behind {self._pending[-1][0]}.")
        self._pending.append((position, ids, values))

    @property
    def next_position(self) -> int | None:
        """Where the first pending change counts from."""
        return self._pending[0][0] if self._pending else None

    def clear(self) -> None:
        """Forget all pending changes."""
        self._pending.clear()

    def apply_until(self, position: int, apply: Apply) -> None:
        """Apply, in order, what counts for a block that starts at `position`."""
        while self._pending and self._pending[0][0] <= position:
            _, ids, values = self._pending.pop(0)
            apply(ids, values)

    def apply_all(self, apply: Apply) -> None:
        """Apply everything now."""
        while self._pending:
            _, ids, values = self._pending.pop(0)
            apply(ids, values)

    def latest(self, base: NDArray[np.float32]) -> NDArray[np.float32]:
        """`base` with all pending changes; `base` itself when there are none."""
        if not self._pending:
            return base
        weights = base.copy()
        for _, ids, values in self._pending:
            weights[slice(None) if ids is None else ids] = values
        return weights

    def state_list(self) -> list[dict[str, Any]]:
        """Tensors and primitives, one entry per pending change."""
        return [
            {
                "position": position,
                "ids": None if ids is None else torch.from_numpy(ids.copy()),
                "values": torch.from_numpy(values.copy()),
            }
            for position, ids, values in self._pending
        ]

    def load_state_list(self, state: list[dict[str, Any]]) -> None:
        """Counterpart of `state_list`."""
        self._pending = [
            (int(e["position"]), None if e["ids"] is None else e["ids"].numpy().copy(), e["values"].numpy().copy())
            for e in state
        ]
