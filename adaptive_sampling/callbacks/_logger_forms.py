"""Numbers and histograms in each logger's own best form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import CSVLogger, Logger

from adaptive_sampling.callbacks._histogram import Histogram


def log_numbers(logger: Logger, numbers: Mapping[str, float], step: int) -> None:
    """Finite numbers to `logger`; a CSV file gets the others too, so that its columns stay the same."""
    kept = numbers if isinstance(logger, CSVLogger) else {k: v for k, v in numbers.items() if math.isfinite(v)}
    if kept:
        logger.log_metrics(dict(kept), step)


def log_histogram(logger: Logger, key: str, histogram: Histogram, step: int) -> None:
    """A histogram where the logger knows such; else a picture, among its artifacts or in its folder."""
    experiment: Any = getattr(logger, "experiment", None)
    kind = type(logger).__name__
    if hasattr(experiment, "add_histogram_raw"):
        experiment.add_histogram_raw(key, global_step=step, **histogram.raw())
    elif kind == "WandbLogger":
        import wandb  # type: ignore[import-not-found,unused-ignore]

        shown = wandb.Histogram(np_histogram=(histogram.counts.tolist(), histogram.edges.tolist()))
        experiment.log({key: shown, "trainer/global_step": step})
    elif hasattr(experiment, "log_text") and kind == "MLFlowLogger":
        experiment.log_text(logger.run_id, histogram.picture(key), f"{key}/{step:08d}.svg")  # type: ignore[attr-defined]
    elif isinstance(logger, CSVLogger):
        path = Path(logger.log_dir) / f"{key}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(histogram.picture(f"{key}, step {step}"), encoding="utf-8")
