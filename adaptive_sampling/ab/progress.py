"""One line per event, with the time that remains."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from adaptive_sampling.ab.record import RunRecord


def print_line(text: str) -> None:
    """Write a line to standard error."""
    print(text, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """A time in words.

    Example:
        >>> duration(42.4), duration(150)
        ('42 s', '2.5 min')
    """
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"


class Progress:
    """Counts steps over all pending runs and says how long the rest will take.

    Args:
        emit: receives each line.
        names: names of the run folders that are pending.
        max_steps: steps per run.
    """

    def __init__(self, emit: Callable[[str], None], names: Sequence[str], max_steps: int) -> None:
        self._emit = emit
        self._max_steps = max_steps
        self._steps = dict.fromkeys(names, 0)
        self._ended = 0
        self._started = time.monotonic()

    def _remaining(self) -> str:
        done, total = sum(self._steps.values()), len(self._steps) * self._max_steps
        if done >= total:
            return ""
        elapsed = time.monotonic() - self._started
        return f", about {duration(elapsed * (total - done) / done)} left" if done else ""

    def update(self, record: RunRecord) -> None:
        """Say where a run stands, if it has come further."""
        name = f"{record.arm}-seed{record.seed}"
        point = record.curve[-1] if record.curve else None
        if point is None or point["step"] <= self._steps[name] or record.status != "running":
            return
        self._steps[name] = point["step"]
        loss = "not finite" if point["loss"] is None else f"{point['loss']:.3f}"
        self._emit(f"  {name}: step {point['step']}/{self._max_steps}, held-out loss {loss}{self._remaining()}")

    def ended(self, record: RunRecord) -> None:
        """Say how a run ended."""
        self._steps[f"{record.arm}-seed{record.seed}"] = self._max_steps
        self._ended += 1
        tail = f": {record.error}" if record.error else f", held-out loss {record.final_loss:.4f}"
        head = f"[{self._ended}/{len(self._steps)}] {record.arm}, seed {record.seed}: {record.status}"
        self._emit(f"{head}{tail}{self._remaining()}")
