"""Held-out losses, weight histograms and draws at fixed steps, the same for every arm, their time counted apart."""

from __future__ import annotations

import inspect
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch.utils.data import DataLoader

from adaptive_sampling.ab._seeding import untouched_randomness
from adaptive_sampling.ab.fairness import FairnessWatch
from adaptive_sampling.ab.held_out import Kind
from adaptive_sampling.ab.record import RunRecord, Timing
from adaptive_sampling.sampling import AdaptiveSampler

WEIGHT_EDGES = np.geomspace(0.05, 20.0, 41)
"""Edges of 40 bins of weight over mean weight; what lies outside counts in the outermost bins."""

MOST_DRAWS_SHOWN = 20
"""Windows drawn more often share the last bin."""

Losses = dict[str, dict[Kind, tuple[float, int]]]


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
    return num_windows(batch)


def num_windows(batch: Any) -> int:
    """Windows in a batch: the length of its first entry."""
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        batch = batch[0]
    return len(batch)


def held_out_loss(
    trainer: pl.Trainer, module: pl.LightningModule, loader: DataLoader[Any], most: int | None = None
) -> tuple[float, int]:
    """Mean of what `validation_step` returns, each batch weighted by its targets.

    Args:
        trainer: whose strategy and precision are used.
        module: in eval mode.
        loader: held-out batches.
        most: batches to look at; None: all.

    Returns:
        Loss per target (nats, for cross-entropy) and the number of targets; NaN and 0 where `most` batches hold none.

    Raises:
        TypeError: if `validation_step` returns neither a loss nor a dict with "loss".
        ValueError: if the loader yields no target.
    """
    step = module.validation_step
    extra = {"dataloader_idx": 0} if "dataloader_idx" in inspect.signature(step).parameters else {}
    total, targets = 0.0, 0
    for index, batch in enumerate(itertools.islice(loader, most)):
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
    if targets == 0 and most is not None:
        return math.nan, 0  # padding comes in whole batches, too
    if targets == 0:
        raise ValueError("a validation loader yields no target. Give it held-out windows.")
    return total / targets, targets


class HeldOutEvaluation(pl.Callback):
    """Fills a `RunRecord` while training goes on.

    Args:
        record: the record to fill.
        steps: optimizer steps after which to evaluate.
        loaders: per source, validation loader per kind of held-out window.
        shares: share of each source in the loss over all; None: by their targets.
        sampler: the sampler whose weights are kept as histograms, if it has weights.
        watch: digests of schedule and batch sizes; told of every batch, asked to compare at every evaluation.
        windows: number of training windows, whose draws are counted.
        report: called with the record after each evaluation.

    State:
        The record, times included, and the counts of draws.
    """

    def __init__(
        self,
        record: RunRecord,
        steps: Sequence[int],
        loaders: Mapping[str, Mapping[Kind, DataLoader[Any]]],
        shares: Mapping[str, float] | None,
        sampler: AdaptiveSampler | None,
        watch: FairnessWatch,
        windows: int,
        report: Callable[[RunRecord], None],
    ) -> None:
        self.record = record
        self.steps = set(steps)
        self.loaders = {name: dict(parts) for name, parts in loaders.items()}
        self.shares = shares
        self.sampler = sampler
        self.watch = watch
        self.report = report
        self.draws = torch.zeros(windows, dtype=torch.int32)
        self._tokens = 0
        self._evaluated_at = 0
        self._resumed_at = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Try a held-out batch, so that a fault shows before the first step; start the clock where it was."""
        if not self._evaluated_at:
            self._losses(trainer, pl_module, most=1)
        timing = self.record.timing
        self._resumed_at = time.perf_counter() - timing.train_seconds - timing.eval_seconds

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count tokens, windows and draws; evaluate when the step is due."""
        self._tokens += num_targets(batch)
        self.watch.count(trainer, num_windows(batch))
        ids = batch.get("window_id") if isinstance(batch, Mapping) else None
        if isinstance(ids, torch.Tensor):
            ids = ids.reshape(-1).cpu()
            self.draws.index_add_(0, ids, torch.ones(len(ids), dtype=torch.int32))
        step = trainer.global_step
        # Under gradient accumulation several batches end at the same step.
        if step in self.steps and step != self._evaluated_at:
            self._evaluated_at = step
            self._evaluate(trainer, pl_module, step)

    def _evaluate(self, trainer: pl.Trainer, module: pl.LightningModule, step: int) -> None:
        began = time.perf_counter()
        losses = self._losses(trainer, module)
        record, timing = self.record, self.record.timing
        point = {
            "step": step,
            "tokens": self._tokens,
            "windows": self.watch.windows,
            "schedule": self.watch.schedule,
            "rates": self.watch.rates,
            **held_out_point(losses, self.shares),
        }
        if self.sampler is not None:
            record.weight_edges = WEIGHT_EDGES.tolist()
            record.weight_history.append({"step": step, "counts": weight_counts(self.sampler.weights)})
        record.draw_counts = np.bincount(np.minimum(self.draws.numpy(), MOST_DRAWS_SHOWN)).tolist()
        record.curve.append(point)
        timing.eval_seconds += time.perf_counter() - began
        timing.train_seconds = time.perf_counter() - self._resumed_at - timing.eval_seconds
        timing.points.append([step, timing.train_seconds, timing.eval_seconds])
        if point["loss"] is None:
            record.status, record.error = "diverged", f"the held-out loss is not finite after step {step}"
            trainer.should_stop = True
        for logger in trainer.loggers:
            shown = {**point["losses"], "overall": point["loss"]}
            logger.log_metrics({f"held_out/{k}": v for k, v in shown.items() if v is not None}, step=step)
        self.report(record)
        self.watch.compare()

    def _losses(self, trainer: pl.Trainer, module: pl.LightningModule, most: int | None = None) -> Losses:
        modes = {name: child.training for name, child in module.named_modules()}
        # What the module logs in validation_step would land in the training step's metrics.
        silenced = {name: vars(module).get(name) for name in ("log", "log_dict")}
        for name in silenced:
            object.__setattr__(module, name, _no_log)
        try:
            module.eval()
            with untouched_randomness(), torch.no_grad():
                return {
                    source: {kind: held_out_loss(trainer, module, loader, most) for kind, loader in parts.items()}
                    for source, parts in self.loaders.items()
                }
        finally:
            for name, before in silenced.items():
                vars(module).pop(name, None)
                if before is not None:
                    object.__setattr__(module, name, before)
            for name, child in module.named_modules():
                child.training = modes[name]

    def state_dict(self) -> dict[str, Any]:
        """Record, times, counts: primitives and one tensor."""
        timing = self.record.timing
        timing.train_seconds = time.perf_counter() - self._resumed_at - timing.eval_seconds
        return {
            "record": self.record.as_dict(),
            "timing": asdict(timing),
            "draws": self.draws,
            "tokens": self._tokens,
            "evaluated_at": self._evaluated_at,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with what was counted; the record of this very object is filled, since others hold it too."""
        kept = RunRecord.from_dict(state_dict["record"], state_dict["timing"])
        for name, value in vars(kept).items():
            setattr(self.record, name, value)
        self.record.timing = Timing(**state_dict["timing"])
        self.draws = state_dict["draws"].clone()
        self._tokens, self._evaluated_at = int(state_dict["tokens"]), int(state_dict["evaluated_at"])


def _no_log(*args: Any, **kwargs: Any) -> None:
    """Stands for `module.log` while this callback evaluates."""


def held_out_point(losses: Losses, shares: Mapping[str, float] | None) -> dict[str, Any]:
    """The held-out part of a point of the curve, from the losses of the disjoint kinds of windows."""
    clean = {
        source: mixed
        for source, parts in losses.items()
        if (mixed := _mixed([parts[kind] for kind in ("plain", "scarce") if kind in parts])) is not None
    }
    point = _summed(clean, shares)
    point["as_split"] = None
    if any("copies" in parts for parts in losses.values()):
        whole = {source: _mixed(list(parts.values())) for source, parts in losses.items()}
        point["as_split"] = _summed({name: value for name, value in whole.items() if value is not None}, shares)
    scarce = _mixed([parts["scarce"] for parts in losses.values() if "scarce" in parts])
    point["scarce"] = None if scarce is None else {"loss": finite(scarce[0]), "targets": scarce[1]}
    return point


def _mixed(parts: Sequence[tuple[float, int]]) -> tuple[float, int] | None:
    """Mean over parts, weighted by their targets."""
    if not parts:
        return None
    targets = sum(count for _, count in parts)
    if len(parts) == 1:
        return parts[0]
    return sum(loss * count for loss, count in parts) / targets, targets


def _summed(sources: Mapping[str, tuple[float, int]], shares: Mapping[str, float] | None) -> dict[str, Any]:
    weights = {name: float(count) if shares is None else shares[name] for name, (_, count) in sources.items()}
    overall = sum(loss * weights[name] for name, (loss, _) in sources.items()) / sum(weights.values())
    return {
        "losses": {name: finite(loss) for name, (loss, _) in sources.items()},
        "targets": {name: count for name, (_, count) in sources.items()},
        "loss": finite(overall),
    }


def finite(value: float) -> float | None:
    """The value, None if JSON could not hold it."""
    return value if math.isfinite(value) else None


def weight_counts(weights: Any) -> list[int]:
    """Windows per bin of `WEIGHT_EDGES`."""
    relative = np.asarray(weights, np.float64)
    relative = relative / relative.mean()
    return [int(n) for n in np.histogram(np.clip(relative, WEIGHT_EDGES[0], WEIGHT_EDGES[-1]), WEIGHT_EDGES)[0]]
