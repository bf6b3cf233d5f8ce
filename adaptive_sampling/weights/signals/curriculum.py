"""Curriculum: windows that are still too difficult are held back, and the threshold moves with the training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from adaptive_sampling._random import stable_hash
from adaptive_sampling.weights._checks import checked_number, checked_values
from adaptive_sampling.weights.schedules import Linear, Schedule, as_schedule
from adaptive_sampling.weights.signals.protocol import BaseSignal, Floats, Observed, Signal


class CurriculumSignal(BaseSignal):
    """Any score as difficulty; windows above a quantile of it weigh less, and the quantile moves.

    Weights fall smoothly across the threshold, see `transforms.below_threshold`, down to the policy's floor. Which
    windows are easy is for the score to say: a fixed array (length, loss of a reference model) or another signal as it
    is observed.

    Args:
        difficulty: real `[N]`, known beforehand, or a `Signal`.
        threshold: quantile of difficulty, in [0, 1], as a number or a schedule; default: 0.3 at the beginning, rising
            to 1 (nothing is held back) at half of the training.

    Raises:
        ValueError: on a difficulty that is not finite, naming the window, or a threshold outside [0, 1].
    """

    name = "curriculum"

    def __init__(self, difficulty: Any, threshold: float | Schedule | None = None) -> None:
        self._inner: Signal | None = None
        if isinstance(difficulty, Signal):
            if difficulty.threshold is not None:
                raise ValueError("`difficulty` must be no curriculum itself, got one. Give the score under it.")
            self._inner, self.known = difficulty, difficulty.known
        else:
            values = np.asarray(difficulty)
            self.known = checked_values("difficulty", values, len(values) if values.ndim else 0)
            bad = ~np.isfinite(self.known)
            if bad.any():
                first = int(bad.argmax())
                raise ValueError(f"`difficulty` must be finite, got {float(values[first])!r} for window {first}.")
        self.needs = ("loss",) if self._inner is None else self._inner.needs
        moving = Linear(0.3, 1.0, end=0.5) if threshold is None else as_schedule(threshold)
        if not isinstance(moving, Schedule):
            raise ValueError(f"`threshold` must be a number in [0, 1] or a schedule, got {threshold!r}.")
        for value in moving.values:
            checked_number("threshold", value, 0.0, 1.0, what="a quantile in [0, 1] or a schedule of such")
        self.threshold = moving

    def bind(self, num_windows: int, num_groups: int | None) -> None:
        """Refuse another number of windows."""
        if self._inner is not None:
            self._inner.bind(num_windows, num_groups)
        elif self.known is not None and num_windows != len(self.known):
            raise ValueError(
                f"`difficulty` must hold one value per window ({num_windows}), got {len(self.known)}. "
                "Compute it with the same dataset and window settings."
            )

    def values(self, observed: Observed) -> Floats:
        """The difficulties of these windows."""
        if self._inner is not None:
            return self._inner.values(observed)
        assert self.known is not None
        return self.known[observed.ids]

    def settings(self) -> dict[str, Any]:
        """Threshold and difficulty."""
        assert self.threshold is not None
        inner = None if self._inner is None else {"name": self._inner.name, **self._inner.settings()}
        known = None if self.known is None else f"{stable_hash(self.known.tobytes()):032x}"
        return {"threshold": self.threshold.as_primitives(), "difficulty": inner or known}

    def state_dict(self) -> dict[str, Any]:
        """What the observed score remembers."""
        return {} if self._inner is None else self._inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        if self._inner is not None:
            self._inner.load_state_dict(state)
