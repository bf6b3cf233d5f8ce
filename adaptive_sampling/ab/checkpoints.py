"""Runs that go on in their middle: checkpoints every n steps and on interrupt, with what Lightning leaves out."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch

from adaptive_sampling.ab.order import EpochShuffle

FILE_NAME = "resume.ckpt"


class Interrupt:
    """Was the run asked to stop? The first Ctrl-C waits for the end of the step, the second does not."""

    def __init__(self) -> None:
        self.asked = False

    def _handle(self, signum: int, frame: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Handle SIGINT for the block, in the main thread; elsewhere signals do not come."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


class RunCheckpoint(pl.Callback):
    """Saves the run at step boundaries; must be the last callback, so that all others have taken in the step.

    Args:
        folder: of the run.
        every: optimizer steps between two checkpoints.
        last_step: after which none is worth the time.
        shuffle: the uniform arm's sampler, whose place belongs to the state.
        interrupt: asked after each step.

    State:
        Random generators of Python, NumPy, torch and CUDA, and the place in the shuffle.
    """

    def __init__(
        self, folder: Path, every: int, last_step: int, shuffle: EpochShuffle | None, interrupt: Interrupt
    ) -> None:
        self.path = folder / FILE_NAME
        self.every = every
        self.last_step = last_step
        self.shuffle = shuffle
        self.interrupt = interrupt
        self._saved_at = 0
        self._warned = False
        self._generators: dict[str, Any] | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Put the generators where they were, after all else is set up and before the first batch is read."""
        self._saved_at = trainer.global_step
        if self._generators is not None:
            set_generators(self._generators)
            self._generators = None

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the place in the shuffle; save where it is due or the run is asked to stop."""
        if self.shuffle is not None:
            if trainer.is_last_batch:
                self.shuffle.finish_epoch()
            else:
                assert trainer.train_dataloader is not None
                self.shuffle.consume(int(trainer.train_dataloader.batch_size))
        step, boundary = trainer.global_step, (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        asked = self.interrupt.asked or bool(getattr(trainer, "received_sigterm", False))
        due = asked or step - self._saved_at >= self.every
        if due and (boundary or trainer.is_last_batch) and step < self.last_step and step > self._saved_at:
            self._saved_at = step
            self._save(trainer)
        if self.interrupt.asked:
            raise KeyboardInterrupt

    def _save(self, trainer: pl.Trainer) -> None:
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        try:
            trainer.save_checkpoint(temporary)
            if trainer.is_global_zero:
                os.replace(temporary, self.path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            if self._warned:
                return
            # Without a checkpoint the training can go on all the same.
            self._warned = True
            why = "the disk is full" if error.errno == errno.ENOSPC else str(error)
            warnings.warn(
                f"no checkpoint of {self.path.parent.name} after step {trainer.global_step}: {why}. Broken off, this "
                "run would go on from an earlier step. Free some space.",
                stacklevel=2,
            )

    def state_dict(self) -> dict[str, Any]:
        """Tensors and primitives."""
        return {
            "generators": generators(),
            "shuffle": None if self.shuffle is None else self.shuffle.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The shuffle at once, since loaders may draw right after this; the generators in `on_train_start`."""
        if self.shuffle is not None:
            self.shuffle.load_state_dict(state_dict["shuffle"])
        self._generators = state_dict["generators"]


def generators() -> dict[str, Any]:
    """State of all global generators, as tensors and primitives."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": random.getstate(),
        "numpy": [
            str(name),
            torch.from_numpy(np.asarray(keys, np.int64)),
            int(position),
            int(has_gauss),
            float(cached),
        ],
    }


def set_generators(state: dict[str, Any]) -> None:
    """Counterpart of `generators`; CUDA states of devices that are not here are left out."""
    torch.set_rng_state(state["torch"].cpu())
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([each.cpu() for each in state["cuda"]])
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))  # noqa: NPY002
