"""Held-out losses and weight histograms at fixed steps, the same for every arm, their time counted apart."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch.utils.data import DataLoader

from adaptive_sampling.ab._seeding import untouched_randomness
from adaptive_sampling.ab.record import RunRecord
from adaptive_sampling.sampling import AdaptiveSampler

WEIGHT_EDGES = np.geomspace(0.05, 20.0, 41)
"""Edges of 40 bins of weight over mean weight; what lies outside counts in the outermost bins."""


def evaluation_steps(max_steps: int, eval_every: int | None) -> list[int]:
    """Optimizer steps after which the held-out losses are taken: ten by default, the last always."""
    if eval_every is None:
        return sorted({max(1, round(max_steps * k / 10)) for k in range(1, 11)})
    return sorted({*range(eval_every, max_steps + 1, eval_every), max_steps})


def num_targets(batch: Any) -> int:
    """Targets in a batch: labels that count, else input tokens, else windows."""
    if isinstance(batch, Mapping):
        if isinstance(batch.get("labels"), torch.Tensor):
            return int((batch["labels"] != -100).sum())
        if isinstance(batch.get("input_ids"), torch.Tensor):
            return int(batch["input_ids"].numel())
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        batch = batch[0]
    return len(batch)


def held_out_loss(trainer: pl.Trainer, module: pl.LightningModule, loader: DataLoader[Any]) -> tuple[float, int]:
    """Mean of what `validation_step` returns, each batch weighted by its targets.

    Returns:
        Loss per target (nats, for cross-entropy) and the number of targets.

    Raises:
        TypeError: if `validation_step` returns neither a loss nor a dict with "loss".
        ValueError: if the loader yields no target.
    """
    step = module.validation_step
    extra = {"dataloader_idx": 0} if "dataloader_idx" in inspect.signature(step).parameters else {}
    total, targets = 0.0, 0
    for index, batch in enumerate(loader):
        batch = trainer.strategy.batch_to_device(batch, dataloader_idx=0)
        with trainer.strategy.precision_plugin.val_step_context():
            returned = step(batch, index, **extra)
        loss = returned.get("loss") if isinstance(returned, Mapping) else returned
        if not isinstance(loss, torch.Tensor):
            raise TypeError(
                f"`validation_step` must return its loss, or a dict with 'loss', got {type(returned).__name__}. "
                "End it with `return loss`."
            )
        count = num_targets(batch)
        if count:
            total += float(loss) * count
            targets += count
    if targets == 0:
        raise ValueError("a validation loader yields no target. Give it held-out windows.")
    return total / targets, targets


class HeldOutEvaluation(pl.Callback):
    """Fills a `RunRecord` while training goes on.

    Args:
        record: the record to fill.
        steps: optimizer steps after which to evaluate.
        loaders: validation loader per name.
        sampler: the sampler whose weights are kept as histograms, if it has weights.
        report: called with the record after each evaluation.
    """

    def __init__(
        self,
        record: RunRecord,
        steps: Sequence[int],
        loaders: Mapping[str, DataLoader[Any]],
        sampler: AdaptiveSampler | None,
        report: Callable[[RunRecord], None],
    ) -> None:
        self.record = record
        self.steps = set(steps)
        self.loaders = dict(loaders)
        self.sampler = sampler
        self.report = report
        self._tokens = 0
        self._started = 0.0
        self._evaluated_at = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count tokens; evaluate when the step is due."""
        self._tokens += num_targets(batch)
        step = trainer.global_step
        # Under gradient accumulation several batches end at the same step.
        if step in self.steps and step != self._evaluated_at:
            self._evaluated_at = step
            self._evaluate(trainer, pl_module, step)

    def _evaluate(self, trainer: pl.Trainer, module: pl.LightningModule, step: int) -> None:
        began = time.perf_counter()
        losses, targets = self._losses(trainer, module)
        count = sum(targets.values())
        overall = math.fsum(losses[name] * targets[name] for name in losses) / count
        if self.sampler is not None:
            self.record.weight_edges = WEIGHT_EDGES.tolist()
            self.record.weight_history.append({"step": step, "counts": weight_counts(self.sampler.weights)})
        record = self.record
        record.eval_seconds += time.perf_counter() - began
        record.train_seconds = time.perf_counter() - self._started - record.eval_seconds
        record.curve.append(
            {
                "step": step,
                "tokens": self._tokens,
                "train_seconds": record.train_seconds,
                "eval_seconds": record.eval_seconds,
                "losses": {name: finite(loss) for name, loss in losses.items()},
                "targets": targets,
                "loss": finite(overall),
            }
        )
        if not math.isfinite(overall):
            record.status, record.error = "diverged", f"the held-out loss is {overall} after step {step}"
            trainer.should_stop = True
        for logger in trainer.loggers:
            shown = {**losses, "overall": overall}
            logger.log_metrics({f"held_out/{k}": v for k, v in shown.items() if math.isfinite(v)}, step=step)
        self.report(record)

    def _losses(self, trainer: pl.Trainer, module: pl.LightningModule) -> tuple[dict[str, float], dict[str, int]]:
        modes = {name: child.training for name, child in module.named_modules()}
        # What the module logs in validation_step would land in the training step's metrics.
        silenced = {name: vars(module).get(name) for name in ("log", "log_dict")}
        for name in silenced:
            object.__setattr__(module, name, _no_log)
        losses: dict[str, float] = {}
        targets: dict[str, int] = {}
        try:
            module.eval()
            with untouched_randomness(), torch.no_grad():
                for name, loader in self.loaders.items():
                    losses[name], targets[name] = held_out_loss(trainer, module, loader)
        finally:
            for name, before in silenced.items():
                vars(module).pop(name, None)
                if before is not None:
                    object.__setattr__(module, name, before)
            for name, child in module.named_modules():
                child.training = modes[name]
        return losses, targets


def _no_log(*args: Any, **kwargs: Any) -> None:
    """Stands for `module.log` while this callback evaluates."""


def finite(value: float) -> float | None:
    """The value, None if JSON could not hold it."""
    return value if math.isfinite(value) else None


def weight_counts(weights: Any) -> list[int]:
    """Windows per bin of `WEIGHT_EDGES`."""
    relative = np.asarray(weights, np.float64)
    relative = relative / relative.mean()
    return [int(n) for n in np.histogram(np.clip(relative, WEIGHT_EDGES[0], WEIGHT_EDGES[-1]), WEIGHT_EDGES)[0]]
