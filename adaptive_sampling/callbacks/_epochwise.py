"""A user's own `WeightedRandomSampler` under the callback: new weights, but only from the next epoch on."""

from __future__ import annotations

import warnings
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from numpy.typing import NDArray
from torch.utils.data import WeightedRandomSampler

from adaptive_sampling._arrays import checked_ids
from adaptive_sampling.errors import StateMismatchError

_KNOWN: WeakKeyDictionary[WeightedRandomSampler, EpochwiseSampler] = WeakKeyDictionary()


def epochwise(torch_sampler: WeightedRandomSampler) -> EpochwiseSampler:
    """The one wrapper of `torch_sampler`: callbacks that find it in a loader meet the same."""
    if torch_sampler not in _KNOWN:
        _KNOWN[torch_sampler] = EpochwiseSampler(torch_sampler)
    return _KNOWN[torch_sampler]


class EpochwiseSampler:
    """What `AdaptiveSampling` asks of a sampler, on top of torch's `WeightedRandomSampler`.

    Torch draws a whole epoch when its iteration begins, so a changed weight counts from the next epoch. The weights
    that the user gave stay in force as factors. The order of draws is torch's own: it does not resume in mid-epoch and
    does not span ranks.

    Args:
        torch_sampler: its `weights` are replaced, in place, at each change.

    Raises:
        MisconfigurationException: if it draws without replacement more than its positive weights allow.
    """

    rank, num_replicas = 0, 1
    factors = None  # they are applied here
    lag = 2**31  # whatever a loader prefetches: nothing of it sees a change

    def __init__(self, torch_sampler: WeightedRandomSampler) -> None:
        self._torch_sampler = ref(torch_sampler)
        self.num_windows = len(torch_sampler.weights)
        self.position = 0
        self.share_seen = float("nan")
        self._given = torch_sampler.weights.numpy().copy()
        self._weights = np.ones(self.num_windows, np.float32)
        positive = int(np.count_nonzero(self._given))
        if not torch_sampler.replacement and torch_sampler.num_samples > positive:
            raise MisconfigurationException(
                f"WeightedRandomSampler(replacement=False) must draw at most as many as it has positive weights, "
                f"got num_samples={torch_sampler.num_samples} and {positive} positive weights."
            )

    @property
    def torch_sampler(self) -> WeightedRandomSampler:
        """The user's sampler, which its loader keeps alive."""
        sampler = self._torch_sampler()
        assert sampler is not None
        return sampler

    @property
    def weights(self) -> NDArray[np.float32]:
        """What the next epoch draws by, the user's own factors included: float32 `[N]`, a copy."""
        return self.torch_sampler.weights.numpy().astype(np.float32)

    def deal(self, weights: NDArray[np.float32]) -> None:
        """Replace all weights, from the next epoch on."""
        self._weights[:] = weights
        self._apply()

    def schedule_weights(self, position: int, ids: NDArray[np.int64] | None, values: NDArray[np.float32]) -> None:
        """Change weights, from the next epoch on, whatever `position` says."""
        self._weights[slice(None) if ids is None else checked_ids("ids", ids, self.num_windows)] = values
        self._apply()

    def _apply(self) -> None:
        self.torch_sampler.weights.copy_(torch.from_numpy(self._weights * self._given))

    def bind(self, rank: int, world_size: int) -> None:
        """Refuse more than one rank.

        Raises:
            MisconfigurationException: with the cure.
        """
        if world_size > 1:
            raise MisconfigurationException(
                f"WeightedRandomSampler knows nothing of ranks, got {world_size} of them. "
                "Use AdaptiveSampler.from_weights(weights), which shares one order among them."
            )
        warnings.warn(
            "WeightedRandomSampler draws a whole epoch at once, so adapted weights take effect at the start of each "
            "epoch, and a run resumed in mid-epoch draws its epoch anew. AdaptiveSampler.from_weights(weights) has "
            "neither limit.",
            stacklevel=2,
        )

    def manage(self) -> bool:
        """Nothing to manage."""
        return False

    def track_seen(self) -> None:
        """Draws are not counted."""

    @property
    def seed(self) -> None:
        """Torch's generator decides."""

    def consume(self, num_local: int) -> None:
        """Count trained windows."""
        self.position += num_local

    def finish_epoch(self) -> None:
        """Torch's sampler begins each epoch anew."""

    def full_state(self) -> dict[str, Any]:
        """The weights and the number of windows trained on."""
        return {"position": self.position, "weights": torch.from_numpy(self._weights.copy())}

    def load_full_state(self, state: dict[str, Any]) -> None:
        """Counterpart of `full_state`.

        Raises:
            StateMismatchError: if the state is of another number of windows, or of an AdaptiveSampler.
        """
        if len(state.get("weights", ())) != self.num_windows:
            raise StateMismatchError(
                f"the saved sampler state holds {len(state.get('weights', ()))} weights of a WeightedRandomSampler, "
                f"this one has {self.num_windows}. Train with the kind of sampler and the data of the saved run."
            )
        self.position = int(state["position"])
        self.deal(state["weights"].numpy())
