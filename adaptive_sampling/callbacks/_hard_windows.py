"""The loss of a fixed set of windows of high weight, by a forward pass of its own: are the hard ones being learned?"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import default_collate

from adaptive_sampling.neighbors.module_features import untouched
from adaptive_sampling.weights.reference import next_token_losses

_TOGETHER = 16
"""Windows in one forward pass: no more than fit beside a training."""
Losses = Callable[[torch.nn.Module, Any], Tensor]


class HardWindows:
    """Chosen once, when weights first tell windows apart; then the same for the whole training.

    Args:
        count: how many; 0: none.
        losses: (module, batch) → float `[B]`; None: `next_token_losses`.

    Attributes:
        ids: int64 `[count]`, those of the highest weights; empty before they are chosen.
    """

    def __init__(self, count: int, losses: Losses | None) -> None:
        self.count = count
        self.losses = next_token_losses if losses is None else losses
        self.ids: NDArray[np.int64] = np.empty(0, np.int64)
        self.failed = False
        self._asked_for = losses is not None

    def choose(self, weights: NDArray[np.float32], every: int = 1) -> None:
        """Take those of the highest weight, the lower id first, unless they are chosen or all weights are equal.

        Args:
            weights: float32 `[k]`, of the windows 0, `every`, 2·`every`, …
            every: distance between their ids.
        """
        if len(self.ids) or not self.count or float(weights.min()) == float(weights.max()):
            return
        count = min(self.count, len(weights))
        least = np.partition(weights, len(weights) - count)[len(weights) - count]
        above = np.flatnonzero(weights > least)
        chosen = np.r_[above, np.flatnonzero(weights == least)[: count - len(above)]]
        self.ids = np.sort(chosen).astype(np.int64) * every

    def mean_loss(self, trainer: pl.Trainer, module: pl.LightningModule, dataset: Any) -> float:
        """Mean loss of the set, NaN where there is none; module and random states are left as they were.

        A set that cannot be evaluated is given up, with a warning if the user said how: not every module has a
        `forward` that gives logits.
        """
        sharded = isinstance(trainer.strategy, (FSDPStrategy, ModelParallelStrategy, DeepSpeedStrategy))
        if not len(self.ids) or self.failed or (sharded and trainer.world_size > 1):
            return float("nan")
        try:
            with untouched(module), trainer.precision_plugin.forward_context():
                parts = [
                    self._losses_of(trainer, module, dataset, self.ids[first : first + _TOGETHER])
                    for first in range(0, len(self.ids), _TOGETHER)
                ]
            losses = torch.cat(parts)
            return float(losses[losses.isfinite()].mean())
        except Exception as error:
            self.failed = True
            if self._asked_for:
                warnings.warn(
                    f"the loss of hard windows cannot be evaluated: {error!r}. Training goes on without it. Correct "
                    "SamplingMonitor(hard_losses=...), a function of module and batch.",
                    stacklevel=2,
                )
            return float("nan")

    def _losses_of(
        self, trainer: pl.Trainer, module: pl.LightningModule, dataset: Any, ids: NDArray[np.int64]
    ) -> Tensor:
        items = default_collate([dataset[int(i)] for i in ids])
        return self.losses(module, trainer.strategy.batch_to_device(items)).float().detach().reshape(-1)
