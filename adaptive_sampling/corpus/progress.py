"""How far a long piece of work is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One moment of the work.

    Attributes:
        stage: What is being done, such as "tokenizing".
        documents: Documents done in this stage.
        done: Bytes done in this stage.
        total: Bytes of the whole stage, None where unknown.
    """

    stage: str
    documents: int
    done: int
    total: int | None


Report = Callable[[Progress], None]


class StageCounter:
    """Adds up documents and bytes of one stage and reports each change."""

    def __init__(self, report: Report | None, stage: str, total: int | None) -> None:
        self._report, self._stage, self._total = report, stage, total
        self._documents = self._done = 0

    def add(self, documents: int, size: int) -> None:
        """Some more is done."""
        self._documents += documents
        self._done += size
        if self._report is not None:
            self._report(Progress(self._stage, self._documents, self._done, self._total))


class ProgressBar:
    """A line on stderr that is written over, on a terminal only: logs and pipes get none of it.

    It shows documents, MB per second, and the time left by bytes.
    """

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._next = 0.0
        self._stage = ""
        self._begun = 0.0

    def __call__(self, progress: Progress) -> None:
        """Show how far it is, ten times a second at most."""
        now = time.monotonic()
        if progress.stage != self._stage:
            self._stage, self._begun, self._next = progress.stage, now, now
        if not self._shown or (now < self._next and progress.done != progress.total):
            return
        self._next = now + 0.1
        print(f"\r\x1b[K{format_progress(progress, now - self._begun)}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the line."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def format_progress(progress: Progress, seconds: float) -> str:
    """One line of a progress bar.

    Example:
        >>> format_progress(Progress("reading", 1200, 50_000_000, 100_000_000), 5.0)
        'reading: [##########          ] 50%, 1,200 documents, 10.0 MB/s, 0:00:05 left'
    """
    speed = progress.done / seconds if seconds > 0 else 0.0
    text = f"{progress.documents:,} documents" + (f", {speed / 1e6:.1f} MB/s" if speed else "")
    if not progress.total:
        return f"{progress.stage}: {text}"
    share = min(progress.done / progress.total, 1.0)
    left = f", {_clock((progress.total - progress.done) / speed)} left" if speed and share < 1 else ""
    return f"{progress.stage}: [{'#' * int(20 * share):<20}] {int(100 * share)}%, {text}{left}"


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
