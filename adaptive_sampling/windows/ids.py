"""Ids for datasets that have none: each item carries the index that it was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset, IterableDataset

from adaptive_sampling.windows._ids import checked_id, checked_ids


class _WithIds(Dataset[Any]):
    """See `with_ids`."""

    def __init__(self, dataset: Any, key: str) -> None:
        self.dataset = dataset
        self.key = key

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        index = checked_id(index, len(self.dataset))
        return self._add(self.dataset[index], index)

    def __getitems__(self, indices: Any) -> list[Any]:
        ids = checked_ids(indices, len(self.dataset)).tolist()
        together = getattr(self.dataset, "__getitems__", None)
        items: Sequence[Any] = together(ids) if together is not None else [self.dataset[index] for index in ids]
        return [self._add(item, index) for item, index in zip(items, ids, strict=True)]

    def __getattr__(self, name: str) -> Any:
        # Dunder names would send copy and pickle to the wrapped dataset; `dataset` is missing before __init__ has run.
        if name == "dataset" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def _add(self, item: Any, index: int) -> Any:
        if isinstance(item, Mapping):
            if self.key in item and not np.array_equal(item[self.key], index):
                raise ValueError(
                    f"`key` must be new to the items, or hold the index already, got {self.key!r}, which is "
                    f"{item[self.key]!r} in item {index}. Give with_ids another key."
                )
            return {**item, self.key: index}
        if isinstance(item, (tuple, list)):
            return type(item)([*item, index]) if type(item) in (tuple, list) else (*item, index)
        return (item, index)


def with_ids(dataset: Any, key: str = "window_id") -> Dataset[Any]:
    """Wrap a map-style `dataset` so that each item carries its index, as a weight needs to know whose loss it is.

    A dict item is copied with `key` added. A tuple or list gets the index as a new last entry (a named tuple becomes a
    plain one); any other item becomes (item, index). The index is an int, which the default collate function makes an
    int64 tensor. Length, `__getitems__` and all other attributes are those of `dataset`.

    Args:
        dataset: Has `__len__` and `__getitem__`.
        key: Name of the index in dict items.

    Returns:
        A map-style dataset.

    Raises:
        TypeError: if `dataset` is not map-style.
        ValueError: if `key` is no name.

    Example:
        >>> with_ids([{"x": 5}, {"x": 6}])[1]
        {'x': 6, 'window_id': 1}
    """
    # torch's IterableDataset inherits a __getitem__ that only raises.
    iterable = isinstance(dataset, IterableDataset)
    if iterable or not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise TypeError(
            f"`dataset` must be map-style, with __len__ and __getitem__, got {type(dataset).__name__}. "
            "An iterable dataset has no indices to weigh."
        )
    if not isinstance(key, str) or not key:
        raise ValueError(f"`key` must be a name, got {key!r}. Try 'window_id'.")
    return _WithIds(dataset, key)
