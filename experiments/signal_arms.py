"""Arms of single signals, for scenarios that try them: `arms(data, folder)`.

Excess loss and the curriculum need the loss of each window under another model. Two models like that of the comparison
are trained as long as it, each on half of the documents, and each judges the half that it has not seen, as Mindermann
et al. (2022) do where no further text is at hand. That costs twice a run and is not counted: the arms show what such a
signal gains where its reference is free.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch.utils.data import DataLoader, Subset

from adaptive_sampling._files import atomic_writer
from adaptive_sampling.ab import Arm, TrainingData, folder_lock
from adaptive_sampling.ab.fingerprint import dataset_settings, digest, module_settings
from adaptive_sampling.ab.text_arms import TextAnalysis
from adaptive_sampling.weights import (
    CurriculumSignal,
    ExcessLossSignal,
    Signal,
    WeightPolicy,
    reference_losses,
)

SIGNALS = ("uncertainty", "progress", "excess", "curriculum")
UPDATE_EVERY = 20


@dataclass(frozen=True)
class Training:
    """How a reference model is trained: as in the comparison.

    Attributes:
        module: makes the module.
        max_steps: optimizer steps.
        settings: arguments of the Trainer.
    """

    module: Callable[[], pl.LightningModule]
    max_steps: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    def on(self, dataset: Any, batch_size: int, seed: int) -> pl.LightningModule:
        """A module trained on uniform draws of `dataset`."""
        quiet: dict[str, Any] = dict.fromkeys(
            ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
        )
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)
            module = self.module()
            loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True)
            pl.Trainer(max_steps=self.max_steps, max_epochs=-1, **quiet, **self.settings).fit(module, loader)
        return module


def arms(data: TrainingData, folder: Path, training: Training) -> list[Arm]:
    """One arm per signal, with clusters as groups and without scarcity and priors, as "loss only" has them.

    Args:
        data: of the comparison; its dataset consists of windows of a token store.
        folder: keeps clusters and reference losses.
        training: of the comparison.
    """
    groups = TextAnalysis(data, folder).groups("clusters")
    reference = reference_file(data, folder, training)
    return [
        Arm(name, functools.partial(make_policy, name, groups, reference), update_every=UPDATE_EVERY)
        for name in SIGNALS
    ]


def make_policy(name: str, groups: Path, reference: Path) -> WeightPolicy:
    """The default policy with another signal.

    Args:
        name: one of `SIGNALS`.
        groups: file of groups per window.
        reference: file of reference losses per window.
    """
    signal: str | Signal = name
    if name == "excess":
        signal = ExcessLossSignal(np.load(reference))
    elif name == "curriculum":
        # Hard is what a model predicts badly that has not seen it.
        signal = CurriculumSignal(np.load(reference))
    return WeightPolicy(signal=signal, groups=np.load(groups))


def reference_file(data: TrainingData, folder: Path, training: Training) -> Path:
    """File of the loss of each window, float32 `[N]`, in nats, under a model that has not seen its document."""
    dataset: Any = data.dataset
    made_of = digest(dataset_settings(dataset), module_settings(training.module()), training.max_steps)
    path = folder / f"reference-{made_of}.npy"
    with folder_lock(folder, wait=True):
        if not path.exists():
            halves = [np.flatnonzero(np.asarray(dataset.documents()) % 2 == number) for number in (0, 1)]
            losses = np.empty(len(dataset), np.float32)
            for own, other in ((0, 1), (1, 0)):
                module = training.on(Subset(dataset, halves[own].tolist()), data.batch_size, seed=own)
                part = path.with_name(f"{path.stem}-{own}.npy")
                losses[halves[other]] = reference_losses(module, Subset(dataset, halves[other].tolist()), part)
            with atomic_writer(path) as file:
                np.save(file, losses)
    return path
