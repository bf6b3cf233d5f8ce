"""`ScarcityRefresh`: scarcity in the terms of the module itself, renewed while it learns."""

from __future__ import annotations

import time
import warnings
from typing import Any

import lightning.pytorch as pl
import numpy as np
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray

from adaptive_sampling._arrays import checked_integer
from adaptive_sampling.callbacks._loaders import choose_loader
from adaptive_sampling.callbacks.adaptive_sampling import AdaptiveSampling
from adaptive_sampling.neighbors import module_features
from adaptive_sampling.neighbors._checks import group_codes
from adaptive_sampling.neighbors.indexes import IndexKind
from adaptive_sampling.neighbors.module_features import Forward
from adaptive_sampling.weights import scarcity_scores
from adaptive_sampling.weights.scarcity import ScarcityMeasure


class ScarcityRefresh(pl.Callback):
    """Recomputes the scarcity of all windows from the module's own hidden states, every `every_n_steps` steps.

    On rank 0, between two steps, each window goes through the module once (evaluation mode, no gradients, the module
    and all random states are left as they were), and the new scarcity takes the place of the policy's. It reaches the
    weights with the next update of `AdaptiveSampling`. Other ranks wait for rank 0 at the next step meanwhile.

    Args:
        layer: name of the submodule whose output is averaged over the tokens of a window.
        every_n_steps: optimizer steps between two refreshes; the first comes after so many.
        dataset: windows by id, as the sampler counts them; default: that of the train loader.
        groups: integers `[N]`, usually documents, see `scarcity_scores`.
        measure: see `scarcity_scores`; default: the `scarcity_measure` of the policy.
        num_neighbors: see `scarcity_scores`.
        index: see `scarcity_scores`.
        threshold: see `scarcity_scores`.
        forward: (module, batch) → anything; default: `module(batch["input_ids"])`.
        batch_size: windows at a time.
        loader_key: that of the `AdaptiveSampling` meant, where a Trainer has several.

    Raises:
        ValueError, TypeError: on bad settings, at once.
        MisconfigurationException: before the first step, if there is no `AdaptiveSampling` in the Trainer, the dataset
            has another number of windows, the layer cannot be read, or the strategy shards the module (a forward pass
            on rank 0 alone would wait for the others for ever).

    A refresh that fails later warns once, and the training goes on with the scarcity there is.

    State:
        None of its own: the policy keeps the scarcity and saves it.

    Cost:
        One forward pass over all windows and one search, each time; `seconds` holds what the last one took.
    """

    def __init__(
        self,
        layer: str,
        *,
        every_n_steps: int = 1000,
        dataset: Any = None,
        groups: Any = None,
        measure: ScarcityMeasure | None = None,
        num_neighbors: int = 20,
        index: IndexKind = "auto",
        threshold: float | None = None,
        forward: Forward | None = None,
        batch_size: int = 32,
        loader_key: str | int | None = None,
    ) -> None:
        if not isinstance(layer, str) or not layer:
            raise TypeError(f"`layer` must be the name of a submodule, got {layer!r}.")
        if forward is not None and not callable(forward):
            raise TypeError(
                f"`forward` must be a function of module and batch, got {forward!r}. Leave it out for the module."
            )
        if dataset is not None and not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise TypeError(
                f"`dataset` must hold windows by id, got {dataset!r}. Leave it out to take that of the train loader."
            )
        if groups is not None:
            groups = group_codes("groups", groups, len(groups) if hasattr(groups, "__len__") else 0)
        self.layer = layer
        self.every_n_steps = checked_integer("every_n_steps", every_n_steps, 1)
        self.dataset = dataset
        self.groups = groups
        self.measure = measure
        self.num_neighbors = checked_integer("num_neighbors", num_neighbors, 1)
        self.index = index
        self.threshold = threshold
        self.forward = forward
        self.batch_size = checked_integer("batch_size", batch_size, 1)
        self.loader_key = loader_key
        self.num_refreshes = 0
        self.seconds = 0.0
        self._seen_step = 0
        self._warned = False
        # Settings that only the search knows are tried on a window each of two groups.
        self._scarcity(np.eye(2, dtype=np.float32), None, "density" if measure is None else measure)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Refuse what cannot work before data are loaded."""
        if stage != "fit":
            return
        self._adaptive(trainer)
        sharded = isinstance(trainer.strategy, (FSDPStrategy, ModelParallelStrategy, DeepSpeedStrategy))
        if sharded and trainer.world_size > 1:
            raise MisconfigurationException(
                f"ScarcityRefresh needs the whole module on rank 0, got {type(trainer.strategy).__name__}. "
                "Compute features beforehand with module_features and give WeightPolicy(scarcity=...)."
            )

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Try one window, on every rank, so that a wrong layer is refused before the first step."""
        self._seen_step = trainer.global_step
        dataset = self._dataset(trainer)
        windows = self._adaptive(trainer).policy.num_windows
        if len(dataset) != windows:
            raise MisconfigurationException(
                f"ScarcityRefresh needs the {windows} windows that the sampler draws from, got a dataset of "
                f"{len(dataset)}. Give the same dataset."
            )
        if self.groups is not None and len(self.groups) != windows:
            raise MisconfigurationException(
                f"`groups` of ScarcityRefresh must hold one group per window ({windows}), got {len(self.groups)}."
            )
        try:
            with trainer.precision_plugin.forward_context():
                module_features(pl_module, _FirstWindow(dataset), layer=self.layer, forward=self.forward)
        except (TypeError, ValueError) as error:
            raise MisconfigurationException(f"ScarcityRefresh cannot read the module: {error}") from error

    def should_refresh(self, step: int) -> bool:
        """Is a refresh due after optimizer step `step` (counted from 1)?"""
        return step % self.every_n_steps == 0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Refresh after a step for which it is due; batches within an accumulation are none."""
        step = trainer.global_step
        if step == self._seen_step:
            return
        self._seen_step = step
        if trainer.is_global_zero and self.should_refresh(step):
            try:
                self._refresh(trainer, pl_module, step)
            except Exception as error:
                if not self._warned:
                    self._warned = True
                    warnings.warn(
                        f"ScarcityRefresh failed after step {step}: {error!r}. Training goes on with the scarcity "
                        "there is.",
                        stacklevel=2,
                    )

    def _refresh(self, trainer: pl.Trainer, pl_module: pl.LightningModule, step: int) -> None:
        start = time.monotonic()
        policy = self._adaptive(trainer).policy
        with trainer.precision_plugin.forward_context():
            features = module_features(
                pl_module,
                self._dataset(trainer),
                layer=self.layer,
                forward=self.forward,
                batch_size=self.batch_size,
            )
        measure = self.measure or policy.settings.scarcity_measure
        policy.set_scarcity(self._scarcity(features, self.groups, measure))
        self.num_refreshes += 1
        self.seconds = time.monotonic() - start
        rank_zero_info(f"ScarcityRefresh after step {step}: {len(features)} windows in {self.seconds:.1f} s.")

    def _scarcity(self, features: Any, groups: Any, measure: ScarcityMeasure) -> NDArray[np.float64]:
        return scarcity_scores(
            features,
            self.num_neighbors,
            measure=measure,
            groups=groups,
            index=self.index,
            threshold=self.threshold,
        )

    def _dataset(self, trainer: pl.Trainer) -> Any:
        if self.dataset is not None:
            return self.dataset
        adaptive = self._adaptive(trainer)
        loader = choose_loader(trainer.train_dataloader, adaptive.loader_key, adaptive.sampler)[1]
        return getattr(loader, "dataset", ())

    def _adaptive(self, trainer: pl.Trainer) -> AdaptiveSampling:
        """The callback whose policy gets the scarcity."""
        found = [callback for callback in getattr(trainer, "callbacks", ()) if isinstance(callback, AdaptiveSampling)]
        if not found:
            raise MisconfigurationException(
                "ScarcityRefresh needs an AdaptiveSampling among the callbacks of the Trainer, got none. "
                "Pass callbacks=[AdaptiveSampling(...), ScarcityRefresh(...)]."
            )
        keys = [callback.loader_key for callback in found]
        meant = [callback for callback in found if self.loader_key in (None, callback.loader_key)]
        if len(meant) != 1:
            raise MisconfigurationException(
                f"`loader_key` of ScarcityRefresh must name one of the Trainer's {len(found)} AdaptiveSampling "
                f"callbacks, which have {keys}, got {self.loader_key!r}."
            )
        return meant[0]


class _FirstWindow:
    """The first window of a dataset, read as the dataset itself is."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        if hasattr(dataset, "read"):
            self.read = dataset.read

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return self._dataset[index]
