"""Randomness as a function of (seed, purpose, position), never of history and never from a global generator."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def stable_hash(*parts: int | str | bytes) -> int:
    """128-bit integer from integers, strings and bytes; the same on every machine, process and Python version."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        raw = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return int.from_bytes(digest.digest(), "little")


class _Key(ISeedSequence):
    """A key of 128 bits in the form that Philox asks for: its argument `key` gathers entropy first, for nothing."""

    def __init__(self, key: int) -> None:
        self._words = [key & 0xFFFFFFFFFFFFFFFF, key >> 64]

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        """Both halves, low first."""
        return np.array(self._words, np.uint64)


def keyed_generator(*parts: int | str | bytes) -> np.random.Generator:
    """A generator keyed by `parts`: same parts, same stream, on every platform that NumPy supports."""
    # NumPy documents any ISeedSequence here; its annotation names its own alone.
    return np.random.Generator(np.random.Philox(_Key(stable_hash(*parts))))  # type: ignore[arg-type]


def mix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Bijective 64-bit mixing of each element (the finaliser of splitmix64, Steele et al. 2014)."""
    z = values + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def hash_rows(seed_parts: tuple[int | str | bytes, ...], *columns: NDArray[np.generic]) -> NDArray[np.uint64]:
    """64-bit hash per row of integer `columns`, salted with `seed_parts`; vectorised, equal on every machine.

    Negative integers are taken modulo 2^64.
    """
    salt = np.uint64(stable_hash(*seed_parts) & 0xFFFFFFFFFFFFFFFF)
    rows = np.full(np.broadcast_shapes(*(c.shape for c in columns)), salt, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            rows = mix64(rows ^ mix64(column.astype(np.uint64)))
    return rows
