"""Signals: what one forward pass says of a window, and which values it may take."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

# Rounding lets a loss of 0 come out this far below 0.
_ROUNDING = 1e-4


class Signal(Protocol):
    """A kind of observation.

    Attributes:
        name: the word by which a policy asks for it.
        signed: values may be negative; they are then mapped to positive ones before a weight is made of them.
    """

    name: str
    signed: bool

    def checked(self, ids: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The finite `values` of windows `ids` as they count; float64 `[B]`.

        Raises:
            ValueError: naming the first window with a value that the signal cannot take.
        """


class LossSignal:
    """Mean loss per target token, in nats; not negative."""

    name = "loss"
    signed = False

    def checked(self, ids: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The losses, with rounding below 0 taken out."""
        bad = values < -_ROUNDING
        if bad.any():
            first = int(bad.argmax())
            raise ValueError(
                f"`values` must not be negative for signal 'loss', got {float(values[first])!r} for window "
                f"{int(ids[first])}. A loss that can be negative (a log density) has no scale: shift it first."
            )
        return np.maximum(values, 0.0)


_SIGNALS: dict[str, Signal] = {signal.name: signal for signal in (LossSignal(),)}


def observations(
    signal: Signal, ids: NDArray[np.int64], values: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
    """One value per window: what is not finite is dropped, repeated ids are averaged.

    Args:
        signal: the kind of the values.
        ids: int64 `[B]`.
        values: float64 `[B]`.

    Returns:
        ids: int64 `[U]`, ascending, without repetition.
        values: float64 `[U]`.
        dropped: how many values were not finite.

    Raises:
        ValueError: on values that the signal cannot take.
    """
    finite = np.isfinite(values)
    ids, values = ids[finite], signal.checked(ids[finite], values[finite])
    observed, place, counts = np.unique(ids, return_inverse=True, return_counts=True)
    return observed, np.bincount(place, weights=values, minlength=len(observed)) / counts, int((~finite).sum())


def resolve_signal(name: str) -> Signal:
    """The signal called `name`.

    Raises:
        ValueError: naming the signals there are.
    """
    if not isinstance(name, str) or name not in _SIGNALS:
        raise ValueError(f"`signal` must be one of {sorted(_SIGNALS)}, got {name!r}.")
    return _SIGNALS[name]
