"""What a training must be like for weights to count: checked before its first step."""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Iterable, Sized
from typing import Any

import lightning.pytorch as pl
import numpy as np
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher
from numpy.typing import NDArray
from torch.utils.data import BatchSampler

from adaptive_sampling.callbacks._epochwise import EpochwiseSampler
from adaptive_sampling.callbacks._importance import DrawProbabilities
from adaptive_sampling.callbacks._loaders import Sampler, adaptive_weights_error, batches_ahead
from adaptive_sampling.callbacks._sync import numbers_of_ranks
from adaptive_sampling.weights import WeightPolicy


def positive_steps(name: str, value: Any) -> int:
    """`value` as a number of steps.

    Raises:
        ValueError: if it is none.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"`{name}` must be a positive number of steps, got {value!r}.")
    return int(value)


def check_keys(id_key: Any, loss_key: Any, loader_key: Any) -> None:
    """Keys must be able to find something in a batch, in what a step returns, and among loaders.

    Raises:
        TypeError: naming the key.
    """
    for name, key, kinds, like in (
        ("id_key", id_key, (str, int), "'window_id', or a position in a tuple"),
        ("loss_key", loss_key, (str,), "'per_sample_loss'"),
        ("loader_key", loader_key, (str, int, type(None)), "the key or position of a loader, or None"),
    ):
        if isinstance(key, bool) or not isinstance(key, kinds):
            raise TypeError(f"`{name}` must be a key such as {like}, got {key!r}.")


def checked_permutation(permutation: Any) -> NDArray[np.int64]:
    """A placebo's permutation as int64.

    Raises:
        TypeError: if it holds no integers.
    """
    array = np.asarray(permutation)
    if array.dtype.kind not in "iu":
        raise TypeError(f"`permutation` must hold window ids, which are integers, got dtype {array.dtype}.")
    return array.astype(np.int64)


def check_own_policy(policy: Any, others: Iterable[Any]) -> None:
    """A policy serves one callback: the losses of two loaders would mix in it.

    Args:
        policy: of one callback.
        others: those of the Trainer's other `AdaptiveSampling` callbacks.

    Raises:
        MisconfigurationException: if it is among `others`.
    """
    if any(other is policy for other in others):
        raise MisconfigurationException(
            "each AdaptiveSampling must have a policy of its own, got one for two: the losses of both loaders would "
            "count in both. Give each its own WeightPolicy(...)."
        )


def check_permutation(permutation: NDArray[np.int64] | None, num_windows: int) -> None:
    """A placebo's permutation must be one of the windows.

    Raises:
        MisconfigurationException: if it is not.
    """
    if permutation is not None and not np.array_equal(np.sort(permutation), np.arange(num_windows)):
        raise MisconfigurationException(
            f"`permutation` must hold each of {num_windows} ids once, got {len(permutation)} entries."
        )


def check_ranks(sampler: Sampler, update_every: int, permutation: NDArray[np.int64] | None) -> None:
    """What ranks exchange must have the same shape and come at the same steps on all of them; all ranks pass here.

    Raises:
        MisconfigurationException: on every rank, with the values of all.
    """
    own = {
        "number of windows": sampler.num_windows,
        "draws per epoch": getattr(sampler, "num_draws", 0),
        "lag": sampler.lag,
        "update_every": update_every,
        # What makes the order: ranks of different orders would draw the same windows, and nobody would notice.
        "seed (-1: none given)": _seed_of(sampler),
        "block size": getattr(sampler, "block_size", 0),
        "number of windows drawn already": getattr(sampler, "position", 0),
        # Each rank multiplies and permutes by its own.
        "weights set before the training (here their checksum)": _checksum(sampler.factors),
        "`permutation` (here its checksum)": _checksum(permutation),
    }
    ranks = numbers_of_ranks(*own.values())
    for name, values in zip(own, zip(*ranks, strict=True), strict=True):
        if len(set(values)) > 1:
            raise MisconfigurationException(
                f"all ranks must have the same {name}, got {list(values)} by rank. Build dataset, sampler and callback "
                "alike on all of them."
            )


def _seed_of(sampler: Sampler) -> int:
    """A number of 63 bits that tells seeds apart; none is chosen by asking."""
    seed = getattr(sampler, "_seed", None)
    return -1 if seed is None else int(seed) % 2**63


def _checksum(array: NDArray[Any] | None) -> int:
    return 0 if array is None else 1 + zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data)


def check_ids(ids: NDArray[np.int64], sampler: Sampler, loader: Any) -> None:
    """The ids in a batch must be those that the sampler drew: else losses would count for other windows.

    A loader that batches in order is held to the very next ids; others to those that are drawn.

    Raises:
        MisconfigurationException: with the first that was not drawn.
    """
    if isinstance(sampler, EpochwiseSampler):  # torch's, which does not tell what it drew
        return
    waiting = sampler.waiting()
    if type(getattr(loader, "batch_sampler", None)) is BatchSampler and getattr(loader, "in_order", True):
        foreign = np.flatnonzero(ids != waiting[: len(ids)]) if len(ids) <= len(waiting) else np.arange(1)
    else:
        foreign = np.flatnonzero(~np.isin(ids, waiting))
    if len(foreign):
        raise MisconfigurationException(
            f"the window ids in a batch must be what the sampler drew, got {int(ids[foreign[0]])} where it drew "
            f"{waiting[: len(ids)].tolist()}. The id of item i must be i, which it is not in a Subset: wrap that as "
            "adaptive_sampling.with_ids(dataset, 'item') and say id_key='item', or id_key=-1 where items are tuples."
        )


def draw_probabilities(
    policy: WeightPolicy, sampler: Sampler, factors: NDArray[np.float32] | None
) -> DrawProbabilities | None:
    """What importance weights are made of; None where the policy wants none.

    Raises:
        MisconfigurationException: for a sampler that does not say with which probability it draws.
    """
    if not any(policy.settings.importance.values):
        return None
    if isinstance(sampler, EpochwiseSampler):
        raise MisconfigurationException(
            "`importance` must be 0 with a WeightedRandomSampler, got "
            f"{policy.settings.importance!r}. Use AdaptiveSampler.from_weights(weights)."
        )
    return DrawProbabilities(sampler, factors)


def check_loader(trainer: pl.Trainer, loader: Any, sampler: Sampler) -> None:
    """The loader must not fetch further ahead than weights take to count, and its ids must mean the same text.

    Raises:
        MisconfigurationException: with the cure.
    """
    dataset = getattr(loader, "dataset", None)
    error = adaptive_weights_error(dataset)
    if error is not None:
        raise MisconfigurationException(error)
    if isinstance(dataset, Sized) and len(dataset) != sampler.num_windows:
        raise MisconfigurationException(
            f"the sampler must have as many windows as the loader's dataset, got {sampler.num_windows} and "
            f"{len(dataset)}. Build it as AdaptiveSampler(dataset)."
        )
    ahead, accumulate = batches_ahead(loader), _least_accumulation(trainer)
    if ahead > sampler.lag * accumulate:
        raise MisconfigurationException(
            f"the loader draws up to {ahead} batches ahead, but `sampler.lag` is {sampler.lag} steps of "
            f"{accumulate} batches. Set `sampler.lag = {ahead}` before training, or use fewer "
            "workers, a smaller prefetch_factor or, with length buckets, fewer block_batches."
        )
    if getattr(loader, "num_workers", 0) and not getattr(loader, "in_order", True):
        warnings.warn(
            "the loader hands out batches in another order than the sampler's (in_order=False): a resumed run may "
            "repeat or miss some windows. Leave in_order=True for an exact resume.",
            stacklevel=3,
        )


def _least_accumulation(trainer: pl.Trainer) -> int:
    """Batches per optimizer step, at the least: it may change with the epochs."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, GradientAccumulationScheduler):
            return int(min(callback.scheduling.values()))
    return int(trainer.accumulate_grad_batches)


def num_steps(trainer: pl.Trainer) -> int | None:
    """Length of the training in steps as this package counts them: batches that end in an update of parameters.

    Lightning counts each `optimizer.step()` of manual optimisation; there, each optimizer is taken to step once per
    batch.
    """
    total = trainer.estimated_stepping_batches
    if not np.isfinite(total) or total <= 0:
        return None
    optimizers = len(trainer.optimizers)
    if optimizers > 1 and not trainer.lightning_module.automatic_optimization and trainer.max_steps > 0:
        return min(int(total), math.ceil(trainer.max_steps / optimizers))
    return int(total)


def warn_if_nothing_can_count(trainer: pl.Trainer, sampler: Sampler, total: int | None, update_every: int) -> None:
    """A training may end before its first update counts."""
    if trainer.fast_dev_run:  # type: ignore[attr-defined]
        return
    if isinstance(sampler, EpochwiseSampler):
        if trainer.max_epochs == 1:
            warnings.warn(
                "no learned weight can count: training has one epoch, and WeightedRandomSampler sees new weights in "
                "the next. Use AdaptiveSampler.from_weights(weights).",
                stacklevel=3,
            )
    elif total is not None and total <= update_every + sampler.lag:
        warnings.warn(
            f"no learned weight can count: training has {total} steps, the first update comes after step "
            f"{update_every} and counts `sampler.lag` = {sampler.lag} steps later. Train longer, or lower "
            "`update_every` or `sampler.lag`.",
            stacklevel=3,
        )


def warn_if_processes_end(trainer: pl.Trainer) -> None:
    """Processes that Lightning starts itself (ddp_spawn, ddp_fork) take what was learned with them."""
    if trainer.is_global_zero and isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
        warnings.warn(
            "the processes of this strategy end with the training: policy and sampler of the main process stay as they "
            "were before. Read the learned weights from a checkpoint, see read_weights.",
            stacklevel=3,
        )
