"""Several token files that read as one array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class ShardedTokens:
    """Read-only tokens of several memory maps, indexed by position as one array would be.

    Integers, slices and integer arrays of any shape are gathered from the shards that hold them; `np.asarray` of the
    whole copies everything into memory.

    Args:
        shards: One-dimensional arrays of one dtype, none empty.

    Cost: a gather looks each position up in the shard ends, then reads per shard that is touched.
    """

    ndim = 1

    def __init__(self, shards: list[NDArray[Any]]) -> None:
        self.shards = shards
        self.dtype = shards[0].dtype
        self.itemsize = self.dtype.itemsize
        self._ends = np.cumsum([len(shard) for shard in shards])

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def shape(self) -> tuple[int]:
        """(number of tokens,)."""
        return (len(self),)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (int, np.integer)) and not isinstance(index, bool):
            at = int(index) + (len(self) if index < 0 else 0)
            if not 0 <= at < len(self):
                raise IndexError(f"`index` must be in [{-len(self)}, {len(self)}), got {index}.")
            number = int(np.searchsorted(self._ends, at, side="right"))
            return self.shards[number][at - int(self._ends[number]) + len(self.shards[number])]
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return self[np.arange(start, stop, step)]
            return self._slice(start, max(start, stop))
        return self._gather(np.asarray(index))

    def _slice(self, start: int, stop: int) -> NDArray[Any]:
        pieces = []
        for shard, end in zip(self.shards, self._ends.tolist(), strict=True):
            first = end - len(shard)
            if first < stop and end > start:
                pieces.append(shard[max(start - first, 0) : stop - first])
        if len(pieces) == 1:
            return np.asarray(pieces[0])
        return np.concatenate(pieces) if pieces else np.zeros(0, self.dtype)

    def _gather(self, index: NDArray[Any]) -> NDArray[Any]:
        if index.dtype == bool:
            index = np.flatnonzero(index)
        flat = index.astype(np.int64).ravel()
        flat = np.where(flat < 0, flat + len(self), flat)
        if len(flat) and not (int(flat.min()) >= 0 and int(flat.max()) < len(self)):
            raise IndexError(f"`index` must be in [{-len(self)}, {len(self)}), got {index.min()} to {index.max()}.")
        numbers = np.searchsorted(self._ends, flat, side="right")
        out = np.empty(len(flat), self.dtype)
        for number in np.unique(numbers).tolist():
            here = numbers == number
            shard = self.shards[number]
            out[here] = shard[flat[here] - (int(self._ends[number]) - len(shard))]
        return out.reshape(index.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("tokens of several shards cannot be one array without a copy.")
        whole = np.concatenate(self.shards)
        return whole if dtype is None else whole.astype(dtype)

    def tolist(self) -> list[int]:
        """All tokens, as Python integers."""
        return [token for shard in self.shards for token in shard.tolist()]

    def __repr__(self) -> str:
        return f"ShardedTokens({len(self)} {self.dtype.name} in {len(self.shards)} shards)"
