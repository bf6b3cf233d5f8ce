"""Step time of a Lightning training with `AdaptiveSampling` and `SamplingMonitor` over the same without them."""

from __future__ import annotations

import logging
import statistics
import time
import warnings
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from adaptive_sampling import AdaptiveSampler
from adaptive_sampling.callbacks import AdaptiveSampling, SamplingMonitor
from experiments.benchmarks._row import Row
from experiments.gpt import SmallGPT

NUM_WINDOWS = 10**6
SEQ_LEN, VOCAB_SIZE = 128, 1024
BATCH_SIZE = 8
STEPS = 1000
ROUNDS = 2


class _RandomTokens(Dataset[dict[str, torch.Tensor]]):
    """A million windows without a file: window i repeats one of 64 random rows."""

    def __init__(self, seq_len: int, vocab_size: int) -> None:
        self._rows = torch.randint(0, vocab_size, (64, seq_len + 1), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return NUM_WINDOWS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = self._rows[index % 64]
        return {"input_ids": row[:-1], "labels": row[1:], "window_id": torch.tensor(index)}


class _StepClock(pl.Callback):
    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
        self.ends.append(time.perf_counter())


def _measured(adaptive: bool) -> tuple[float, float]:
    """Seconds per step; per cent of the time that our hooks took by their own clock."""
    model = SmallGPT(VOCAB_SIZE, SEQ_LEN, max_steps=STEPS)
    dataset = _RandomTokens(SEQ_LEN, VOCAB_SIZE)
    clock = _StepClock()
    callbacks: list[pl.Callback] = [clock]
    sampler: Any = RandomSampler(dataset)
    if adaptive:
        sampler = AdaptiveSampler(dataset, seed=0)
        callbacks += [AdaptiveSampling(sampler), SamplingMonitor(sampler)]
    trainer = pl.Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
    )
    trainer.fit(model, DataLoader(dataset, batch_size=BATCH_SIZE, sampler=sampler))
    # The first steps warm up; from then on everything counts, updates and full passes too. A median would leave them
    # out; a mean takes in whatever else the machine did.
    seconds = (clock.ends[-1] - clock.ends[5]) / (len(clock.ends) - 6)
    return seconds, next((c.clock.overhead for c in callbacks if isinstance(c, AdaptiveSampling)), 0.0)


def rows() -> Iterator[Row]:
    """Alternating runs in one process with the defaults of both callbacks, median of the rounds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.ERROR)
        pairs = [(_measured(True), _measured(False)) for _ in range(ROUNDS)]
    ours, peer = (statistics.median(seconds for seconds, _ in runs) for runs in zip(*pairs, strict=True))
    own = statistics.median(overhead for (_, overhead), _ in pairs)
    yield Row(
        f"step time with callback and monitor over without, N = {NUM_WINDOWS:.0e}",
        f"{ours * 1e3:.1f} ms (own clock: {own:.2f} % of it)",
        f"{peer * 1e3:.1f} ms (RandomSampler)",
        ours / peer,
    )
