"""Learning progress: how fast the loss of a window's group is falling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adaptive_sampling.weights._checks import checked_number
from adaptive_sampling.weights.signals.protocol import BaseSignal, Floats, Observed, not_negative

_OF_GROUPS = (32.0, 256.0)
_OF_WINDOWS = (2.0, 8.0)


class ProgressSignal(BaseSignal):
    """Slow minus fast running mean of the loss of a window's group, in nats: positive while the loss falls.

    Hard text that is being learned has it; text that is learned already has none, and neither has noise, however high
    its loss (Graves et al. 2017, "Automated curriculum learning for neural networks", section 3). Without groups each
    window is a group of its own, which says something only after several visits.

    Args:
        fast: memory of the fast mean, in observations of a group; default: 32, and 2 visits without groups.
        slow: memory of the slow mean; default: 256, and 8 visits without groups.

    Raises:
        ValueError: on a memory below 1, or a fast one that is not below the slow one.

    State:
        Both means and the number of observations per group.

    Cost:
        24 bytes per group, and O(observations) per update.
    """

    name = "progress"
    signed = True

    def __init__(self, fast: float | None = None, slow: float | None = None) -> None:
        what = "a number of observations, at least 1"
        self.fast = None if fast is None else checked_number("fast", fast, 1.0, np.inf, what=what)
        self.slow = None if slow is None else checked_number("slow", slow, 1.0, np.inf, what=what)
        if self.fast is not None and self.slow is not None and self.fast >= self.slow:
            raise ValueError(f"`fast` must be below `slow`, got {fast!r} and {slow!r}. Swap them.")
        self._fast = self._slow = self._count = np.empty(0)
        self._memories = _OF_GROUPS

    def bind(self, num_windows: int, num_groups: int | None) -> None:
        """Make room for each group, or each window where there are no groups."""
        defaults = _OF_WINDOWS if num_groups is None else _OF_GROUPS
        self._memories = (self.fast or defaults[0], self.slow or defaults[1])
        if self._memories[0] >= self._memories[1]:
            raise ValueError(
                f"`fast` must be below `slow`, got {self._memories[0]!r} and {self._memories[1]!r}. Give both."
            )
        more = (num_windows if num_groups is None else num_groups) - len(self._count)
        if more > 0:
            self._fast, self._slow, self._count = (
                np.concatenate([array, np.zeros(more)]) for array in (self._fast, self._slow, self._count)
            )

    def values(self, observed: Observed) -> Floats:
        """Progress of the group of each window, this update's losses included."""
        losses = not_negative(self.name, observed.ids, observed.captured["loss"])
        groups, place, counts = np.unique(observed.groups, return_inverse=True, return_counts=True)
        means = np.bincount(place, weights=losses, minlength=len(groups)) / counts
        before = self._count[groups]
        for array, memory in zip((self._fast, self._slow), self._memories, strict=True):
            # An even mean until the memory is full, so that the first losses are not favoured.
            share = np.maximum(1.0 - (1.0 - 1.0 / memory) ** counts, counts / (before + counts))
            array[groups] += share * (means - array[groups])
        self._count[groups] = before + counts
        return np.asarray((self._slow - self._fast)[observed.groups])

    def settings(self) -> dict[str, Any]:
        """Both memories."""
        return {"fast": self.fast, "slow": self.slow}

    def state_dict(self) -> dict[str, Any]:
        """Means and counts."""
        return {
            name: torch.from_numpy(array.copy())
            for name, array in (("fast", self._fast), ("slow", self._slow), ("count", self._count))
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self._fast, self._slow, self._count = (_array(state[name]) for name in ("fast", "slow", "count"))


def _array(tensor: torch.Tensor) -> NDArray[np.float64]:
    return np.asarray(tensor.to("cpu", torch.float64).numpy().copy())
