"""One run: one arm, one seed, a fresh module, sampler, policy and Trainer, in a folder of its own."""

from __future__ import annotations

import importlib.util
import logging
import shutil
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch.utils.data import RandomSampler

from adaptive_sampling._random import keyed_generator, stable_hash
from adaptive_sampling.ab._seeding import seeded
from adaptive_sampling.ab.arms import Arm, PolicySource, TrainingData, fresh_policy
from adaptive_sampling.ab.evaluation import HeldOutEvaluation
from adaptive_sampling.ab.fingerprint import parameters_digest
from adaptive_sampling.ab.record import RunRecord
from adaptive_sampling.callbacks import AdaptiveSampling, SamplingMonitor
from adaptive_sampling.sampling import AdaptiveSampler

MakeModule = Callable[[], pl.LightningModule]
MakeData = Callable[[], TrainingData]


class FairnessError(ValueError):
    """Two runs that are compared would differ in more than the order of their windows."""


@dataclass(frozen=True)
class RunPlan:
    """All that one run needs besides the functions that make module and data."""

    arm: Arm
    source: PolicySource | None
    seed: int
    max_steps: int
    steps: tuple[int, ...]
    fingerprint: str
    settings: Mapping[str, Any]
    trainer_settings: Mapping[str, Any]
    folder: Path

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return self.folder.name


def execute(
    plan: RunPlan, make_module: MakeModule, make_data: MakeData, report: Callable[[RunRecord], None] | None = None
) -> RunRecord:
    """Train one arm with one seed and leave `run.json` in its folder.

    An exception in training marks the run as failed and is not raised, so that the other runs stand.

    Raises:
        FairnessError: if the module does not start from the parameters that the seed stands for.
        KeyboardInterrupt: if it came while training.
    """
    if plan.folder.exists():
        shutil.rmtree(plan.folder)  # what a broken-off run left
    plan.folder.mkdir(parents=True)
    record = RunRecord(plan.arm.name, plan.seed, plan.fingerprint, dict(plan.settings))
    record.save(plan.folder)

    def note(current: RunRecord) -> None:
        current.save(plan.folder)
        if report is not None:
            report(current)

    try:
        _train(plan, make_module, make_data, record, note)
    except (FairnessError, KeyboardInterrupt):
        raise
    except Exception as error:
        record.status = "failed"
        record.error = f"{type(error).__name__}: {error}"
        (plan.folder / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
    else:
        if record.status == "running":
            record.status = "finished"
    note(record)
    return record


def _train(
    plan: RunPlan,
    make_module: MakeModule,
    make_data: MakeData,
    record: RunRecord,
    note: Callable[[RunRecord], None],
) -> None:
    with seeded(plan.seed), warnings.catch_warnings(), _quiet_lightning():
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        warnings.filterwarnings("ignore", message=".*smaller than the logging interval.*")
        warnings.filterwarnings("ignore", message=".*GPU available but not used.*")
        warnings.filterwarnings("ignore", message=".*LeafSpec.*")
        warnings.filterwarnings("ignore", message=".*tensorboardX.*")
        # The held-out loss is taken by a callback at fixed steps, not by Lightning's validation loop.
        warnings.filterwarnings("ignore", message=".*have no `val_dataloader`.*")
        module = make_module()
        found, expected = parameters_digest(module), plan.settings["initial_parameters"]
        if found != expected:
            raise FairnessError(
                f"`make_module` must make the same parameters for the same seed, got {found} in arm {plan.arm.name!r}, "
                f"seed {plan.seed}, instead of {expected}. Draw initial parameters from torch's global generator, "
                "which is seeded before each call, and keep no state between calls."
            )
        data = make_data()
        sampler, callbacks = _sampler(plan, data)
        weighted = sampler if isinstance(sampler, AdaptiveSampler) else None
        callbacks.append(HeldOutEvaluation(record, plan.steps, data.validation, weighted, note))
        logger = (
            TensorBoardLogger(plan.folder, name="tensorboard", version="")
            if importlib.util.find_spec("tensorboard")
            else CSVLogger(plan.folder, name="csv", version="")
        )
        trainer = pl.Trainer(
            max_steps=plan.max_steps,
            max_epochs=-1,
            logger=logger,
            callbacks=callbacks,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            limit_val_batches=0,
            **{"devices": 1, **plan.trainer_settings},
        )
        # Order, dropout and all else start alike in every arm, whatever making module, data and policy has drawn.
        torch.manual_seed(stable_hash(plan.seed, "training") % 2**63)
        try:
            trainer.fit(module, data.loader(sampler))
        except SystemExit as stop:  # Lightning turns Ctrl-C into an exit
            raise KeyboardInterrupt from stop
        if trainer.global_step < plan.max_steps and record.status == "running":
            raise RuntimeError(f"training stopped by itself after step {trainer.global_step} of {plan.max_steps}.")


def _sampler(plan: RunPlan, data: TrainingData) -> tuple[RandomSampler | AdaptiveSampler, list[pl.Callback]]:
    """The sampler of the arm and the callbacks that move its weights."""
    order_seed = stable_hash(plan.seed, "order") % 2**63
    if plan.source is None:
        return RandomSampler(data.dataset, generator=torch.Generator().manual_seed(order_seed)), []
    sampler = AdaptiveSampler(data.dataset, draws=plan.arm.draws, seed=order_seed)
    permutation = None
    if plan.arm.kind == "placebo":
        permutation = keyed_generator(plan.seed, "placebo").permutation(len(data.dataset))
    callback = AdaptiveSampling(
        sampler, fresh_policy(plan.source), update_every=plan.arm.update_every, permutation=permutation
    )
    return sampler, [callback, SamplingMonitor(sampler, every_n_steps=max(1, plan.max_steps // 20))]


class _quiet_lightning:
    """No banner and no device table per run; the levels are restored."""

    names = ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero")

    def __enter__(self) -> None:
        self.levels = [logging.getLogger(name).level for name in self.names]
        for name in self.names:
            logging.getLogger(name).setLevel(logging.ERROR)

    def __exit__(self, *exception: object) -> None:
        for name, level in zip(self.names, self.levels, strict=True):
            logging.getLogger(name).setLevel(level)
