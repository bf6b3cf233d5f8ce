"""Work on long arrays, block by block: in the processor's cache, on several threads, the same on any number of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
# A block of this many float64 values stays in the cache from step to step.
BLOCK = 1 << 16
_MOST_THREADS = 4


def map_blocks(length: int, work: Callable[[slice], T]) -> list[T]:
    """`work` for consecutive blocks of `range(length)`.

    NumPy releases the interpreter while it computes, so that blocks run side by side. `work` may write to its own
    block of an array.

    Returns:
        What `work` returned, in the order of the blocks, so that sums over it do not depend on the number of threads.
    """
    blocks = [slice(first, min(first + BLOCK, length)) for first in range(0, length, BLOCK)]
    threads = min(_available(), _MOST_THREADS, len(blocks))
    if threads < 2:
        return [work(block) for block in blocks]

    def share(first: int) -> list[T]:
        return [work(block) for block in blocks[first::threads]]

    with ThreadPoolExecutor(threads) as pool:
        shares = list(pool.map(share, range(threads)))
    return [shares[i % threads][i // threads] for i in range(len(blocks))]


def _available() -> int:
    """Processors that this process may use, which can be fewer than the machine has."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS or Windows
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
