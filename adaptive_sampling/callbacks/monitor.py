"""`SamplingMonitor`: what the weights do to the draws, as histograms and a few numbers."""

from __future__ import annotations

import warnings
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from numpy.typing import NDArray

from adaptive_sampling.callbacks._epochwise import EpochwiseSampler
from adaptive_sampling.callbacks._loaders import loader_sampler
from adaptive_sampling.sampling import AdaptiveSampler

_BINS = 64


class SamplingMonitor(pl.Callback):
    """Logs the sampler's weights: histograms where a logger takes them, three numbers to every logger and the bar.

    | key | meaning |
    |---|---|
    | `sampling/effective_sample_size` | (Σw)² / (N·Σw²), in (0, 1]; 1 = uniform |
    | `sampling/share_seen` | share of the windows trained on at least once |
    | `sampling/top_weight` | largest weight over the mean weight |
    | `sampling/weights` | histogram of weight over mean weight (TensorBoard) |

    Args:
        sampler: the sampler to watch; default: found in the train loader.
        every_n_steps: optimizer steps between two logs.

    Cost:
        O(N) per log on rank 0; nothing in between. A fault in a logger warns once and never stops the training.
    """

    def __init__(self, sampler: AdaptiveSampler | None = None, *, every_n_steps: int = 100) -> None:
        if isinstance(every_n_steps, bool) or not isinstance(every_n_steps, int) or every_n_steps < 1:
            raise ValueError(f"`every_n_steps` must be a positive number of steps, got {every_n_steps!r}.")
        self.sampler: AdaptiveSampler | EpochwiseSampler | None = sampler
        self.every_n_steps = every_n_steps
        self._given = sampler
        self._logged_at = -1
        self._warned = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Find the sampler and start to count which windows were seen."""
        self._logged_at = -1
        self.sampler = self._given or loader_sampler(trainer.train_dataloader)
        if self.sampler is None:
            warnings.warn(
                "SamplingMonitor found no AdaptiveSampler in the train loader and stays silent.", stacklevel=2
            )
        else:
            self.sampler.track_seen()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log at step 1 and then every `every_n_steps` optimizer steps."""
        step = trainer.global_step
        if self.sampler is None or step == self._logged_at or (step != 1 and step % self.every_n_steps):
            return
        self._logged_at = step
        weights = self.sampler.weights
        scalars = weight_summary(weights)
        scalars["share_seen"] = self.sampler.share_seen
        pl_module.log_dict(
            {f"sampling/{k}": torch.tensor(v, device=pl_module.device) for k, v in scalars.items() if np.isfinite(v)},
            prog_bar=True,
            logger=bool(trainer.loggers),
            on_step=True,
            on_epoch=False,
            batch_size=1,
        )
        if trainer.is_global_zero:
            self._log_histograms(trainer, weights, step)

    def _log_histograms(self, trainer: pl.Trainer, weights: NDArray[np.float32], step: int) -> None:
        for logger in trainer.loggers:
            try:
                add = getattr(getattr(logger, "experiment", None), "add_histogram_raw", None)
                if add is not None:
                    add("sampling/weights", global_step=step, **raw_histogram(weights))
            except Exception as error:
                if not self._warned:
                    self._warned = True
                    warnings.warn(
                        f"SamplingMonitor could not log to {type(logger).__name__}: {error!r}. Training goes on.",
                        stacklevel=2,
                    )


def weight_summary(weights: NDArray[np.float32]) -> dict[str, float]:
    """Effective sample size as a share of N, and the top weight over the mean; both 1 for equal weights."""
    total = float(weights.sum(dtype=np.float64))
    squares = float(np.square(weights, dtype=np.float64).sum())
    return {
        "effective_sample_size": total * total / (len(weights) * squares),
        "top_weight": float(weights.max()) * len(weights) / total,
    }


def raw_histogram(weights: NDArray[np.float32]) -> dict[str, Any]:
    """Arguments of TensorBoard's `add_histogram_raw` for weight over mean weight, in at most 64 bins."""
    relative = weights.astype(np.float64) * (len(weights) / weights.sum(dtype=np.float64))
    low, high = float(relative.min()), float(relative.max())
    # Equal weights still need a bin with a width to be seen.
    counts, edges = np.histogram(relative, bins=_BINS, range=(low, high if high > low else low + 1e-6))
    return {
        "min": low,
        "max": high,
        "num": len(relative),
        "sum": float(relative.sum()),
        "sum_squares": float(np.square(relative).sum()),
        "bucket_limits": edges[1:].tolist(),
        "bucket_counts": counts.tolist(),
    }
