"""One line per event, with the time that remains: by tokens for training, by evaluations for these."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from adaptive_sampling.ab.record import RunRecord


def print_line(text: str) -> None:
    """Write a line to standard error."""
    print(text, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """A time in words.

    Example:
        >>> duration(42.4), duration(150), duration(9000)
        ('42 s', '2.5 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Progress:
    """Counts tokens and evaluations over all pending runs and says how long the rest will take.

    Training is paid by the token and evaluation by the piece, so each has a rate of its own, learned from what has been
    reported so far.

    Args:
        emit: receives each line.
        names: names of the run folders that are pending.
        steps: steps after which each run is evaluated; the last is the length of a run.
        jobs: runs at a time.
    """

    def __init__(self, emit: Callable[[str], None], names: Sequence[str], steps: Sequence[int], jobs: int = 1) -> None:
        self._emit = emit
        self._max_steps = steps[-1]
        self._evaluations = len(steps)
        self._jobs = jobs
        self._latest: dict[str, RunRecord | None] = dict.fromkeys(names)
        self._open = set(names)
        self._ended = 0

    def remaining(self) -> tuple[float, float] | None:
        """Seconds of training and of evaluation left, with `jobs` runs at a time; None before anything is known."""
        records = [record for record in self._latest.values() if record is not None and record.curve]
        tokens = sum(record.tokens[-1] for record in records)
        evaluations = sum(len(record.curve) for record in records)
        if not tokens:
            return None
        per_token = sum(record.timing.train_seconds for record in records) / tokens
        per_evaluation = sum(record.timing.eval_seconds for record in records) / evaluations
        # Steps are equal in windows, so a run's tokens grow with its steps.
        whole = max(record.tokens[-1] / record.steps[-1] for record in records) * self._max_steps
        left_tokens, left_evaluations = 0.0, 0
        for name in self._open:
            record = self._latest[name]
            begun = record is not None and bool(record.curve)
            left_tokens += whole - (record.tokens[-1] if record is not None and begun else 0.0)
            left_evaluations += self._evaluations - (len(record.curve) if record is not None and begun else 0)
        at_once = max(1, min(self._jobs, len(self._open)))
        return left_tokens * per_token / at_once, left_evaluations * per_evaluation / at_once

    def _tail(self) -> str:
        left = self.remaining()
        if left is None or not self._open:
            return ""
        train, evaluation = left
        return f", about {duration(train + evaluation)} left ({duration(evaluation)} of it in evaluations)"

    def update(self, record: RunRecord) -> None:
        """Say where a run stands, if it has come further."""
        name = f"{record.arm}-seed{record.seed}"
        known = self._latest[name]
        if not record.curve or record.status != "running" or (known and len(known.curve) >= len(record.curve)):
            return
        # The record goes on changing under our hands; what is compared next time is its length now.
        self._latest[name] = RunRecord.from_dict(record.as_dict(), vars(record.timing))
        point = record.curve[-1]
        loss = "not finite" if point["loss"] is None else f"{point['loss']:.3f}"
        self._emit(f"  {name}: step {point['step']}/{self._max_steps}, held-out loss {loss}{self._tail()}")

    def ended(self, record: RunRecord) -> None:
        """Say how a run ended."""
        name = f"{record.arm}-seed{record.seed}"
        self._latest[name] = record
        self._open.discard(name)
        self._ended += 1
        tail = f": {record.error}" if record.error else f", held-out loss {record.final_loss:.4f}"
        head = f"[{self._ended}/{len(self._latest)}] {record.arm}, seed {record.seed}: {record.status}"
        self._emit(f"{head}{tail}{self._tail()}")
