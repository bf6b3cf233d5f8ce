"""One line of a benchmark table."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """What was measured, both figures with their units, and ours over the peer's."""

    what: str
    ours: str
    peer: str
    ratio: float


def best_seconds(run: Callable[[], object], repeats: int) -> float:
    """Shortest of several runs: on a shared machine the minimum is the least disturbed one."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best
