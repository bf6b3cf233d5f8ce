"""The two held-out sets, as split and without near-copies of training text, as disjoint parts evaluated once.

Held-out loss on text whose near-copy was trained on rewards remembering the copy. So each held-out window is of one of
three kinds: a near-copy of training text, one of the scarcest tenth of the rest, or plain; every sum is made of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, SequentialSampler, Subset

from adaptive_sampling.ab.arms import TrainingData
from adaptive_sampling.neighbors import HashedFeaturizer, near_duplicates_of, nearest

Kind = Literal["plain", "scarce", "copies"]
KINDS: tuple[Kind, ...] = ("plain", "scarce", "copies")

FEWEST_WINDOWS = 100
FEWEST_TARGETS = 10_000
"""Held-out text below either is reported as too little: single windows then move the loss."""


@dataclass(frozen=True)
class HeldOutSplit:
    """Which kind each held-out window is of.

    Attributes:
        kinds: int8 per window of each source, an index into `KINDS`; None: windows were not told apart.
        notes: what the reader of the result must know.
    """

    kinds: Mapping[str, NDArray[np.int8]] | None
    notes: tuple[str, ...] = ()

    def count(self, kind: Kind) -> int:
        """Windows of a kind over all sources."""
        if self.kinds is None:
            return 0
        return sum(int((kinds == KINDS.index(kind)).sum()) for kinds in self.kinds.values())


def split_held_out(data: TrainingData) -> HeldOutSplit:
    """Tell the held-out windows of `data` apart, where they are windows of tokens.

    Cost:
        One reading of training and held-out windows, one search of the latter among the former.
    """
    windows = {name: len(loader.dataset) for name, loader in data.validation.items()}  # type: ignore[arg-type]
    if not data.find_near_copies:
        return HeldOutSplit(None, ("Near-copies of training text were not looked for, as asked.",))
    train = readable(data.dataset)
    held_out = {name: readable(loader.dataset) for name, loader in data.validation.items()}
    ordered = all(isinstance(loader.sampler, SequentialSampler) for loader in data.validation.values())
    if train is None or not ordered or any(reader is None for reader in held_out.values()):
        what = "validation loaders shuffle" if not ordered else "windows carry no tokens under 'input_ids'"
        return HeldOutSplit(None, (f"Near-copies of training text could not be looked for: {what}.",))
    featurizer = HashedFeaturizer().fit(train)
    features = featurizer.transform(train)
    queries = np.concatenate([featurizer.transform(reader) for reader in held_out.values() if reader is not None])
    copies = near_duplicates_of(features, queries)
    similarity = nearest(features, queries, num_neighbors=1).values[:, 0]
    clean = np.flatnonzero(~copies)
    total = len(queries)
    if len(clean) < max(1, total // 20):
        return HeldOutSplit(
            None,
            (
                f"{total - len(clean)} of {total} held-out windows are near-copies of training text, too many to leave "
                "them out: the verdict rests on the held-out text as split, which rewards remembering copies.",
            ),
        )
    kinds = np.full(total, KINDS.index("plain"), np.int8)
    kinds[copies] = KINDS.index("copies")
    if len(clean) >= 10:
        order = clean[np.argsort(similarity[clean], kind="stable")]
        kinds[order[: len(clean) // 10]] = KINDS.index("scarce")
    notes = (
        f"{total - len(clean)} of {total} held-out windows are near-copies of training text and do not count for the "
        "verdict."
        if len(clean) < total
        else "No held-out window is a near-copy of training text.",
    )
    ends = np.cumsum(list(windows.values()))[:-1]
    return HeldOutSplit(dict(zip(windows, np.split(kinds, ends), strict=True)), notes)


def part_loaders(data: TrainingData, split: HeldOutSplit) -> dict[str, dict[Kind, DataLoader[Any]]]:
    """Per source, a loader for each kind of which there are windows."""
    if split.kinds is None:
        return {name: {"plain": loader} for name, loader in data.validation.items()}
    return {
        name: {
            kind: _part(loader, np.flatnonzero(split.kinds[name] == number))
            for number, kind in enumerate(KINDS)
            if (split.kinds[name] == number).any()
        }
        for name, loader in data.validation.items()
    }


def _part(loader: DataLoader[Any], indices: NDArray[np.int64]) -> DataLoader[Any]:
    settings: dict[str, Any] = {
        "batch_size": loader.batch_size,
        "collate_fn": loader.collate_fn,
        "num_workers": loader.num_workers,
        "pin_memory": loader.pin_memory,
        "worker_init_fn": loader.worker_init_fn,
    }
    if loader.num_workers:
        settings["prefetch_factor"] = loader.prefetch_factor
    return DataLoader(Subset(loader.dataset, indices.tolist()), **settings)


def too_little(targets: int, windows: int) -> str | None:
    """A sentence if there is too little held-out text, else None."""
    if targets >= FEWEST_TARGETS and windows >= FEWEST_WINDOWS:
        return None
    return (
        f"Too little held-out text: {windows} windows with {targets} targets count for the verdict, where "
        f"{FEWEST_WINDOWS} windows and {FEWEST_TARGETS} targets or more make a loss that single windows do not move. "
        "Hold out more."
    )


class _Items:
    """Any map-style dataset whose items carry tokens, read item by item."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def read(self, ids: NDArray[np.int64]) -> dict[str, Any]:
        items = [self._dataset[int(index)] for index in ids]
        rows = [np.asarray(item["input_ids"]).reshape(-1) for item in items]
        width = max(len(row) for row in rows)
        tokens, labels = np.zeros((len(rows), width), np.int64), np.full((len(rows), width), -100, np.int64)
        for number, row in enumerate(rows):
            tokens[number, : len(row)] = row
            given = items[number].get("labels")
            same = given is not None and np.asarray(given).shape == row.shape
            labels[number, : len(row)] = np.asarray(given) if same else row
        return {"input_ids": tokens, "labels": labels}


class _Part:
    """A subset of a dataset that reads batches."""

    def __init__(self, dataset: Any, indices: Any) -> None:
        self._dataset = dataset
        self._indices = np.asarray(indices, np.int64)

    def __len__(self) -> int:
        return len(self._indices)

    def read(self, ids: NDArray[np.int64]) -> Any:
        return self._dataset.read(self._indices[ids])


def readable(dataset: Any) -> Any | None:
    """`dataset` as something with `read(ids)` → tokens, None if its items hold none."""
    if callable(getattr(dataset, "read", None)):
        return dataset
    if isinstance(dataset, Subset) and callable(getattr(dataset.dataset, "read", None)):
        return _Part(dataset.dataset, dataset.indices)
    try:
        item = dataset[0]
        tokens = np.asarray(item["input_ids"])
    except (TypeError, KeyError, IndexError, ValueError, RuntimeError):
        return None
    return _Items(dataset) if tokens.ndim == 1 and np.issubdtype(tokens.dtype, np.integer) else None
