"""Several signals as one, by name and weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from adaptive_sampling.weights._checks import checked_number
from adaptive_sampling.weights.signals.protocol import BaseSignal, Floats, Observed, Signal


class CombinedSignal(BaseSignal):
    """Weighted sum of signals in their own units; a weight also says what one unit is worth.

    Args:
        parts: name of a signal, or a signal → its weight, for instance `{"loss": 1.0, "progress": 20.0}`.

    Raises:
        ValueError: on no parts, weights that are not finite or all 0, names that there are not, two parts of one name,
            or a part that is a curriculum (its threshold acts on weights, not on values).
    """

    name = "combined"

    def __init__(self, parts: Mapping[str | Signal, float]) -> None:
        from adaptive_sampling.weights.signals.named import resolve_signal  # it offers this class by name

        if not isinstance(parts, Mapping) or not parts:
            raise ValueError(f"`parts` must be a mapping from signal to weight, got {parts!r}. Give at least one.")
        self.parts: dict[str, tuple[Signal, float]] = {}
        for part, weight in parts.items():
            signal = resolve_signal(part)
            if signal.threshold is not None:
                raise ValueError(f"`parts` must hold no curriculum, got {signal.name!r}. Give the curriculum the sum.")
            if signal.name in self.parts:
                raise ValueError(f"`parts` must have different names, got {signal.name!r} twice. Add their weights.")
            what = "finite weights"
            self.parts[signal.name] = signal, checked_number("parts", weight, -1e30, 1e30, what=what)
        if not any(weight for _, weight in self.parts.values()):
            raise ValueError(f"`parts` must have a weight other than 0, got {list(parts.values())!r}.")
        self.needs = tuple(dict.fromkeys(need for signal, _ in self.parts.values() for need in signal.needs))
        self.signed = any(signal.signed or weight < 0 for signal, weight in self.parts.values())

    def bind(self, num_windows: int, num_groups: int | None) -> None:
        """Bind each part."""
        for signal, _ in self.parts.values():
            signal.bind(num_windows, num_groups)

    def values(self, observed: Observed) -> Floats:
        """The weighted sum."""
        # Those with memory come last: a part that refuses its values must do so before another has changed.
        order = sorted(self.parts.values(), key=lambda part: bool(part[0].state_dict()))
        return np.asarray(sum(weight * signal.values(observed) for signal, weight in order), np.float64)

    def settings(self) -> dict[str, Any]:
        """Weights and settings of the parts."""
        return {name: {"weight": weight, **signal.settings()} for name, (signal, weight) in self.parts.items()}

    def state_dict(self) -> dict[str, Any]:
        """States of the parts."""
        return {name: signal.state_dict() for name, (signal, _) in self.parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        for name, (signal, _) in self.parts.items():
            signal.load_state_dict(state[name])
