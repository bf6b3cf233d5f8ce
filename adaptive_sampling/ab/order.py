"""`EpochShuffle`: the uniform arm's order, torch's own `RandomSampler`, which can go on in the middle of an epoch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import RandomSampler

from adaptive_sampling._random import stable_hash


class EpochShuffle(RandomSampler):
    """A shuffle without replacement per epoch, its order a function of (seed, epoch).

    `consume` says what was trained on; a new iterator yields the rest of the current epoch, `len` is always the whole.

    Args:
        dataset: sized.
        seed: key of all orders.
    """

    def __init__(self, dataset: Any, seed: int) -> None:
        super().__init__(dataset, generator=torch.Generator())
        self.seed = seed
        self._epoch = 0
        self._consumed = 0

    def __iter__(self) -> Iterator[int]:
        # A generator: epoch and place are looked up at the first `next`, as late as can be.
        self.generator.manual_seed(stable_hash(self.seed, "epoch", self._epoch) % 2**63)
        yield from itertools.islice(super().__iter__(), self._consumed, None)

    def consume(self, num_windows: int) -> None:
        """Count further windows as trained on."""
        self._consumed += num_windows

    def finish_epoch(self) -> None:
        """The next iterator starts a new epoch."""
        self._epoch += 1
        self._consumed = 0

    def state_dict(self) -> dict[str, int]:
        """Where it stands, as integers."""
        return {"epoch": self._epoch, "consumed": self._consumed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where `state` was taken."""
        self._epoch, self._consumed = int(state["epoch"]), int(state["consumed"])
