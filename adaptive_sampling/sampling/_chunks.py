"""Work over long arrays in chunks that stay in the cache, on several threads where that pays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

CHUNK = 1 << 16
_THREADED_FROM = 1 << 22
_MOST_THREADS = 8
Result = TypeVar("Result")


def chunks(length: int) -> Iterator[slice]:
    """Slices of at most `CHUNK` elements that cover `length`."""
    return (slice(start, min(start + CHUNK, length)) for start in range(0, length, CHUNK))


def for_each_chunk(length: int, work: Callable[[slice], Result]) -> list[Result]:
    """Results of `work` for each chunk, in order.

    NumPy gives up the interpreter's lock inside its loops, so threads help. Chunks must not depend on each other: the
    result is then the same on any number of threads.
    """
    if length < _THREADED_FROM:
        return [work(part) for part in chunks(length)]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(min(cores, _MOST_THREADS)) as pool:
        return list(pool.map(work, chunks(length)))
