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

SIZES, LARGE_SIZE = (10**6,), 10**8  # windows
SEQ_LEN, VOCAB_SIZE = 128, 1024
BATCH_SIZE = 12  # steps of 50 ms or more
STEPS = 1000
ROUNDS = 2


class _RandomTokens(Dataset[dict[str, torch.Tensor]]):
    """Many windows without a file: window i repeats one of 64 random rows."""

    def __init__(self, num_windows: int, seq_len: int, vocab_size: int) -> None:
        self._num_windows = num_windows
        self._rows = torch.randint(0, vocab_size, (64, seq_len + 1), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self._num_windows

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = self._rows[index % 64]
        return {"input_ids": row[:-1], "labels": row[1:], "window_id": torch.tensor(index)}


class _StepClock(pl.Callback):
    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
        self.ends.append(time.perf_counter())


def _measured(num_windows: int, hard_windows: int | None) -> tuple[float, float]:
    """Seconds per step; per cent of the time that our hooks took by their own clock. `hard_windows`: None: uniform."""
    model = SmallGPT(VOCAB_SIZE, SEQ_LEN, max_steps=STEPS)
    dataset = _RandomTokens(num_windows, SEQ_LEN, VOCAB_SIZE)
    clock = _StepClock()
    callbacks: list[pl.Callback] = [clock]
    sampler: Any = RandomSampler(dataset)
    if hard_windows is not None:
        sampler = AdaptiveSampler(dataset, seed=0)
        callbacks += [AdaptiveSampling(sampler), SamplingMonitor(sampler, hard_windows=hard_windows)]
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


def rows(*, large: bool = False) -> Iterator[Row]:
    """Alternating runs in one process, median of the rounds: all defaults, and without the monitor's hard windows.

    These cost a forward pass of 256 windows at the first log, which a training of 1,000 steps notices and a long one
    does not.
    """
    words = {256: "callback and monitor", 0: "the same without hard windows"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.ERROR)
        for size in (*SIZES, *([LARGE_SIZE] if large else [])):
            rounds = [{hard: _measured(size, hard) for hard in (*words, None)} for _ in range(ROUNDS)]
            peer = statistics.median(figures[None][0] for figures in rounds)
            for hard, what in words.items():
                ours, own = (statistics.median(figures[hard][k] for figures in rounds) for k in (0, 1))
                yield Row(
                    f"step time with {what}, N = {size:.0e}",
                    f"{ours * 1e3:.1f} ms (own clock: {own:.2f} % of it)",
                    f"{peer * 1e3:.1f} ms (RandomSampler)",
                    ours / peer,
                )
