"""`AdaptiveSampling`: per-window losses in, weights out, at step boundaries, without a change to the module."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import WeightedRandomSampler

from adaptive_sampling.callbacks._epochwise import EpochwiseSampler, epochwise
from adaptive_sampling.callbacks._loaders import batch_size_of, batches_ahead, loader_sampler, require_sampler
from adaptive_sampling.callbacks._sync import broadcast_weights, gather_observations
from adaptive_sampling.callbacks.loss_capture import LossCapture
from adaptive_sampling.errors import StateMismatchError
from adaptive_sampling.sampling import AdaptiveSampler
from adaptive_sampling.weights import WeightPolicy, recording

_STATE_VERSION = 1
T = TypeVar("T")


class AdaptiveSampling(pl.Callback):
    """Turns the losses of the windows trained on into weights of the sampler that draws the next ones.

    While `training_step` runs, each window's mean loss over its valid targets is taken from the module's own
    `cross_entropy` call, or from `per_sample_loss` in what it returns, or from `adaptive_sampling.record(losses)`.
    Every `update_every` optimizer steps the losses of all ranks go to rank 0, the policy turns them into weights there,
    and what changed comes back. The new weights count `sampler.lag` steps later, so that the order of windows does not
    depend on how far workers prefetch.

    Args:
        sampler: the sampler of the train loader; default: found in the loader. A torch `WeightedRandomSampler` works
            too, on one rank: its own weights stay in force as factors, and adapted ones count from the next epoch.
        policy: the policy; default `WeightPolicy()`. It is used by this callback alone.
        update_every: optimizer steps between two updates.
        id_key: key (or position) of the window ids in a batch.
        loss_key: key of per-window losses in what `training_step` returns.
        permutation: for placebo runs: int64 `[N]`; the weight of window i goes to window `permutation[i]`.

    Raises:
        MisconfigurationException: before the first step, if the loader draws with another sampler, a batch carries no
            ids, or the loader prefetches further than `sampler.lag`; after the first, if it shows no per-window losses.

    State:
        Policy, sampler, and losses not yet used: a run resumed from any checkpoint sees the order of the unbroken run.
    """

    def __init__(
        self,
        sampler: AdaptiveSampler | WeightedRandomSampler | None = None,
        policy: WeightPolicy | None = None,
        *,
        update_every: int = 50,
        id_key: str | int = "window_id",
        loss_key: str = "per_sample_loss",
        permutation: NDArray[np.int64] | None = None,
    ) -> None:
        if isinstance(update_every, bool) or not isinstance(update_every, int) or update_every < 1:
            raise ValueError(f"`update_every` must be a positive number of steps, got {update_every!r}.")
        if sampler is not None and not isinstance(sampler, (AdaptiveSampler, WeightedRandomSampler)):
            raise TypeError(f"`sampler` must be an AdaptiveSampler, got {type(sampler).__name__}.")
        self.sampler = epochwise(sampler) if isinstance(sampler, WeightedRandomSampler) else sampler
        self.policy = WeightPolicy() if policy is None else policy
        self.update_every = update_every
        self.id_key = id_key
        self.loss_key = loss_key
        self.permutation = None if permutation is None else np.asarray(permutation, np.int64)
        self.num_observations = 0
        self._expected = self.sampler
        self._batches = 0
        self._observed: list[tuple[Tensor, Tensor]] = []
        self._step_records: tuple[LossCapture | None, list[Tensor]] = (None, [])
        self._unwrap: Callable[[], None] | None = None
        self._attached = False
        self._checked_batch = False
        self._warned_dropped = False
        self._resumed = False
        self._waiting_state: dict[str, Any] | None = None

    @property
    def state_key(self) -> str:
        """Key of this callback's state in a checkpoint; callbacks on different ids keep apart."""
        return self._generate_state_key(id_key=self.id_key)

    # --- joining and leaving a training -----------------------------------------------------------------------------

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Bind the sampler to its rank; where it is still to be found in a loader, that happens in `on_fit_start`."""
        if stage != "fit":
            return
        self._checked_batch = self._attached = False
        sampler = self._expected or loader_sampler(trainer.fit_loop._data_source.instance)
        if sampler is not None:
            self._attach(trainer, sampler)

    def _attach(self, trainer: pl.Trainer, sampler: AdaptiveSampler | EpochwiseSampler) -> None:
        self.sampler = sampler
        sampler.bind(trainer.global_rank, trainer.world_size)
        sampler.manage()
        _ = sampler.seed  # rank 0's choice reaches all ranks here, where all of them pass
        if self.permutation is not None and not np.array_equal(
            np.sort(self.permutation), np.arange(sampler.num_windows)
        ):
            raise MisconfigurationException(
                f"`permutation` must hold each of {sampler.num_windows} ids once, got {len(self.permutation)} entries."
            )
        self.policy.bind(sampler.num_windows)
        self._attached = True
        if self._waiting_state is not None:
            self._restore(self._waiting_state)
            self._waiting_state = None
        elif not self._resumed and self._batches == 0:
            sampler.set_weights(self._permuted(None, self.policy.initial_weights())[1])

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Find the sampler, if still unknown, before a loader draws; put the capture around training_step."""
        if not self._attached:
            # Loads the train loader now instead of a moment later: its workers must not draw before weights are set.
            trainer.fit_loop.setup_data()
            loader = trainer.train_dataloader
            self._attach(trainer, require_sampler(loader, self._expected))
        self._wrap_training_step(trainer)

    def _wrap_training_step(self, trainer: pl.Trainer) -> None:
        self._leave()
        strategy = trainer.strategy
        original = strategy.training_step

        def training_step(*args: Any, **kwargs: Any) -> Any:
            capture = LossCapture()
            with recording() as recorded, capture:
                outputs = original(*args, **kwargs)
            if self._step_records[0] is None:
                # A closure may run the step again (LBFGS): the first run sees the parameters that the batch met.
                self._step_records = (capture, recorded)
            return outputs

        def unwrap() -> None:
            strategy.__dict__.pop("training_step", None)

        strategy.training_step = training_step  # type: ignore[method-assign]
        self._unwrap = unwrap

    def _leave(self) -> None:
        if self._unwrap is not None:
            self._unwrap()
            self._unwrap = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Refuse, before the first step, what would make the weights count for nothing."""
        loader = trainer.train_dataloader
        sampler = require_sampler(loader, self.sampler)
        ahead = batches_ahead(loader)
        if ahead > sampler.lag * trainer.accumulate_grad_batches:
            raise MisconfigurationException(
                f"the loader draws up to {ahead} batches ahead, but `sampler.lag` is {sampler.lag} steps of "
                f"{trainer.accumulate_grad_batches} batches. Set `sampler.lag = {ahead}` before training, or use fewer "
                "workers or a smaller prefetch_factor."
            )
        total = trainer.estimated_stepping_batches
        known = int(total) if np.isfinite(total) and total > 0 else None
        self.policy.bind(sampler.num_windows, known)
        if isinstance(sampler, EpochwiseSampler):
            if trainer.max_epochs == 1:
                warnings.warn(
                    "no learned weight can count: training has one epoch, and WeightedRandomSampler sees new weights in the "
                    "next. Use AdaptiveSampler.from_weights(weights).",
                    stacklevel=2,
                )
        elif known is not None and known <= self.update_every + sampler.lag:
            warnings.warn(
                f"no learned weight can count: training has {known} steps, the first update comes after step "
                f"{self.update_every} and counts `sampler.lag` = {sampler.lag} steps later. Train longer, or lower "
                "`update_every` or `sampler.lag`.",
                stacklevel=2,
            )

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Leave the strategy as it was."""
        self._leave()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Leave the strategy as it was; no collective call here, since ranks may be out of step."""
        self._leave()

    # --- batches ----------------------------------------------------------------------------------------------------

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Check, before the first step, that batches carry their window ids."""
        self._step_records = (None, [])
        if not self._checked_batch:
            self._window_ids(batch)
            self._checked_batch = True

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the batch's losses; at a step boundary, update the weights."""
        assert self.sampler is not None
        ids = self._window_ids(batch)
        losses = self._window_losses(outputs, len(ids))
        if losses is not None:
            self._observed.append((ids.detach(), losses))
        self.sampler.consume(len(ids))
        self._batches += 1
        if self._batches % (self.update_every * trainer.accumulate_grad_batches) == 0:
            self._update(trainer, len(ids))
        if trainer.is_last_batch:
            self.sampler.finish_epoch()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """An epoch that ends early (limit_train_batches, max_steps) is over for the sampler too."""
        if self.sampler is not None:
            self.sampler.finish_epoch()

    def _window_ids(self, batch: Any) -> Tensor:
        try:
            ids = batch[self.id_key]
        except (KeyError, IndexError, TypeError):
            keys = sorted(map(str, batch)) if isinstance(batch, dict) else f"a {type(batch).__name__}"
            raise MisconfigurationException(
                f"AdaptiveSampling needs the window ids in each batch under {self.id_key!r}, got {keys}. "
                "Wrap the dataset as adaptive_sampling.with_ids(dataset), or name the key with `id_key`."
            ) from None
        if not isinstance(ids, Tensor) or ids.ndim != 1 or ids.is_floating_point():
            shape = tuple(ids.shape) if isinstance(ids, Tensor) else type(ids).__name__
            raise MisconfigurationException(
                f"batch[{self.id_key!r}] must be a one-dimensional integer tensor of window ids, got {shape}."
            )
        return ids

    def _window_losses(self, outputs: Any, num_windows: int) -> Tensor | None:
        """float32 `[num_windows]` on the losses' own device: what the user handed over, else what was captured."""
        capture, recorded = self._step_records
        given = outputs.get(self.loss_key) if isinstance(outputs, dict) else None
        if given is None and recorded:
            given = recorded[-1]
        if given is not None:
            return self._checked_losses(given, num_windows)
        if capture is None:
            return None  # the step was skipped
        fitting = [call for call in capture.calls if call.fits(num_windows)]
        if len(fitting) == 1:
            return fitting[0].window_means(num_windows)
        if self.num_observations or self._observed:
            return None  # a single odd step must not end a training that could go on
        seen = "none was seen" if not fitting else f"{len(fitting)} calls would fit"
        raise MisconfigurationException(
            f"AdaptiveSampling needs one loss per window ({num_windows} in this batch), but {seen} while training_step "
            f"ran. Either compute the loss with torch.nn.functional.cross_entropy over all targets, or return "
            f'{{"loss": loss, "{self.loss_key}": losses}} with a tensor of shape ({num_windows},) from training_step, '
            "or call adaptive_sampling.record(losses) in it."
        )

    def _checked_losses(self, given: Any, num_windows: int) -> Tensor:
        losses = torch.as_tensor(given).detach()
        if losses.numel() != num_windows or losses.ndim > 2 or (losses.ndim == 2 and 1 not in losses.shape):
            raise MisconfigurationException(
                f"per-window losses must have shape ({num_windows},), one per id, got {tuple(losses.shape)}. "
                "Average over each window's targets, not over the batch."
            )
        return losses.float().reshape(-1)

    # --- updates ----------------------------------------------------------------------------------------------------

    def _update(self, trainer: pl.Trainer, windows_in_batch: int) -> None:
        assert self.sampler is not None
        step = self._batches // trainer.accumulate_grad_batches
        empty = (torch.empty(0, dtype=torch.int64), torch.empty(0))
        parts = self._observed or [empty]
        ids, values = gather_observations(torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]))
        self._observed = []
        self.num_observations += len(ids)

        def compute() -> tuple[NDArray[np.int64] | None, NDArray[np.float32]]:
            update = self.policy.update(ids.numpy(), values.numpy(), step=step)
            if self.policy.dropped and not self._warned_dropped:
                self._warned_dropped = True
                warnings.warn(
                    f"{self.policy.dropped} of {len(ids)} window losses up to step {step} were not finite and are left "
                    "out of the weights. Further ones are counted in `callback.policy.dropped`.",
                    stacklevel=2,
                )
            return update.ids, np.ascontiguousarray(update.values, np.float32)

        changed, weights = self._permuted(*broadcast_weights(compute))
        if len(weights):
            per_batch = batch_size_of(trainer.train_dataloader) or windows_in_batch
            ahead = self.sampler.lag * trainer.accumulate_grad_batches * per_batch * trainer.world_size
            self.sampler.schedule_weights(self.sampler.position + ahead, changed, weights)

    def _permuted(
        self, ids: NDArray[np.int64] | None, weights: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64] | None, NDArray[np.float32]]:
        if self.permutation is None:
            return ids, weights
        if ids is not None:
            return self.permutation[ids], weights
        moved = np.empty_like(weights)
        moved[self.permutation] = weights
        return None, moved

    # --- state ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Tensors and Python primitives; empty as long as no training was joined."""
        if self.sampler is None or not self._attached:
            return {}
        return {
            "version": _STATE_VERSION,
            "update_every": self.update_every,
            "batches": self._batches,
            "num_observations": self.num_observations,
            "observed_ids": [ids.cpu() for ids, _ in self._observed],
            "observed_losses": [losses.cpu() for _, losses in self._observed],
            "sampler": self.sampler.full_state(),
            "policy": self.policy.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore at once where the sampler is known, since a loader may draw right after this.

        Raises:
            StateMismatchError: if the state is of another version, or does not fit the sampler or the policy.
        """
        if not state_dict:
            return
        if state_dict.get("version") != _STATE_VERSION:
            raise StateMismatchError(
                f"the saved state has version {state_dict.get('version')!r}, this package reads {_STATE_VERSION}. "
                "Resume with the package version that saved it."
            )
        if self._attached:
            self._restore(state_dict)
        else:
            self._waiting_state = state_dict

    def _restore(self, state: dict[str, Any]) -> None:
        assert self.sampler is not None
        self.sampler.load_full_state(state["sampler"])
        self.policy.load_state_dict(state["policy"])
        self._batches = int(state["batches"])
        self.num_observations = int(state["num_observations"])
        self._observed = list(zip(state["observed_ids"], state["observed_losses"], strict=True))
        self._resumed = True
        # Lightning cannot know that this loader resumes exactly, and would tell the user that it does not.
        warnings.filterwarnings("ignore", message=".*your dataloader is not resumable.*")
