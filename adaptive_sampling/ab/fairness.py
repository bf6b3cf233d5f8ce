"""What two runs of one seed must share, hashed while they train: an arm that differs is refused, with both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from adaptive_sampling.ab.fingerprint import dataset_settings, differences, digest, module_settings, parameters_digest
from adaptive_sampling.ab.record import RunRecord

TOKEN_TOLERANCE = 0.01
"""Largest relative difference in tokens trained on: batches are equal in windows, and windows may differ in length."""


class FairnessError(ValueError):
    """Two runs that are compared would differ in more than the order of their windows."""


def shared_settings(module: pl.LightningModule, data: Any) -> dict[str, Any]:
    """All of a run's making that must be the same in every arm, for one seed."""
    return {
        "initial_parameters": parameters_digest(module),
        "module": module_settings(module),
        "batch_size": data.batch_size,
        "loader": digest(data.dataloader_settings),
        "dataset": dataset_settings(data.dataset),
        "validation": {name: dataset_settings(loader.dataset) for name, loader in data.validation.items()},
        "shares": data.shares,
    }


def check_making(found: Mapping[str, Any], expected: Mapping[str, Any], arm: str, seed: int) -> None:
    """Refuse a run whose module or data are not those that the comparison was planned with.

    Raises:
        FairnessError: naming what differs.
    """
    changed = differences({name: expected[name] for name in found}, found)
    if changed:
        maker = "make_data" if changed[0].split(":")[0].split(".")[0] in _OF_DATA else "make_module"
        raise FairnessError(
            f"`{maker}` must make the same for every arm of a seed, got in arm {arm!r}, seed {seed}: "
            f"{'; '.join(changed)}. Keep no state between calls, and draw from torch's global generator, which is "
            "seeded before each."
        )


_OF_DATA = ("batch_size", "loader", "dataset", "validation", "shares")


class FairnessWatch(pl.Callback):
    """Hashes optimizers, learning rates and batch sizes of every step, and holds them against the other arms' runs.

    Args:
        record: the run's record, which gets `optimizers`.
        peers: folders of the other arms' runs of the same seed; those that have not begun say nothing.

    State:
        The digest so far, and that of the optimizers at the start: a schedule has changed them since.
    """

    def __init__(self, record: RunRecord, peers: Sequence[Path]) -> None:
        self.record = record
        self.at_start: str | None = None
        self.peers = list(peers)
        self.schedule = ""
        self.windows = 0
        self.rates: list[list[float]] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note the optimizers and compare them, before the first step."""
        if self.at_start is None:
            self.at_start = optimizers_digest(trainer.optimizers)
        self.record.optimizers = self.at_start
        for peer in self._peer_records():
            if peer.optimizers not in (None, self.record.optimizers):
                raise FairnessError(
                    f"arms must have the same optimizers, got {self.record.optimizers} in arm {self.record.arm!r} and "
                    f"{peer.optimizers} in arm {peer.arm!r}, seed {peer.seed}. Make `configure_optimizers` depend on "
                    "nothing but the module's own settings."
                )

    def count(self, trainer: pl.Trainer, num_windows: int) -> None:
        """Take in the step that has just ended; called once per batch."""
        self.windows += num_windows
        # What the next step will use: the first was compared with the optimizers' settings.
        self.rates = [[float(group["lr"]) for group in optimizer.param_groups] for optimizer in trainer.optimizers]
        self.schedule = digest(self.schedule, num_windows, self.rates)

    def compare(self) -> None:
        """Hold the last point of the record's curve against those of the other arms at the same step.

        Raises:
            FairnessError: naming arm, step and both sides.
        """
        point = self.record.curve[-1]
        for peer in self._peer_records():
            theirs = next((other for other in peer.curve if other["step"] == point["step"]), None)
            if theirs is not None:
                check_points(self.record, point, peer, theirs)

    def _peer_records(self) -> list[RunRecord]:
        records = []
        for folder in self.peers:
            try:
                record = RunRecord.load(folder)
            except ValueError:
                continue  # of another version; the runner says so when it comes to that run
            # What another comparison left in that folder is no peer.
            if record is not None and record.settings.get("comparison") == self.record.settings.get("comparison"):
                records.append(record)
        return records

    def state_dict(self) -> dict[str, Any]:
        """The digest so far, as primitives."""
        return {"schedule": self.schedule, "windows": self.windows, "optimizers": self.at_start}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the digest."""
        self.schedule, self.windows = str(state_dict["schedule"]), int(state_dict["windows"])
        self.at_start = state_dict.get("optimizers")


def check_points(run: RunRecord, point: Mapping[str, Any], peer: RunRecord, theirs: Mapping[str, Any]) -> None:
    """Refuse a run that has had another budget or schedule by the same step.

    Raises:
        FairnessError: naming arm, step and both sides.
    """
    where = f"arm {run.arm!r} and arm {peer.arm!r}, seed {run.seed}, at step {point['step']}"
    if point["windows"] != theirs["windows"]:
        raise FairnessError(
            f"arms must train on as many windows, got {point['windows']} and {theirs['windows']} in {where}. "
            "Give every arm the same batch size."
        )
    if point["schedule"] != theirs["schedule"]:
        raise FairnessError(
            f"arms must have the same learning-rate schedule and batch sizes, got {point.get('rates')} and "
            f"{theirs.get('rates')} as the rates reached (digests {point['schedule']} and {theirs['schedule']}) in "
            f"{where}. A schedule must depend on the step alone: not on losses, nor on state kept between runs."
        )
    most = max(point["tokens"], theirs["tokens"])
    if abs(point["tokens"] - theirs["tokens"]) > TOKEN_TOLERANCE * most:
        raise FairnessError(
            f"arms must train on as many tokens, got {point['tokens']} and {theirs['tokens']} in {where}. Windows "
            "differ in length, and one arm prefers short ones: make them equal, for example by pack='concat'."
        )


def optimizers_digest(optimizers: Sequence[torch.optim.Optimizer]) -> str:
    """Digest of classes, group settings and number of parameters per group."""
    return digest(
        [
            {
                "class": f"{type(optimizer).__module__}.{type(optimizer).__qualname__}",
                "groups": [
                    {
                        **{name: value for name, value in group.items() if name != "params"},
                        "parameters": [tuple(parameter.shape) for parameter in group["params"]],
                    }
                    for group in optimizer.param_groups
                ],
            }
            for optimizer in optimizers
        ]
    )
