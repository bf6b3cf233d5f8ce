"""Batches of windows of like length, for windows that a padded tail makes shorter than seq_len.

ids as the sampler draws them ──(a block at a time)──▶ sorted into buckets ──▶ batches in a random order
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import BatchSampler, default_collate

from adaptive_sampling._arrays import as_array, checked_integer
from adaptive_sampling._random import keyed_generator
from adaptive_sampling.windows.gather import IGNORED_LABEL

Int64 = NDArray[np.int64]
_BLOCK_BATCHES = 64


def bucket_of(lengths: Any, boundaries: Any) -> Int64:
    """Bucket of each length: the first whose boundary is not below it; one more for what is above all.

    Args:
        lengths: Integers [B].
        boundaries: Rising integers.

    Returns:
        int64 [B].

    Raises:
        ValueError: if the boundaries do not rise, or naming the first negative length.
        TypeError: if lengths are no integers.

    Example:
        >>> bucket_of([1, 7, 8, 9, 16, 17], [8, 16, 32]).tolist()
        [0, 0, 0, 1, 1, 2]
    """
    edges = as_array("boundaries", boundaries)
    if len(edges) > 1 and not (np.diff(edges) > 0).all():
        raise ValueError(f"`boundaries` must rise, got {edges.tolist()}. Sort them and drop repeats.")
    return np.searchsorted(edges, _checked_lengths(lengths), side="left").astype(np.int64)


def _checked_lengths(lengths: Any) -> Int64:
    """int64 [N].

    Raises:
        TypeError: if they are no integers.
        ValueError: naming the first that is negative.
    """
    array = as_array("lengths", lengths)
    if len(array) and array.dtype.kind not in "iu":
        raise TypeError(
            f"`lengths` must be integers, got dtype {array.dtype}, first {array[:1].tolist()[0]!r}. "
            "Give dataset.valid_targets()."
        )
    if len(array) and array.min() < 0:
        first = int((array < 0).argmax())
        raise ValueError(
            f"`lengths` must not be negative, got {int(array[first])} for window {first}. Give dataset.valid_targets()."
        )
    return array.astype(np.int64)


def padding_share(lengths: Any, batches: Sequence[Any]) -> float:
    """Share of padding when each batch is as wide as its longest window.

    Args:
        lengths: Integers [N], targets of each window.
        batches: Ids of each batch.

    Returns:
        The share, in [0, 1).

    Example:
        >>> padding_share([1, 4, 4, 1], [[0, 1], [2, 3]]), padding_share([1, 4, 4, 1], [[0, 3], [1, 2]])
        (0.375, 0.0)
    """
    of_all = as_array("lengths", lengths)
    real = sum(int(of_all[np.asarray(batch)].sum()) for batch in batches if len(batch))
    wide = sum(len(batch) * int(of_all[np.asarray(batch)].max()) for batch in batches if len(batch))
    return 1 - real / wide if wide else 0.0


class LengthBucketBatchSampler(BatchSampler):
    """Batches of ids from any sampler, those of like length together.

    Ids are taken from the sampler a block at a time, so what is drawn and how often stays as the sampler says; only the
    order within a block changes. With `trim_padding` as collate function a batch is as wide as its longest window.
    A resume in the middle of a block goes on where the sampler is: up to a block of windows is then seen again or left
    out. Save at the end of a block where that matters. Under the callback a block counts as fetched ahead, so
    `sampler.lag` must be at least `block_batches` and what workers fetch.

    Args:
        sampler: Yields ids.
        batch_size: Windows of a batch.
        drop_last: Leave out the last batch if it is smaller.
        lengths: Integers [N], targets of each window: `dataset.valid_targets()`.
        boundaries: Longest window of each bucket, rising; default: eighths of the longest of all.
        block_batches: Batches of a block.
        seed: Seed of the order of batches.

    Raises:
        ValueError: for a setting out of range.

    Determinism: a function of the drawn ids and the seed. Cost: a sort per block.
    """

    def __init__(
        self,
        sampler: Any,
        batch_size: int,
        drop_last: bool = False,
        *,
        lengths: Any,
        boundaries: Any = None,
        block_batches: int = _BLOCK_BATCHES,
        seed: int = 0,
    ) -> None:
        super().__init__(sampler, checked_integer("batch_size", batch_size, 1), bool(drop_last))
        self.lengths = _checked_lengths(lengths)
        longest = int(self.lengths.max(initial=1))
        edges = np.unique(-(-longest * np.arange(1, 9) // 8)) if boundaries is None else boundaries
        self._buckets = bucket_of(self.lengths, edges).astype(np.int64)
        self.block_batches = checked_integer("block_batches", block_batches, 1)
        self.seed = seed
        self._before = [0, 0]  # tokens that are padding, and all, with batches as drawn
        self._after = [0, 0]

    def __iter__(self) -> Iterator[list[int]]:
        ids = iter(self.sampler)
        size = self.batch_size * self.block_batches
        rest = np.zeros(0, np.int64)
        for number in range(1 << 62):
            drawn = np.fromiter(islice(ids, size), np.int64)
            ended = len(drawn) < size
            batches, rest = self._batches(np.concatenate([rest, drawn]), number, last=ended)
            self._count(self._before, _cut(drawn, self.batch_size))
            self._count(self._after, batches)
            yield from (batch.tolist() for batch in batches)
            if ended:
                return

    def _batches(self, ids: Int64, number: int, *, last: bool) -> tuple[list[Int64], Int64]:
        """Full batches of a block in a random order, and what is left; in the last block that too."""
        if np.any((ids < 0) | (ids >= len(self.lengths))):
            raise IndexError(
                f"`lengths` must have an entry for every id, got {len(self.lengths)} and id {int(ids.max())}. "
                "Give the lengths of the sampler's dataset."
            )
        order = keyed_generator("length buckets", self.seed, number)
        ids = order.permutation(ids)
        ids = ids[np.argsort(self._buckets[ids], kind="stable")]
        batches = _cut(ids, self.batch_size)
        rest = np.zeros(0, np.int64)
        if batches and len(batches[-1]) < self.batch_size and (not last or self.drop_last):
            rest = batches.pop()
        return [batches[k] for k in order.permutation(len(batches))], rest

    def _count(self, counts: list[int], batches: list[Int64]) -> None:
        for batch in batches:
            own = self.lengths[batch]
            wide = len(batch) * int(own.max())
            counts[0] += wide - int(own.sum())
            counts[1] += wide

    @property
    def padding_before(self) -> float:
        """Share of padding so far, had the batches been made as the ids were drawn."""
        return self._before[0] / self._before[1] if self._before[1] else 0.0

    @property
    def padding_after(self) -> float:
        """Share of padding so far."""
        return self._after[0] / self._after[1] if self._after[1] else 0.0


def trim_padding(items: Sequence[Any]) -> dict[str, torch.Tensor]:
    """Collate items of a `WindowDataset` and cut off the columns that are padding in all of them.

    Args:
        items: Items with "labels"; tensors as long as these are cut.

    Returns:
        The batch; at least one column is left.
    """
    batch: dict[str, torch.Tensor] = default_collate(list(items))
    labels = batch["labels"]
    used = torch.nonzero((labels != IGNORED_LABEL).any(dim=0))
    width = int(used.max()) + 1 if len(used) else 1
    return {
        name: values[:, :width].contiguous() if values.shape[:2] == labels.shape else values
        for name, values in batch.items()
    }


def _cut(ids: Int64, size: int) -> list[Int64]:
    return [ids[start : start + size] for start in range(0, len(ids), size)]
