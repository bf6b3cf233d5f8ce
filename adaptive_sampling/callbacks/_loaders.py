"""Finding our sampler in whatever the user gave Lightning, and saying clearly when it is not there."""

from __future__ import annotations

from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader, WeightedRandomSampler

from adaptive_sampling.callbacks._epochwise import EpochwiseSampler, epochwise
from adaptive_sampling.sampling import AdaptiveSampler


def loader_sampler(loader: Any) -> AdaptiveSampler | EpochwiseSampler | None:
    """The sampler with weights that draws for `loader`, in its sampler or its batch sampler's sampler."""
    for holder in (loader, getattr(loader, "batch_sampler", None)):
        sampler = getattr(holder, "sampler", None)
        if isinstance(sampler, AdaptiveSampler):
            return sampler
        if isinstance(sampler, WeightedRandomSampler):
            return epochwise(sampler)
    return None


def require_sampler(
    loader: Any, expected: AdaptiveSampler | EpochwiseSampler | None
) -> AdaptiveSampler | EpochwiseSampler:
    """The sampler of the train loader, which must be `expected` if that is given.

    Raises:
        MisconfigurationException: naming what draws instead, and the cure.
    """
    if not hasattr(loader, "batch_sampler") and not isinstance(loader, DataLoader):
        raise MisconfigurationException(
            f"AdaptiveSampling needs a DataLoader to train on, got {type(loader).__name__}. "
            "Pass trainer.fit(model, DataLoader(dataset, sampler=AdaptiveSampler(dataset)))."
        )
    found = loader_sampler(loader)
    if found is None:
        actual = getattr(getattr(loader, "batch_sampler", None), "sampler", None) or getattr(loader, "sampler", None)
        raise MisconfigurationException(
            f"AdaptiveSampling needs an AdaptiveSampler in the train loader, got {type(actual).__name__}. "
            "Build it as DataLoader(dataset, sampler=AdaptiveSampler(dataset)), without shuffle=True; with "
            "overfit_batches, or a batch_sampler under DDP, Lightning replaces it: leave these out."
        )
    if expected is not None and found is not expected:
        raise MisconfigurationException(
            "AdaptiveSampling was given one AdaptiveSampler, but the train loader draws with another. "
            "Pass the same object to both, or leave out `sampler`."
        )
    return found


def batch_size_of(loader: Any) -> int | None:
    """Windows per batch and rank, where the loader says so."""
    for holder in (loader, getattr(loader, "batch_sampler", None)):
        size = getattr(holder, "batch_size", None)
        if isinstance(size, int):
            return size
    return None


def batches_ahead(loader: Any) -> int:
    """Batches that may have been drawn before the one in training has ended."""
    workers = int(getattr(loader, "num_workers", 0) or 0)
    # Lightning itself looks one batch ahead; a worker's next batch is drawn as soon as one is taken.
    return workers * int(getattr(loader, "prefetch_factor", None) or 2) + 2 if workers else 2
