"""Are the targets of a loss shared out to the windows that they belong to? Told from the first batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Integers = NDArray[np.int64]


def in_other_rows(targets: Tensor, valid: Tensor, num_windows: int, batch: Any) -> bool:
    """Are `targets` tokens of `batch` in the order of the batch, or of its transpose, but not each window's own?

    True only where chance cannot be the reason; targets made of something else than the batch's tokens are let pass.

    Args:
        targets: as a loss was given them, windows first; class probabilities are let pass.
        valid: bool, of as many entries: the target counts.
        num_windows: B.
        batch: tensors, or a mapping, list or tuple of them.

    Cost:
        O(targets + tokens), on the CPU: for one batch of a training.
    """
    if targets.is_floating_point() or targets.numel() != valid.numel() or targets.numel() <= num_windows:
        return False
    kept = valid.reshape(num_windows, -1).cpu().numpy()
    rows = targets.detach().reshape(num_windows, -1).long().cpu().numpy()
    tables = list(_token_tables(batch, num_windows))
    if not tables or not kept.any() or any(_each_within(rows, kept, table) for table in tables):
        return False
    chosen = rows[kept]
    # Of tokens met by chance, each takes as many as there are kinds until it is found.
    needed = len(chosen) * len(np.unique(chosen))
    return any(
        needed > 2 * table.size and (_in_order(chosen, table.reshape(-1)) or _in_order(chosen, table.T.reshape(-1)))
        for table in tables
    )


def _token_tables(batch: Any, num_windows: int) -> Iterator[Integers]:
    """Integers `[B, T]` of the batch."""
    entries = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else [batch]
    for entry in entries:
        if (
            isinstance(entry, Tensor)
            and entry.ndim == 2
            and entry.shape[0] == num_windows
            and entry.shape[1] > 1
            and not (entry.is_floating_point() or entry.is_complex() or entry.dtype is torch.bool)
        ):
            yield entry.detach().long().cpu().numpy()


def _each_within(rows: Integers, kept: NDArray[np.bool_], table: Integers) -> bool:
    """Does each row of `table` hold what the same row of `rows` keeps, as often?"""
    values = np.unique(np.concatenate([rows[kept], table.reshape(-1)]))
    number = np.arange(len(rows))[:, None] * len(values)
    here, here_counts = np.unique((np.searchsorted(values, rows) + number)[kept], return_counts=True)
    there, there_counts = np.unique(np.searchsorted(values, table) + number, return_counts=True)
    place = np.minimum(np.searchsorted(there, here), len(there) - 1)
    return bool(((there[place] == here) & (there_counts[place] >= here_counts)).all())


def _in_order(part: Integers, whole: Integers) -> bool:
    """Is `part` left of `whole` when some entries are struck out?"""
    rest = iter(whole.tolist())
    return all(value in rest for value in part.tolist())
