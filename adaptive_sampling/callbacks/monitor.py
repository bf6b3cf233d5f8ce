"""`SamplingMonitor`: what the weights do to the draws, as histograms and numbers."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from numpy.typing import NDArray
from torch.utils.data import WeightedRandomSampler

from adaptive_sampling._arrays import checked_integer
from adaptive_sampling.callbacks._epochwise import EpochwiseSampler, epochwise
from adaptive_sampling.callbacks._hard_windows import HardWindows, Losses
from adaptive_sampling.callbacks._histogram import Histogram
from adaptive_sampling.callbacks._joining import positive_steps
from adaptive_sampling.callbacks._loaders import choose_loader, is_drawn_with, loader_sampler
from adaptive_sampling.callbacks._logger_forms import log_histogram, log_numbers
from adaptive_sampling.callbacks._observed_sources import ObservedSources, sources_of
from adaptive_sampling.callbacks.adaptive_sampling import AdaptiveSampling
from adaptive_sampling.sampling import AdaptiveSampler

_PREFIX = "sampling"
_ON_THE_BAR = ("effective_sample_size", "share_seen", "top_weight")
_ALWAYS = 1 << 17
"""Up to so many windows, all of them are looked at for each log."""
_TIME_SHARE = 0.001
"""Beyond, looks at all windows may take this share of the time."""
_MOST_LOOKED_AT = 1 << 22
"""A look takes in so many windows, evenly spaced, where there are more; the top weight is that of all."""
_HARD_EVERY = 10
_QUICK = 0.02
"""Seconds up to which a pass over the hard windows is not rationed."""
_NAN = float("nan")


class SamplingMonitor(pl.Callback):
    """Logs the sampler's weights to every logger of the Trainer, each in its own form, and three numbers to the bar.

    Keys begin with `sampling/`, or another `prefix`; docs/callback.md explains each. Histograms go to loggers that have
    them, and as a picture to MLflow and the folder of a CSVLogger.

    Args:
        sampler: the sampler to watch; default: found in the train loader.
        every_n_steps: optimizer steps between two logs.
        hard_windows: size of the fixed set of hard windows; 0: none.
        hard_losses: (module, batch) → float `[B]`, the loss of each window, at most 16 at a time; default:
            `module(batch["input_ids"])` gives logits for `batch["labels"]`.
        prefix: begin of the keys; monitors of several samplers each need their own.

    State:
        The ids of the hard windows.

    Cost:
        On rank 0, O(N) per log up to 131,072 windows; beyond, looks at all windows come as rarely as needed to stay
        below 0.1 % of the time, and logs in between repeat what they found. A look takes in 4,194,304 windows, evenly
        spaced, where there are more. A forward pass over the hard windows at every tenth log, 16 at a time; where it
        takes long, as rarely as looks do. A fault in a logger warns once and never stops the training.
    """

    def __init__(
        self,
        sampler: AdaptiveSampler | WeightedRandomSampler | None = None,
        *,
        every_n_steps: int = 100,
        hard_windows: int = 256,
        hard_losses: Losses | None = None,
        prefix: str = _PREFIX,
    ) -> None:
        if sampler is not None and not isinstance(sampler, (AdaptiveSampler, WeightedRandomSampler)):
            raise TypeError(
                f"`sampler` must be an AdaptiveSampler or a WeightedRandomSampler, got {sampler!r}. "
                "Leave it out to watch the one in the train loader."
            )
        if hard_losses is not None and not callable(hard_losses):
            raise TypeError(
                f"`hard_losses` must be a function of module and batch, got {hard_losses!r}. Leave it out for logits."
            )
        if not isinstance(prefix, str) or not prefix:
            raise TypeError(f"`prefix` must be the begin of the logged keys, got {prefix!r}. Try {_PREFIX!r}.")
        self.sampler: AdaptiveSampler | EpochwiseSampler | None
        self.sampler = epochwise(sampler) if isinstance(sampler, WeightedRandomSampler) else sampler
        self.every_n_steps = positive_steps("every_n_steps", every_n_steps)
        self.prefix = prefix
        # Lightning asks for it at every hook of every step.
        self._state_key = super().state_key if prefix == _PREFIX else self._generate_state_key(prefix=prefix)
        self.hard = HardWindows(checked_integer("hard_windows", hard_windows, 0), hard_losses)
        self._given = self.sampler
        self._warned: set[str] = set()
        self._adaptive: AdaptiveSampling | None = None
        self._sources: ObservedSources | None = None
        self._restart()

    def _restart(self) -> None:
        self._logged_at = -1
        self._num_logs = 0
        self._looked_until = self._passed_until = 0.0
        self._looks: dict[str, float] = {}
        self._hard_loss = _NAN
        self._before = (time.perf_counter(), 0.0, 0)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Find the sampler and its callback, and start to count which windows were seen."""
        self._restart()
        self._adaptive, dataset = self._find(trainer)
        if self.sampler is None:
            warnings.warn(
                "SamplingMonitor found no AdaptiveSampler in the train loader and stays silent.", stacklevel=2
            )
            return
        if not is_drawn_with(trainer.train_dataloader, self.sampler):
            warnings.warn(
                "SamplingMonitor watches a sampler that no train loader draws with: what it logs does not change. "
                "Give the loader's sampler to both, or leave out `sampler`.",
                stacklevel=2,
            )
        self.sampler.track_seen()
        self._before = (time.perf_counter(), self._num_seen(), self.sampler.position)
        if self._adaptive is not None and getattr(trainer, "is_global_zero", True):
            self._sources = sources_of(dataset)
            self._adaptive.observers = [*self._adaptive.observers, self._sources.observe]

    def _find(self, trainer: pl.Trainer) -> tuple[AdaptiveSampling | None, Any]:
        for callback in getattr(trainer, "callbacks", ()):
            if isinstance(callback, AdaptiveSampling) and self._given in (None, callback.sampler):
                self.sampler = callback.sampler
                loader = choose_loader(trainer.train_dataloader, callback.loader_key, callback.sampler)[1]
                return callback, getattr(loader, "dataset", None)
        loaders = trainer.train_dataloader
        try:
            loader = choose_loader(loaders, None, self._given)[1]
        except MisconfigurationException:
            loader = None
        self.sampler = self._given or loader_sampler(loader)
        return None, getattr(loader, "dataset", None)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log at step 1 and then every `every_n_steps` optimizer steps."""
        step = trainer.global_step
        if self.sampler is None or step in (0, self._logged_at) or (step != 1 and step % self.every_n_steps):
            return
        self._logged_at = step
        if not trainer.is_global_zero:
            return
        start = time.perf_counter()
        try:
            self._log(trainer, pl_module, step)
        except Exception as error:
            self._warn_once("itself", f"SamplingMonitor failed: {error!r}. Training goes on.")
        if self._adaptive is not None:
            self._adaptive.clock.add(time.perf_counter() - start)

    def _log(self, trainer: pl.Trainer, pl_module: pl.LightningModule, step: int) -> None:
        assert self.sampler is not None
        histograms: dict[str, Histogram | None] = {}
        now = time.perf_counter()
        if self.sampler.num_windows <= _ALWAYS or now >= self._looked_until:
            histograms = self._look_at_all()
            took = time.perf_counter() - now
            self._looked_until = now + took / _TIME_SHARE
        if now >= self._passed_until and (self._num_logs % _HARD_EVERY == 0 or not math.isfinite(self._hard_loss)):
            now = time.perf_counter()
            self._hard_loss = self.hard.mean_loss(trainer, pl_module, self._dataset(trainer))
            took = time.perf_counter() - now
            self._passed_until = now + took / _TIME_SHARE if took > _QUICK else 0.0
        self._num_logs += 1
        numbers = {**self._looks, **self._rates(), **self._ours(), "hard_windows_loss": self._hard_loss}
        if self._sources is not None:
            numbers |= self._sources.take()
        if not trainer.barebones:
            shown = {f"{self.prefix}/{k}": numbers[k] for k in _ON_THE_BAR if math.isfinite(numbers[k])}
            pl_module.log_dict(
                {
                    key: torch.tensor(value, device=pl_module.device, dtype=torch.float32)
                    for key, value in shown.items()
                },
                prog_bar=True,
                logger=False,
                on_step=True,
                on_epoch=False,
                batch_size=1,
                rank_zero_only=True,
            )
        keyed = {f"{self.prefix}/{key}": value for key, value in numbers.items()}
        for logger in trainer.loggers:
            name = type(logger).__name__
            try:
                log_numbers(logger, keyed, step)
                for key, histogram in histograms.items():
                    if histogram is not None:
                        log_histogram(logger, key, histogram, step)
            except Exception as error:
                self._warn_once(name, f"SamplingMonitor could not log to {name}: {error!r}. Training goes on.")

    def _warn_once(self, about: str, message: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            warnings.warn(message, stacklevel=3)

    def _dataset(self, trainer: pl.Trainer) -> Any:
        return self._find(trainer)[1]

    # --- numbers ----------------------------------------------------------------------------------------------------

    def _look_at_all(self) -> dict[str, Histogram | None]:
        """What takes a look at all windows: numbers into `_looks`; the histograms."""
        assert self.sampler is not None
        every = -(-self.sampler.num_windows // _MOST_LOOKED_AT)
        largest, weights = float(self.sampler.weights.max()), self.sampler.weights[::every]
        self.hard.choose(weights, every)
        self._looks = {**weight_summary(weights, largest), "share_at_floor": _NAN, "share_at_cap": _NAN}
        histograms = {f"{self.prefix}/weights": Histogram.of(relative_weights(weights))}
        if self._adaptive is not None:
            policy = self._adaptive.policy
            least, most = policy.limits
            own = policy.weights[::every]
            self._looks["share_at_floor"] = float(np.count_nonzero(own <= least)) / len(own)
            self._looks["share_at_cap"] = float(np.count_nonzero(own >= most)) / len(own)
            histograms[f"{self.prefix}/scores"] = Histogram.of(policy.scores[::every])
        return histograms

    def _num_seen(self) -> float:
        assert self.sampler is not None
        return self.sampler.share_seen * self.sampler.num_windows

    def _rates(self) -> dict[str, float]:
        assert self.sampler is not None
        now, seen, position = time.perf_counter(), self._num_seen(), self.sampler.position
        (then, seen_then, position_then), self._before = self._before, (now, seen, position)
        draws, hours = position - position_then, max(now - then, 1e-9) / 3600
        return {
            "share_seen": self.sampler.share_seen,
            "share_never_seen": 1.0 - self.sampler.share_seen,
            "unique_windows_per_hour": (seen - seen_then) / hours,
            "repeat_rate": max(1.0 - (seen - seen_then) / draws, 0.0) if draws > 0 else _NAN,
        }

    def _ours(self) -> dict[str, float]:
        assert self.sampler is not None
        ours = self._adaptive
        return {
            "lag_steps": float(self.sampler.lag),
            "update_seconds": _NAN if ours is None else ours.clock.update_seconds,
            "pass_seconds": _NAN if ours is None else ours.clock.pass_seconds,
            "overhead_percent": _NAN if ours is None else ours.clock.overhead,
            "observations": _NAN if ours is None else float(ours.num_observations),
            "losses_not_finite": _NAN if ours is None else float(ours.policy.dropped),
        }

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def state_key(self) -> str:
        """Key of the state in a checkpoint; monitors of different prefixes keep apart."""
        return self._state_key

    def state_dict(self) -> dict[str, Any]:
        """The ids of the hard windows."""
        return {"hard_windows": torch.from_numpy(self.hard.ids.copy())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Watch the same hard windows again."""
        if "hard_windows" in state_dict:
            self.hard.ids = state_dict["hard_windows"].numpy().astype(np.int64)


def weight_summary(weights: NDArray[np.float32], largest: float) -> dict[str, float]:
    """Effective sample size as a share of N, and the `largest` weight over the mean; both 1 for equal weights."""
    return {
        "effective_sample_size": float(1.0 / np.square(relative_weights(weights)).mean()),
        "top_weight": largest / _mean(weights),
    }


def relative_weights(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Weights over their mean, float64 `[N]`."""
    return weights.astype(np.float64) / _mean(weights)


def _mean(weights: NDArray[np.float32]) -> float:
    return max(float(weights.mean(dtype=np.float64)), np.finfo(np.float64).tiny)
