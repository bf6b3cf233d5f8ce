"""How long our part of a training takes, and how long a step is without it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class OverheadClock:
    """Time within our hooks over all time since the training began.

    On a GPU the hooks are measured as the host sees them: an update waits for the losses that it reads.

    Attributes:
        update_seconds: the last update, from the gather to the new weights.
        pass_seconds: the last update that gave all windows new weights.
    """

    def __init__(self) -> None:
        self.update_seconds = 0.0
        self.pass_seconds = 0.0
        self._began = self._since = time.perf_counter()
        self._ours = self._ours_since = 0.0

    @contextmanager
    def ours(self) -> Iterator[None]:
        """The time within counts as ours."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._ours += time.perf_counter() - start

    def add(self, seconds: float) -> None:
        """Time of ours that another callback took."""
        self._ours += seconds

    @property
    def overhead(self) -> float:
        """Our share of the time, in per cent of the rest."""
        rest = time.perf_counter() - self._began - self._ours
        return 100.0 * self._ours / rest if rest > 0 else 0.0

    def seconds_per_step(self, steps: int) -> float | None:
        """Mean time of the `steps` steps since the last call, without ours; None: nothing was measured."""
        now = time.perf_counter()
        rest = (now - self._since) - (self._ours - self._ours_since)
        self._since, self._ours_since = now, self._ours
        return rest / steps if steps > 0 and rest > 1e-9 else None
