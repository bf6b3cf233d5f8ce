"""`TrainingData` from what a user has: the same, a LightningDataModule, or a function that makes either."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from adaptive_sampling.ab.arms import TrainingData
from adaptive_sampling.ab.imports import Imported, naming_user_code
from adaptive_sampling.windows import with_ids


def training_data(made: Any, source: Imported) -> TrainingData:
    """`made` as `TrainingData`; of a DataModule, the train loader's dataset and settings and the validation loaders.

    Items that are dicts without `window_id` get one.

    Args:
        made: `TrainingData` or a LightningDataModule.
        source: what made it, for messages.

    Raises:
        ValueError: if it is neither, or its loaders cannot be drawn from by an arm.
        UserCodeError: if the DataModule raises.
    """
    where = source.where
    if isinstance(made, TrainingData):
        return made
    if not isinstance(made, pl.LightningDataModule):
        raise ValueError(
            f"{where} must make a TrainingData or a LightningDataModule, got {type(made).__name__}. "
            "Return adaptive_sampling.ab.TrainingData(dataset, {'held-out': loader}, batch_size=…)."
        )
    with naming_user_code(source):
        made.prepare_data()
        made.setup("fit")
        loader = made.train_dataloader()
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
        raise ValueError(
            f"{where} must have one train DataLoader over a map-style dataset, got {type(loader).__name__} in "
            f"{type(made).__name__}. Arms ask for windows by id: return DataLoader(dataset, batch_size=…)."
        )
    if type(loader.batch_sampler) is not BatchSampler:
        raise ValueError(
            f"{where} must leave the choice of windows to the arms, got a {type(loader.batch_sampler).__name__} in "
            f"{type(made).__name__}. Return DataLoader(dataset, batch_size=…) from train_dataloader."
        )
    settings: dict[str, Any] = {
        "num_workers": loader.num_workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "worker_init_fn": loader.worker_init_fn,
    }
    if loader.num_workers:
        settings |= {"prefetch_factor": loader.prefetch_factor, "persistent_workers": loader.persistent_workers}
    with naming_user_code(source):
        validation, first = made.val_dataloader(), loader.dataset[0]
    return TrainingData(
        _identified(loader.dataset, first, where), _named(validation, where), loader.batch_size, **settings
    )


def _named(loaders: Any, where: str) -> dict[str, DataLoader[Any]]:
    if isinstance(loaders, DataLoader):
        return {"held-out": loaders}
    named = loaders if isinstance(loaders, Mapping) else None
    if isinstance(loaders, (list, tuple)):
        named = {f"held-out {number}": loader for number, loader in enumerate(loaders)}
    if not named or not all(isinstance(loader, DataLoader) for loader in named.values()):
        raise ValueError(
            f"{where} must have validation DataLoaders, got {type(loaders).__name__} from val_dataloader. "
            "Return one, a list or a dict of them."
        )
    return {str(name): loader for name, loader in named.items()}


def _identified(dataset: Any, item: Any, where: str) -> Any:
    if isinstance(item, Mapping):
        return dataset if "window_id" in item else with_ids(dataset)
    raise ValueError(
        f"{where} must yield windows as dicts, got {type(item).__name__}. A window's id travels in its batch under "
        "'window_id': return {'input_ids': …, 'labels': …}."
    )
