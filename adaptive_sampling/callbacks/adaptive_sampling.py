"""`AdaptiveSampling`: per-window losses in, weights out, at step boundaries, without a change to the module."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import WeightedRandomSampler

from adaptive_sampling._state_files import read_beside
from adaptive_sampling.callbacks import _joining, _state
from adaptive_sampling.callbacks._checkpoint_io import LIMIT, StateBesideCheckpoint
from adaptive_sampling.callbacks._clock import OverheadClock
from adaptive_sampling.callbacks._dealing import Change, dealt
from adaptive_sampling.callbacks._epochwise import EpochwiseSampler, epochwise
from adaptive_sampling.callbacks._importance import DrawProbabilities, add_importance
from adaptive_sampling.callbacks._loaders import batch_size_of, choose_loader, find_sampler, require_sampler
from adaptive_sampling.callbacks._observed import Observed
from adaptive_sampling.callbacks._step_watch import StepWatch
from adaptive_sampling.callbacks._sync import broadcast_weights, ranks_that_differ
from adaptive_sampling.callbacks._window_values import WindowValues, window_ids
from adaptive_sampling.sampling import AdaptiveSampler
from adaptive_sampling.sampling._iteration import nothing_handed_out
from adaptive_sampling.weights import WeightPolicy
from adaptive_sampling.weights.signals.protocol import ROUNDING

Observer = Callable[[NDArray[np.int64], dict[str, NDArray[np.float32]]], None]
"""Called on rank 0 with the ids and named values of all ranks, before an update takes them in."""
_OF_A_POLICY = ("needs", "bind", "update", "state_dict")
_TELLS_TIME = 1 << 22
_LOSS_KEY = "per_sample_loss"
"""From so many windows on, a full pass is worth a thought: the policy is told how long a step takes."""


class AdaptiveSampling(pl.Callback):
    """Turns the losses of the windows trained on into weights of the sampler that draws the next ones.

    While `training_step` runs, each window's mean loss over its valid targets is taken from the module's own
    `cross_entropy` call, or from `per_sample_loss` in what it returns, or from `adaptive_sampling.record(losses)`; mean
    entropies too, where the policy needs them. Every `update_every` optimizer steps the values of all ranks go to rank
    0, the policy turns them into weights there, and what changed comes back. The new weights count `sampler.lag` steps
    later, so that the order of windows does not depend on how far workers prefetch.

    Where `policy` has an `importance` above 0, each batch gets "importance_weight", for `weighted_mean(losses, batch)`.

    Args:
        sampler: the sampler of the train loader; default: found in the loader. Weights that were set before a
            training stay in force, as factors. A torch `WeightedRandomSampler` works too, on one rank; adapted
            weights count from the next epoch then.
        policy: the policy; default `WeightPolicy()`. It is used by this callback alone.
        update_every: optimizer steps between two updates.
        id_key: key (or position) of the window ids in a batch.
        loss_key: key of per-window losses in what `training_step` returns.
        loader_key: key (or position) of the loader among several; default: the one with a weighted sampler. Two
            callbacks on two loaders each name theirs.
        permutation: for placebo runs: int64 `[N]`; the weight of window i goes to window `permutation[i]`.
        max_megabytes_in_checkpoint: what the state may add to a checkpoint, in 10^6 bytes; tables that take more go
            into a safetensors file beside it. 0: always beside; infinity: never.

    Raises:
        MisconfigurationException: before the first step, if the loader draws with another sampler, a batch carries no
            ids, the dataset moves text between ids, or the loader prefetches further than `sampler.lag`; after the
            first, if it shows no per-window losses.

    State:
        Policy, sampler, and losses not yet used, of all ranks: a run resumed from any checkpoint sees the order of the
        unbroken run. A second `fit` without a checkpoint forgets what was learned, unless the Trainer goes on.
    """

    def __init__(
        self,
        sampler: AdaptiveSampler | WeightedRandomSampler | None = None,
        policy: WeightPolicy | None = None,
        *,
        update_every: int = 50,
        id_key: int | str = "window_id",
        loss_key: str = _LOSS_KEY,
        loader_key: int | str | None = None,
        permutation: NDArray[np.int64] | None = None,
        max_megabytes_in_checkpoint: float = 64.0,
    ) -> None:
        limit = max_megabytes_in_checkpoint
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit >= 0:
            raise ValueError(
                f"`max_megabytes_in_checkpoint` must be at least 0, got {max_megabytes_in_checkpoint!r}. "
                "Give float('inf') to keep all state in the checkpoint."
            )
        if sampler is not None and not isinstance(sampler, (AdaptiveSampler, WeightedRandomSampler)):
            raise TypeError(
                f"`sampler` must be an AdaptiveSampler or a WeightedRandomSampler, got {sampler!r}. "
                "Leave it out to take the one in the train loader."
            )
        self.sampler = epochwise(sampler) if isinstance(sampler, WeightedRandomSampler) else sampler
        if policy is not None and (isinstance(policy, type) or not all(hasattr(policy, name) for name in _OF_A_POLICY)):
            raise TypeError(f"`policy` must be a WeightPolicy, got {policy!r}. Write WeightPolicy(cap=3), for example.")
        self.policy = WeightPolicy() if policy is None else policy
        self.update_every = _joining.positive_steps("update_every", update_every)
        _joining.check_keys(id_key, loss_key, loader_key)
        self.id_key = id_key
        self.loss_key = loss_key
        self.loader_key = loader_key
        # Lightning asks for it at every hook of every step.
        other = {} if loss_key == _LOSS_KEY else {"loss_key": loss_key}
        self._state_key = self._generate_state_key(id_key=id_key, loader_key=loader_key, **other)
        self.permutation = None if permutation is None else _joining.checked_permutation(permutation)
        self.max_megabytes_in_checkpoint = max_megabytes_in_checkpoint
        self.clock = OverheadClock()
        self.observers: list[Observer] = []
        self._expected = self.sampler
        self._part_key = loader_key
        self._watch: StepWatch | None = None
        self._draws: DrawProbabilities | None = None
        self._factors: NDArray[np.float32] | None = None
        self._attached = self._checked_batch = self._trained = self._reused = False
        self._waiting_state: dict[str, Any] | None = None
        self._begin_afresh()

    def _begin_afresh(self) -> None:
        # A log density has no scale; a signal of the user's own may know what to make of it.
        known = getattr(self.policy, "signal_name", None) in ("loss", "log_loss")
        self._least_loss = -ROUNDING if known else -math.inf
        self.num_observations = 0
        self.num_steps = 0
        self._scheduled_at = 0
        self._observed = Observed(self.policy.needs)
        self._resumed = self._warned_dropped = self._warned_ranks = self._warned_silent = False
        self._values = WindowValues(self.policy.needs, self.loss_key, self._least_loss)

    @property
    def state_key(self) -> str:
        """Key of this callback's state in a checkpoint; callbacks of different loaders, ids or losses keep apart."""
        return self._state_key

    # --- joining and leaving a training -----------------------------------------------------------------------------

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Bind the sampler to its rank; where it is still to be found in a loader, that happens in `on_fit_start`."""
        if stage != "fit":
            return
        others = (other for other in getattr(trainer, "callbacks", ()) if other is not self)
        _joining.check_own_policy(
            self.policy, (other.policy for other in others if isinstance(other, AdaptiveSampling))
        )
        StateBesideCheckpoint.join(trainer.strategy)
        self._checked_batch = self._attached = False
        self.observers = []
        # A Trainer that goes on (max_steps was raised) knows how many steps it has made.
        self._reused = self._trained and trainer.global_step == 0
        if self._reused:
            self.policy.reset()
            self._begin_afresh()
        sampler = self._expected or find_sampler(trainer.fit_loop._data_source.instance, self.loader_key)
        if sampler is not None:
            self._attach(trainer, sampler)

    def _attach(self, trainer: pl.Trainer, sampler: AdaptiveSampler | EpochwiseSampler) -> None:
        self.sampler = sampler
        sampler.bind(trainer.global_rank, trainer.world_size)
        other_factors = sampler.manage()
        self._factors = sampler.factors
        _joining.check_ranks(sampler, self.update_every, self.permutation)
        _ = sampler.seed  # rank 0's choice reaches all ranks here, where all of them pass
        _joining.check_permutation(self.permutation, sampler.num_windows)
        self.policy.bind(sampler.num_windows)
        self._attached = True
        if self._waiting_state is not None:
            self._restore(self._waiting_state)
            self._waiting_state = None
        elif not self._resumed and self.num_steps == 0:
            sampler.deal(self._dealt(None, self.policy.initial_weights())[1])
            if self._reused:
                sampler.finish_epoch()
        elif other_factors:
            sampler.deal(self._dealt(None, self.policy.weights)[1])
        if self._draws is None or not self._resumed:
            self._draws = _joining.draw_probabilities(self.policy, sampler, self._factors)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Find the sampler, if still unknown, before a loader draws; put the capture around training_step."""
        if not self._attached:
            # Loads the train loader now, not a moment later: nothing may be drawn before weights are set. Lightning
            # starts workers with it, which find nothing to do; those that are to draw come with another iterator.
            with nothing_handed_out():
                trainer.fit_loop.setup_data()
            loader = choose_loader(trainer.train_dataloader, self.loader_key, self._expected)[1]
            self._attach(trainer, require_sampler(loader, self._expected))
            if trainer.fit_loop._data_fetcher is not None:
                iter(trainer.fit_loop._data_fetcher)
        self._leave(trainer)
        self._watch = StepWatch.join(trainer.strategy, self.policy.needs)

    def _leave(self, trainer: pl.Trainer) -> None:
        if self._watch is not None:
            self._watch.leave(trainer.strategy)
            self._watch = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Refuse, before the first step, what would make the weights count for nothing."""
        # A resumed run learns late which epoch it is in, and may load its loaders anew without another hook to follow.
        trainer.fit_loop.setup_data()
        self._follow_loader(trainer)
        self._part_key, loader = choose_loader(trainer.train_dataloader, self.loader_key, self._expected)
        sampler = require_sampler(loader, self.sampler)
        _joining.check_loader(trainer, loader, sampler)
        known = _joining.num_steps(trainer)
        self.policy.bind(sampler.num_windows, known)
        _joining.warn_if_nothing_can_count(trainer, sampler, known, self.update_every)
        _joining.warn_if_processes_end(trainer)
        if self._reused and not self._resumed:
            warnings.warn(
                "AdaptiveSampling was used in an earlier fit and starts afresh: what its policy had learned is "
                "forgotten, and the sampler begins its next epoch. Pass ckpt_path to go on instead.",
                stacklevel=2,
            )
        self._trained = True
        self.clock = OverheadClock()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Follow a loader that was loaded anew (`reload_dataloaders_every_n_epochs`), to another sampler if need be."""
        self._follow_loader(trainer)

    def _follow_loader(self, trainer: pl.Trainer) -> None:
        """Go on with the sampler that the train loader has now."""
        loader = choose_loader(trainer.train_dataloader, self.loader_key, self._expected)[1]
        sampler = require_sampler(loader, self._expected)
        old = self.sampler
        if sampler is old:
            return
        assert old is not None
        state, self._resumed = old.full_state(), True
        self._attach(trainer, sampler)
        sampler.load_full_state(state)
        if self._draws is not None:
            assert isinstance(sampler, AdaptiveSampler)
            self._draws.follow(sampler)
        # The iterator at hand has drawn from the new one as it was; in a resumed run Lightning makes no other.
        assert trainer.fit_loop._data_fetcher is not None
        iter(trainer.fit_loop._data_fetcher)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Leave the strategy as it was."""
        self._leave(trainer)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Leave the strategy as it was; no collective call here, since ranks may be out of step."""
        self._leave(trainer)

    # --- batches ----------------------------------------------------------------------------------------------------

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Check, before the first step, that batches carry their window ids; add importance weights if asked for."""
        assert self._watch is not None
        self._watch.forget()
        part = self._part_of(batch)
        if part is None:
            return
        if not self._checked_batch:
            assert self.sampler is not None
            loader = choose_loader(trainer.train_dataloader, self.loader_key, self._expected)[1]
            _joining.check_ids(window_ids(part, self.id_key).cpu().numpy(), self.sampler, loader)
            self._checked_batch = True
        if self._draws is not None:
            assert isinstance(self.sampler, AdaptiveSampler)
            with self.clock.ours():
                ids = window_ids(part, self.id_key)
                add_importance(part, ids, self.policy, self.sampler, self._draws, self.num_steps)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the batch's losses; at a step boundary, update the weights."""
        with self.clock.ours():
            self._end_batch(trainer, pl_module, outputs, self._part_of(batch), batch_idx)

    def _end_batch(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, part: Any, batch_idx: int
    ) -> None:
        assert self.sampler is not None
        assert self._watch is not None
        count = 0
        if part is not None:
            ids = window_ids(part, self.id_key)
            count = len(ids)
            skipped = not outputs and pl_module.automatic_optimization
            values = self._values.read(self._watch, outputs, count, part, skipped=skipped)
            if values is not None:
                self._observed.add(ids, values)
            self.sampler.consume(count)
        # Told from the number of the batch, so that all ranks come to the same answer whatever their steps returned.
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0 or trainer.is_last_batch:
            self.num_steps += 1
            if self.num_steps % self.update_every == 0:
                self._update(trainer, count)
        if trainer.is_last_batch:
            self.sampler.finish_epoch()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A training too short for an update may have shown no loss either."""
        if self.num_steps:
            self._warn_if_silent(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """An epoch that ends early (limit_train_batches, max_steps) is over for the sampler too."""
        if self.sampler is not None:
            self.sampler.finish_epoch()

    def _part_of(self, batch: Any) -> Any:
        """This callback's part of a batch; None where its loader has run out before the others."""
        return batch if self._part_key is None else batch[self._part_key]

    # --- updates ----------------------------------------------------------------------------------------------------

    def _update(self, trainer: pl.Trainer, windows_in_batch: int) -> None:
        assert self.sampler is not None
        start = time.perf_counter()
        seconds = self.clock.seconds_per_step(self.update_every)
        # The only place where losses are waited for: until here they stay on their device.
        parts = self._observed.take()
        ids, values = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
        self.num_observations += len(ids)
        self._warn_if_silent(trainer)

        def compute() -> tuple[NDArray[np.int64] | None, NDArray[np.float32]]:
            named = {need: values[:, column].numpy() for column, need in enumerate(self.policy.needs)}
            for observer in self.observers:
                observer(ids.numpy(), named)
            if "loss" in named:
                # What the first batch would have been refused for must not end a training that could go on.
                named["loss"] = np.where(named["loss"] < self._least_loss, np.nan, named["loss"])
            told = seconds if (self.policy.num_windows or 0) >= _TELLS_TIME else None
            update = self.policy.update(ids.numpy(), named, step=self.num_steps, seconds_per_step=told)
            if self.policy.dropped and not self._warned_dropped:
                self._warned_dropped = True
                warnings.warn(
                    f"{self.policy.dropped} of {len(ids)} window losses up to step {self.num_steps} were not finite, "
                    "or negative, and are left out of the weights. Further ones are counted in "
                    "`callback.policy.dropped`.",
                    stacklevel=2,
                )
            return update.ids, np.ascontiguousarray(update.values, np.float32)

        changed, weights = self._dealt(*broadcast_weights(compute))
        if changed is None:
            self._compare_ranks()
        if len(weights):
            accumulate, world = trainer.accumulate_grad_batches, trainer.world_size
            loader = choose_loader(trainer.train_dataloader, self.loader_key, self._expected)[1]
            ahead = self.sampler.lag * accumulate * (batch_size_of(loader) or windows_in_batch) * world
            # An accumulation that becomes shorter must not let a change overtake the one before.
            position = self._scheduled_at = max(self._scheduled_at, self.sampler.position + ahead)
            self.sampler.schedule_weights(position, changed, weights)
            if self._draws is not None:
                self._draws.schedule(position, changed, weights)
        self.clock.update_seconds = time.perf_counter() - start
        if changed is None:
            self.clock.pass_seconds = self.clock.update_seconds

    def _warn_if_silent(self, trainer: pl.Trainer) -> None:
        """Say once that no loss was seen; a `training_step` that returns None may show none for a while."""
        if self.num_observations or self._values.shown or self._warned_silent or not trainer.is_global_zero:
            return
        self._warned_silent = True
        warnings.warn(
            f"0 window losses were recorded in {self.num_steps} steps, whose training_step returned None: weights stay "
            f'as they are. Return {{"loss": loss, "{self.loss_key}": losses}} from training_step, or call '
            "adaptive_sampling.record(losses) in it.",
            stacklevel=2,
        )

    def _compare_ranks(self) -> None:
        """All windows get new weights now; if ranks had come apart before, it is healed and said."""
        assert self.sampler is not None
        differing = ranks_that_differ(self.sampler.weights)
        if differing and not self._warned_ranks:
            self._warned_ranks = True
            warnings.warn(
                f"up to step {self.num_steps} the weights of ranks {differing} were not those of rank 0, so that ranks "
                "may have drawn the same windows. All get the same weights now. Change weights on all ranks alike.",
                stacklevel=2,
            )

    def _dealt(self, ids: NDArray[np.int64] | None, weights: NDArray[np.float32]) -> Change:
        return dealt(ids, weights, self.permutation, self._factors)

    # --- state ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Tensors and Python primitives; empty as long as no training was joined. No collective call."""
        if self.sampler is None or not self._attached:
            return {}
        return {
            "version": _state.VERSION,
            LIMIT: 1e6 * self.max_megabytes_in_checkpoint,
            "update_every": self.update_every,
            "num_steps": self.num_steps,
            "num_observations": self.num_observations,
            "scheduled_at": self._scheduled_at,
            "observed": self._observed.own_state(),
            "sampler": self.sampler.full_state(),
            "policy": self.policy.state_dict(),
            "draws": None if self._draws is None else self._draws.state_dict(),
            "factors": None if self._factors is None else torch.from_numpy(self._factors.copy()),
        }

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add the losses that other ranks have noted since the last update; all ranks pass here, if none has failed."""
        state = checkpoint.get("callbacks", {}).get(self.state_key)
        if state and trainer.world_size > 1 and not trainer.interrupted:
            state["observed"] = self._observed.state_of_ranks()

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Say if a checkpoint knows nothing of this callback; read what lies beside it.

        Raises:
            StateMismatchError: if the file beside the checkpoint is missing, truncated or another.
        """
        states = checkpoint.get("callbacks", {})
        if not trainer.training:
            # To validate or test a checkpoint is not to go on from it.
            states.pop(self.state_key, None)
        elif states.get(self.state_key):
            states[self.state_key] = read_beside(str(trainer.ckpt_path), states[self.state_key])
        elif (
            checkpoint.get("global_step") != 0
        ):  # before the first step there is none, as when a batch size is searched
            warnings.warn(
                f"the checkpoint holds no state of {self.state_key}: weights and the order of windows start afresh. "
                "Resume from a checkpoint of a run with this callback, its `id_key` and `loader_key`, to go on "
                "exactly.",
                stacklevel=2,
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore at once where the sampler is known, since a loader may draw right after this.

        Raises:
            StateMismatchError: if the state is of another version, or does not fit the sampler or the policy.
        """
        if not state_dict:
            return
        _state.check(state_dict)
        if self._attached:
            self._restore(state_dict)
        else:
            self._waiting_state = state_dict

    def _restore(self, state: dict[str, Any]) -> None:
        assert self.sampler is not None
        self.sampler.load_full_state(state["sampler"])
        factors = state.get("factors")
        self._factors = None if factors is None else factors.numpy()
        self.policy.load_state_dict(state["policy"])
        self.num_steps = int(state["num_steps"])
        self.num_observations = int(state["num_observations"])
        self._scheduled_at = int(state["scheduled_at"])
        self._observed.load(state["observed"], self.sampler.rank, self.sampler.num_replicas)
        self._draws = _joining.draw_probabilities(self.policy, self.sampler, self._factors)
        if self._draws is not None and state["draws"] is not None:
            self._draws.load_state_dict(state["draws"])
        self._resumed = True
        # Lightning cannot know that this loader resumes exactly, and would tell the user that it does not.
        warnings.filterwarnings("ignore", message=".*your dataloader is not resumable.*")
