"""Importance weights of a batch: what its draws count for, at the probabilities that they were made with."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import numpy as np
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from numpy.typing import NDArray
from torch import Tensor

from adaptive_sampling.sampling import AdaptiveSampler
from adaptive_sampling.weights import WeightPolicy, share_target
from adaptive_sampling.weights.importance import KEY

Ids = NDArray[np.int64]


class DrawProbabilities:
    """Probability of each draw, as of the block that it was drawn in.

    Weights that are scheduled for a stream position are looked at only by draws from the next block on. With shares per
    source, the latest probabilities stand for those of the draw.

    State:
        The weights in force at the place in the stream and those to come: a resumed run gives the same values.

    Cost:
        4 bytes per window, with shares 16; O(batch) per batch, O(N) when all weights change, with shares at each
        change.
    """

    def __init__(self, sampler: AdaptiveSampler, factors: NDArray[np.float32] | None = None) -> None:
        self._sampler, self._factors = sampler, factors
        self._pending: list[tuple[int, Ids | None, NDArray[np.float32]]] = []
        self._of_shares: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
        self._uniform_target: float | None = None
        self.restart()

    def restart(self) -> None:
        """Take what the sampler holds now for what is in force."""
        self._weights = self._sampler.weights.copy()
        self._total = float(self._weights.sum(dtype=np.float64))
        self._pending = []
        self._of_shares = None

    def follow(self, sampler: AdaptiveSampler) -> None:
        """Go on with another sampler in the same state."""
        self._sampler = sampler
        self._of_shares = None

    def schedule(self, position: int, ids: Ids | None, values: NDArray[np.float32]) -> None:
        """Note a change of weights, which counts from the first block at or behind stream `position`."""
        self._of_shares = None
        if self._sampler.source_shares is None:
            block = self._sampler.block_size
            self._pending.append((-(-position // block) * block, ids, values))

    def _apply(self, ids: Ids | None, values: NDArray[np.float32]) -> None:
        if ids is None:
            self._weights[:] = values
            self._total = float(values.sum(dtype=np.float64))
        else:
            change = values.astype(np.float64) - self._weights[ids]
            self._total += float(change.sum())
            self._weights[ids] = values

    def of(self, positions: Ids, ids: Ids) -> NDArray[np.float64]:
        """float64 `[B]` for the draws `ids` at ascending stream `positions`."""
        found = np.empty(len(ids))
        done = 0
        while self._pending and len(positions) and self._pending[0][0] <= positions[-1]:
            place, changed, values = self._pending.pop(0)
            before = int(np.searchsorted(positions, place))
            found[done:before] = self._weights[ids[done:before]] / self._total
            done = max(done, before)
            self._apply(changed, values)
        found[done:] = self._weights[ids[done:]] / self._total
        return found

    def uniform_target(self, policy: WeightPolicy) -> float:
        """One over the number of windows that can be drawn at all, whatever was learned."""
        if self._uniform_target is None:
            drawable = ~policy.excluded
            if self._factors is not None:
                drawable &= self._factors > 0
            self._uniform_target = 1.0 / int(drawable.sum())
        return self._uniform_target

    def of_shares(self, policy: WeightPolicy, ids: Ids) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Probability and target of `ids` where sources have shares: the share, even among a source's windows."""
        if self._of_shares is None:
            sources, _ = self._sampler._sources.locate(np.arange(self._sampler.num_windows))  # type: ignore[union-attr]
            drawn = self._sampler.probabilities()
            target = share_target(sources, np.bincount(sources, drawn), (~policy.excluded).astype(np.float64))
            self._of_shares = drawn, target
        drawn, target = self._of_shares
        return drawn[ids], target[ids]

    def state_dict(self) -> dict[str, Any]:
        """Tensors and numbers."""
        return {
            "weights": torch.from_numpy(self._weights.copy()),
            "total": self._total,
            "pending": [
                [position, None if ids is None else torch.from_numpy(ids), torch.from_numpy(values)]
                for position, ids, values in self._pending
            ],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state was taken."""
        self._weights, self._total = state["weights"].numpy().copy(), float(state["total"])
        self._pending = [
            (int(position), None if ids is None else ids.numpy(), values.numpy())
            for position, ids, values in state["pending"]
        ]
        self._of_shares = None


def add_importance(
    part: Any, window_ids: Tensor, policy: WeightPolicy, sampler: AdaptiveSampler, draws: DrawProbabilities, step: int
) -> None:
    """Put "importance_weight", float32 `[B]`, into the batch that comes next on this rank; 1 where none can be told.

    Raises:
        MisconfigurationException: if the batch takes no new key.
    """
    if not isinstance(part, MutableMapping):
        raise MisconfigurationException(
            f"`importance` needs batches that are dicts, to add {KEY!r} to, got {type(part).__name__}. "
            "Let the dataset return dicts, or set importance=0."
        )
    ids = window_ids.cpu().numpy().astype(np.int64)
    target: NDArray[np.float64] | None = None
    if sampler.source_shares is None:
        positions = sampler.position + sampler.rank + sampler.num_replicas * np.arange(len(ids))
        drawn = draws.of(positions, ids)
        target = np.full(len(ids), draws.uniform_target(policy))
    else:
        drawn, target = draws.of_shares(policy, ids)
    known = drawn > 0
    weights = np.ones(len(ids), np.float32)
    if known.any():
        weights[known] = policy.importance_weights(drawn[known], None if target is None else target[known], step=step)
    part[KEY] = torch.from_numpy(weights).to(window_ids.device)
