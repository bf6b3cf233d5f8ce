"""What a signal is, for those who write their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.weights.schedules import Schedule

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Observed:
    """What was captured of the windows of one update.

    Attributes:
        ids: int64 `[U]`, window ids, ascending, without repetition.
        groups: int64 `[U]`, the group of each; the window id itself where the policy has no groups.
        captured: name → float64 `[U]`, finite: the values that the signal's `needs` name, averaged over the
            observations of a window in this update.
    """

    ids: NDArray[np.int64]
    groups: NDArray[np.int64]
    captured: Mapping[str, Floats]


@runtime_checkable
class Signal(Protocol):
    """A kind of observation. `BaseSignal` has answers for all but `name` and `values`.

    What a forward pass has to yield is declared in `needs`, so that nothing is computed that no policy asks for. Known
    names, each one value per window of the batch:

    - "loss": mean cross-entropy over the window's valid targets, in nats;
    - "entropy": mean entropy of the predicted distributions over the same positions, in nats.

    Whoever feeds the policy (the callback, or a loop of one's own) reads `policy.needs`, captures these values alone
    and calls `policy.update(ids, values)`: an array where one value is needed, else a mapping from name to array. A
    signal may name a value of its own; then the loop has to capture it.

    Attributes:
        name: the word for it in messages and states.
        needs: names of captured values.
        signed: values may be negative; the policy maps them to positive ones before a weight is made of them.
        known: float64 `[N]`, the value of every window where it is known beforehand; None: it is to be observed.
        threshold: where windows above a moving quantile of the values are held back (a curriculum), the quantile as a
            schedule; None: the larger the value, the larger the weight.
    """

    name: str
    needs: tuple[str, ...]
    signed: bool
    known: Floats | None
    threshold: Schedule | None

    def bind(self, num_windows: int, num_groups: int | None) -> None:
        """Learn how many windows and groups there are (None: no groups); may be called again, with more windows.

        Raises:
            ValueError: if the signal does not fit them.
        """

    def values(self, observed: Observed) -> Floats:
        """One value per window, float64 `[U]`.

        Raises:
            ValueError: naming the first window with a value that the signal cannot take; nothing is changed then.
        """

    def settings(self) -> dict[str, Any]:
        """Primitives that tell it from other signals of its kind; compared when a state is loaded."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors and primitives: what its next values depend on."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""


class BaseSignal:
    """A signal without memory or settings that needs the loss; subclass it and give `name` and `values`."""

    name = ""
    needs: tuple[str, ...] = ("loss",)
    signed = False
    known: Floats | None = None
    threshold: Schedule | None = None

    def bind(self, num_windows: int, num_groups: int | None) -> None:
        """Fits any number."""

    def values(self, observed: Observed) -> Floats:
        """To be given by the subclass."""
        raise NotImplementedError(f"{type(self).__name__} must define values(observed).")

    def settings(self) -> dict[str, Any]:
        """None."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Nothing is remembered."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing is remembered."""


def not_negative(name: str, ids: NDArray[np.int64], values: Floats) -> Floats:
    """`values` with rounding below 0 taken out.

    Raises:
        ValueError: naming the first window whose value is negative.
    """
    bad = values < -ROUNDING
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(
            f"`values` must not be negative for signal {name!r}, got {float(values[first])!r} for window "
            f"{int(ids[first])}. A loss that can be negative (a log density) has no scale: shift it first."
        )
    return np.maximum(values, 0.0)


# Rounding lets a loss of 0 come out this far below 0.
ROUNDING = 1e-4
