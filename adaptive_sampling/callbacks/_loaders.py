"""Finding our sampler in whatever the user gave Lightning, and saying clearly when it is not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import CombinedLoader
from torch.utils.data import DataLoader, IterableDataset, WeightedRandomSampler

from adaptive_sampling.callbacks._epochwise import EpochwiseSampler, epochwise
from adaptive_sampling.sampling import AdaptiveSampler

Sampler = AdaptiveSampler | EpochwiseSampler
Key = str | int


def loader_sampler(loader: Any) -> Sampler | None:
    """The sampler with weights that draws for `loader`, in its sampler or its batch sampler's sampler."""
    for holder in (loader, getattr(loader, "batch_sampler", None)):
        sampler = getattr(holder, "sampler", None)
        if isinstance(sampler, AdaptiveSampler):
            return sampler
        if isinstance(sampler, WeightedRandomSampler):
            return epochwise(sampler)
    return None


def _several(loaders: Any) -> dict[Key, Any] | None:
    """The loaders of a collection by key or place; None: `loaders` is a single one."""
    if isinstance(loaders, CombinedLoader):
        loaders = loaders.iterables
    if isinstance(loaders, Mapping):
        return dict(loaders)
    if isinstance(loaders, (list, tuple)) and any(map(_is_loader, loaders)):
        return dict(enumerate(loaders))
    return None


def _is_loader(loader: Any) -> bool:
    return isinstance(loader, DataLoader) or hasattr(loader, "batch_sampler")


def choose_loader(loaders: Any, key: Key | None, expected: Sampler | None) -> tuple[Key | None, Any]:
    """The loader to adapt and its key in a batch; key None: a batch is that of the single loader.

    Args:
        loaders: a loader, or a mapping, sequence or CombinedLoader of these.
        key: which of several; None: the only one that draws with `expected`, or with any weighted sampler.
        expected: the sampler that the user gave.

    Raises:
        MisconfigurationException: if the key is none of theirs, or several loaders could be meant.
    """
    several = _several(loaders)
    if several is None:
        if key is not None:
            raise MisconfigurationException(
                f"`loader_key` must be left out with a single train loader, got {key!r}. Several loaders are a dict or "
                "a list of DataLoaders."
            )
        return None, loaders
    if key is not None:
        if key not in several:
            raise MisconfigurationException(
                f"`loader_key` must be one of {list(several)}, the train loaders, got {key!r}."
            )
        return key, several[key]
    samplers = {name: loader_sampler(loader) for name, loader in several.items()}
    fitting = [name for name, found in samplers.items() if found is not None and expected in (None, found)]
    if len(fitting) != 1:
        raise MisconfigurationException(
            f"AdaptiveSampling adapts one loader, got {len(several)} ({list(several)}), of which {len(fitting)} draw "
            f"with {'a weighted sampler' if expected is None else 'the given sampler'}. Name one with `loader_key`."
        )
    return fitting[0], several[fitting[0]]


def is_drawn_with(loaders: Any, sampler: Sampler) -> bool:
    """Does one of the loaders draw with `sampler`?"""
    several = _several(loaders)
    return any(loader_sampler(loader) is sampler for loader in ([loaders] if several is None else several.values()))


def find_sampler(loaders: Any, key: Key | None) -> Sampler | None:
    """The sampler, where it can be told from what was handed to the Trainer; None: later."""
    if _several(loaders) is None:
        return loader_sampler(loaders)
    return loader_sampler(choose_loader(loaders, key, None)[1])


def require_sampler(loader: Any, expected: Sampler | None) -> Sampler:
    """The sampler of the train loader, which must be `expected` if that is given.

    Raises:
        MisconfigurationException: naming what draws instead, and the cure.
    """
    if not _is_loader(loader):
        raise MisconfigurationException(
            f"AdaptiveSampling needs a DataLoader to train on, got {type(loader).__name__}. "
            "Pass trainer.fit(model, DataLoader(dataset, sampler=AdaptiveSampler(dataset)))."
        )
    found = loader_sampler(loader)
    if found is None and isinstance(getattr(loader, "dataset", None), IterableDataset):
        raise MisconfigurationException(
            f"AdaptiveSampling needs a dataset whose items can be asked for by number, got "
            f"{type(loader.dataset).__name__}, an IterableDataset, which no sampler draws from. Give the loader a "
            "map-style dataset, with __len__ and __getitem__, and sampler=AdaptiveSampler(dataset)."
        )
    if found is None:
        actual = getattr(getattr(loader, "batch_sampler", None), "sampler", None) or getattr(loader, "sampler", None)
        raise MisconfigurationException(
            f"AdaptiveSampling needs an AdaptiveSampler in the train loader, got {type(actual).__name__}. "
            "Build it as DataLoader(dataset, sampler=AdaptiveSampler(dataset)), without shuffle=True. With "
            "overfit_batches Lightning replaces it: leave that out. With a batch_sampler under DDP it does so too: "
            "pass Trainer(use_distributed_sampler=False), since an AdaptiveSampler knows its rank."
        )
    if expected is not None and found is not expected:
        raise MisconfigurationException(
            "AdaptiveSampling was given one AdaptiveSampler, but the train loader draws with another. "
            "Pass the same object to both, or leave out `sampler`."
        )
    return found


def adaptive_weights_error(dataset: Any) -> str | None:
    """What a dataset, or one that it wraps, says against a weight per id."""
    while dataset is not None:
        error = getattr(dataset, "adaptive_weights_error", None)
        if error is not None:
            return str(error)
        dataset = getattr(dataset, "dataset", None)
    return None


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
    ahead = workers * int(getattr(loader, "prefetch_factor", None) or 2) + 2 if workers else 2
    # Buckets of like length are made of a whole block of draws, taken for its first batch.
    return ahead + int(getattr(getattr(loader, "batch_sampler", None), "block_batches", 1)) - 1
