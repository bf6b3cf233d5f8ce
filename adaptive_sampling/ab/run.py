"""One run: one arm, one seed, a fresh module, sampler, policy and Trainer, in a folder of its own."""

from __future__ import annotations

import errno
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

from adaptive_sampling._random import keyed_generator, stable_hash
from adaptive_sampling.ab._lock import file_lock
from adaptive_sampling.ab._seeding import seeded
from adaptive_sampling.ab.arms import Arm, PolicySource, TrainingData, fresh_policy
from adaptive_sampling.ab.checkpoints import FILE_NAME as CHECKPOINT
from adaptive_sampling.ab.checkpoints import Interrupt, RunCheckpoint
from adaptive_sampling.ab.evaluation import HeldOutEvaluation
from adaptive_sampling.ab.fairness import FairnessError, FairnessWatch, check_making, shared_settings
from adaptive_sampling.ab.held_out import HeldOutSplit, part_loaders
from adaptive_sampling.ab.order import EpochShuffle
from adaptive_sampling.ab.record import RunRecord
from adaptive_sampling.ab.texts import extremes
from adaptive_sampling.callbacks import AdaptiveSampling, SamplingMonitor
from adaptive_sampling.errors import StateMismatchError
from adaptive_sampling.sampling import AdaptiveSampler

MakeModule = Callable[[], pl.LightningModule]
MakeData = Callable[[], TrainingData]


class DiskFullError(OSError):
    """A run could not write what it must; what had ended before is kept."""


@dataclass(frozen=True)
class RunPlan:
    """All that one run needs besides the functions that make module and data."""

    arm: Arm
    source: PolicySource | None
    seed: int
    max_steps: int
    steps: tuple[int, ...]
    checkpoint_every: int
    fingerprint: str
    settings: Mapping[str, Any]
    trainer_settings: Mapping[str, Any]
    split: HeldOutSplit
    folder: Path
    peers: tuple[Path, ...]

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return self.folder.name


def execute(
    plan: RunPlan, make_module: MakeModule, make_data: MakeData, report: Callable[[RunRecord], None] | None = None
) -> RunRecord:
    """Train one arm with one seed, from its last checkpoint if it was broken off, and leave `run.json` in its folder.

    An exception in training marks the run as failed and is not raised, so that the other runs stand.

    Raises:
        FairnessError: if the run differs from the other arms in more than the order of windows.
        DiskFullError: if there is no room for its record.
        FolderInUseError: if another process works on this very run.
        KeyboardInterrupt: if it came while training; the run can go on from there.
    """
    try:
        with file_lock(plan.folder.with_name(f".{plan.name}.lock"), plan.folder):
            return _execute(plan, make_module, make_data, report)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise DiskFullError(
            f"the disk that holds {plan.folder} is full, so {plan.name} stopped. Runs that had ended are kept: free "
            "some space and give the same command again."
        ) from error


def _execute(
    plan: RunPlan, make_module: MakeModule, make_data: MakeData, report: Callable[[RunRecord], None] | None
) -> RunRecord:
    checkpoint = _usable_checkpoint(plan)
    record = RunRecord(plan.arm.name, plan.seed, plan.fingerprint, dict(plan.settings))
    if checkpoint is None:
        if plan.folder.exists():
            shutil.rmtree(plan.folder)  # what a broken-off run left
        plan.folder.mkdir(parents=True)
        record.save(plan.folder)

    def note(current: RunRecord) -> None:
        current.save(plan.folder)
        if report is not None:
            report(current)

    interrupt = Interrupt()
    try:
        _train(plan, make_module, make_data, record, note, checkpoint, interrupt)
    except (FairnessError, KeyboardInterrupt):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        if isinstance(error, StateMismatchError) and checkpoint is not None:
            # Of another version of this package, say: it would fail at every further try.
            _warn_anew(checkpoint, plan, error)
            checkpoint.unlink()
            return _execute(plan, make_module, make_data, report)
        record.status = "failed"
        record.error = f"{type(error).__name__}: {error}"
        (plan.folder / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
    else:
        if record.status == "running":
            record.status = "finished"
        (plan.folder / CHECKPOINT).unlink(missing_ok=True)
    note(record)
    if interrupt.asked:
        raise KeyboardInterrupt
    return record


def _usable_checkpoint(plan: RunPlan) -> Path | None:
    """The checkpoint of this very run, if it was broken off and can be read."""
    path = plan.folder / CHECKPOINT
    try:
        begun = RunRecord.load(plan.folder)
    except ValueError:
        begun = None
    if begun is None or begun.fingerprint != plan.fingerprint or not path.exists():
        return None
    try:
        torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        _warn_anew(path, plan, error)
        return None
    return path


def _warn_anew(path: Path, plan: RunPlan, error: Exception) -> None:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    warnings.warn(
        f"{path} cannot be loaded as tensors and plain values of this version ({reason}), so {plan.name} starts anew. "
        "Hyperparameters that are objects are a frequent cause: leave them out of save_hyperparameters.",
        stacklevel=3,
    )


def _train(
    plan: RunPlan,
    make_module: MakeModule,
    make_data: MakeData,
    record: RunRecord,
    note: Callable[[RunRecord], None],
    checkpoint: Path | None,
    interrupt: Interrupt,
) -> None:
    with seeded(plan.seed), warnings.catch_warnings(), _quiet_lightning(), interrupt.watched():
        for message in _KNOWN_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        if plan.arm.coupled:
            warnings.filterwarnings("ignore", message="no learned weight can count")  # none is meant to
        module = make_module()
        data = make_data()
        check_making(shared_settings(module, data), plan.settings, plan.arm.name, plan.seed)
        sampler, callbacks = _sampler(plan, data)
        weighted = sampler if isinstance(sampler, AdaptiveSampler) else None
        shuffle = sampler if isinstance(sampler, EpochShuffle) else None
        watch = FairnessWatch(record, plan.peers)
        evaluation = HeldOutEvaluation(
            record,
            plan.steps,
            part_loaders(data, plan.split),
            data.shares,
            weighted,
            watch,
            len(data.dataset),
            note,
        )
        saving = RunCheckpoint(plan.folder, plan.checkpoint_every, plan.max_steps, shuffle, interrupt)
        logger = (
            TensorBoardLogger(plan.folder, name="tensorboard", version="")
            if importlib.util.find_spec("tensorboard")
            else CSVLogger(plan.folder, name="csv", version="")
        )
        trainer = pl.Trainer(
            max_steps=plan.max_steps,
            max_epochs=-1,
            logger=logger,
            callbacks=[*callbacks, watch, evaluation, saving],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            limit_val_batches=0,
            **{"devices": 1, **plan.trainer_settings},
        )
        # Order, dropout and all else start alike in every arm, whatever making module, data and policy has drawn.
        torch.manual_seed(stable_hash(plan.seed, "training") % 2**63)
        loader = data.loader(sampler, stable_hash(plan.seed, "workers") % 2**63)
        try:
            trainer.fit(module, loader, ckpt_path=checkpoint)
        except SystemExit as stop:  # Lightning turns Ctrl-C and SIGTERM into an exit
            raise KeyboardInterrupt from stop
        if trainer.global_step < plan.max_steps and record.status == "running":
            raise RuntimeError(f"training stopped by itself after step {trainer.global_step} of {plan.max_steps}.")
        if weighted is not None:
            record.extremes = extremes(data, evaluation.draws.numpy())


_KNOWN_WARNINGS = (
    ".*does not have many workers.*",
    ".*smaller than the logging interval.*",
    ".*GPU available but not used.*",
    ".*LeafSpec.*",
    ".*tensorboardX.*",
    # The held-out loss is taken by a callback at fixed steps, not by Lightning's validation loop.
    ".*have no `val_dataloader`.*",
    # A run that goes on in its middle: order, place and generators are restored by our callbacks.
    ".*your dataloader is not resumable.*",
    ".*exists and is not empty.*",
    ".*Experiment logs directory.*",
)


def _sampler(plan: RunPlan, data: TrainingData) -> tuple[EpochShuffle | AdaptiveSampler, list[pl.Callback]]:
    """The sampler of the arm and the callbacks that move its weights."""
    order_seed = stable_hash(plan.seed, "order", plan.arm.sampler_seed) % 2**63
    if plan.source is None:
        return EpochShuffle(data.dataset, order_seed), []
    sampler = AdaptiveSampler(data.dataset, draws=plan.arm.draws, seed=order_seed)
    permutation = None
    if plan.arm.kind == "placebo":
        permutation = keyed_generator(plan.seed, "placebo").permutation(len(data.dataset))
    callback = AdaptiveSampling(
        sampler,
        fresh_policy(plan.source),
        update_every=plan.arm.update_every,
        permutation=permutation,
        # A run's checkpoint is renamed into its place: one file.
        max_megabytes_in_checkpoint=float("inf"),
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
