"""One line of a benchmark table, and how its figures are measured and written."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """What was measured, both figures with their units, and the ratio of the times (or bytes): ours over the peer's.

    `ratio` is None where the peer has no figure; `peer` then says why.
    """

    what: str
    ours: str
    peer: str
    ratio: float | None


def best_seconds(run: Callable[[], object], repeats: int, budget: float = float("inf")) -> float:
    """Shortest of several runs: on a shared machine the minimum is the least disturbed one.

    Further runs are left out once all together have taken `budget` seconds.
    """
    best, spent = float("inf"), 0.0
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds = time.perf_counter() - start
        best, spent = min(best, seconds), spent + seconds
        if spent > budget:
            break
    return best


def seconds_text(seconds: float) -> str:
    """Seconds with three digits, in the unit that fits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
