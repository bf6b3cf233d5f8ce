"""What a policy remembers of each window."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.weights import transforms

Floats = NDArray[np.float64]


class Rows(NamedTuple):
    """The columns of some windows.

    Attributes:
        score: float32, running mean of the signal, in its units; 0 where never seen.
        visits: int32, updates in which the window was observed.
        time: float32, when its evidence was gathered, see `Drift`: the running mean of the times of its visits.
        first: float32, the first value.
    """

    score: NDArray[np.float32]
    visits: NDArray[np.int32]
    time: NDArray[np.float32]
    first: NDArray[np.float32]


COLUMNS = {"score": np.float32, "visits": np.int32, "time": np.float32, "first": np.float32}


class Table:
    """`Rows` of all windows; 16 bytes each."""

    def __init__(self, num_windows: int) -> None:
        self.rows = Rows(**{name: np.zeros(num_windows, kind) for name, kind in COLUMNS.items()})

    def __len__(self) -> int:
        return len(self.rows.score)

    def grow(self, num_windows: int) -> None:
        """More windows; what is known of the others stays."""
        more = num_windows - len(self)
        columns: dict[str, Any] = {
            name: np.concatenate([old, np.zeros(more, old.dtype)]) for name, old in self.rows._asdict().items()
        }
        self.rows = Rows(**columns)

    def of(self, ids: NDArray[np.int64] | slice) -> Rows:
        """The rows of some windows; views for a slice."""
        columns: dict[str, Any] = {name: column[ids] for name, column in self.rows._asdict().items()}
        return Rows(**columns)

    def observe(self, ids: NDArray[np.int64], values: Floats, time: float, decay: float) -> None:
        """A visit of each of `ids`, which are all different."""
        score, visits, when, first = self.of(ids)
        self.rows.score[ids] = transforms.ema_step(score, visits, values, decay)
        self.rows.time[ids] = transforms.ema_step(when, visits, time, decay)
        self.rows.first[ids] = np.where(visits > 0, first, values)
        self.rows.visits[ids] = visits + 1
