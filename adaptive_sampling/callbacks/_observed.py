"""Window losses that no update has taken in yet: on their devices, over ranks, and in a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from adaptive_sampling.callbacks._sync import gather_observations
from adaptive_sampling.callbacks._window_values import Values

Parts = list[tuple[Tensor, Tensor]]
"""Per rank: ids, int64 `[k]`, and values, float32 `[k, needs]`, on the CPU."""


class Observed:
    """What this rank has noted, batch by batch; nothing waits for a device before it is gathered.

    Args:
        needs: names of the values of a window, in the order of the columns.

    State:
        One part per rank, tensors and Python primitives.
    """

    def __init__(self, needs: Sequence[str]) -> None:
        self._needs = tuple(needs)
        self._batches: list[tuple[Tensor, Values]] = []

    def add(self, ids: Tensor, values: Values) -> None:
        """Note a batch: ids `[B]`, each value `[B]`."""
        self._batches.append((ids.detach(), values))

    def gathered(self) -> Parts:
        """What all ranks have noted, on all ranks; all of them call this."""
        return gather_observations(*self._own())

    def take(self) -> Parts:
        """As `gathered`, and nothing is left."""
        parts = self.gathered()
        self._batches = []
        return parts

    def _own(self) -> tuple[Tensor, Tensor]:
        if not self._batches:
            return torch.empty(0, dtype=torch.int64), torch.empty(0, len(self._needs))
        # What a checkpoint or the user gave may lie on the CPU, and what was captured not.
        device = self._batches[-1][0].device
        columns = [torch.stack([values[need].to(device) for need in self._needs], 1) for _, values in self._batches]
        return torch.cat([ids.to(device) for ids, _ in self._batches]).long(), torch.cat(columns)

    def own_state(self) -> list[dict[str, Any]]:
        """This rank's part alone; no collective call."""
        ids, values = self._own()
        return self._state_of([(ids.cpu(), values.cpu())])

    def state_of_ranks(self) -> list[dict[str, Any]]:
        """The parts of all ranks; all of them call this."""
        return self._state_of(self.gathered())

    def _state_of(self, parts: Parts) -> list[dict[str, Any]]:
        return [
            {"ids": ids, "values": {need: values[:, column].clone() for column, need in enumerate(self._needs)}}
            for ids, values in parts
        ]

    def load(self, parts: Sequence[dict[str, Any]], rank: int, world_size: int) -> None:
        """Go on with this rank's part; where other ranks saved them, rank 0 takes all."""
        if len(parts) == world_size:
            mine = [parts[rank]]
        else:
            mine = list(parts) if rank == 0 else []
        self._batches = [(part["ids"], dict(part["values"])) for part in mine if len(part["ids"])]
