"""What callers say of windows, checked before anything is changed, one row per window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._arrays import checked_ids
from adaptive_sampling.weights._checks import checked_values
from adaptive_sampling.weights.signals import Signal

Floats = NDArray[np.float64]


def checked_observations(
    ids: Any, values: Any, signal: Signal, num_windows: int
) -> tuple[NDArray[np.int64], dict[str, Floats], int]:
    """One row per window: what is not finite is dropped, repeated ids are averaged.

    Args:
        ids: integers `[B]`.
        values: real `[B]`, or name → real `[B]` for each of the signal's needs.
        signal: tells the needs.
        num_windows: N.

    Returns:
        ids: int64 `[U]`, ascending, without repetition.
        captured: name → float64 `[U]`, finite.
        dropped: how many observations had a value that was not finite.

    Raises:
        ValueError: on ids out of range, another number of values, or a need that is missing.
        TypeError: on ids that are no integers or values that are no real numbers.
    """
    checked = checked_ids("ids", ids, num_windows)
    if not isinstance(values, Mapping):
        if len(signal.needs) != 1:
            raise ValueError(
                f"`values` must be a mapping with {list(signal.needs)} for signal {signal.name!r}, got "
                f"{type(values).__name__}. Capture each and give them by name."
            )
        values = {signal.needs[0]: values}
    missing = [name for name in signal.needs if name not in values]
    if missing:
        raise ValueError(
            f"`values` must hold {list(signal.needs)} for signal {signal.name!r}, got {sorted(values)}. Capture "
            f"{missing} too."
        )
    single = len(signal.needs) == 1
    columns = {
        name: checked_values("values" if single else f"values[{name!r}]", values[name], len(checked))
        for name in signal.needs
    }
    finite = np.ones(len(checked), bool)
    for column in columns.values():
        finite &= np.isfinite(column)
    kept = checked[finite]
    ordered, order = _sorted_with_places(kept)
    means = {name: column[finite][order] for name, column in columns.items()}
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    if len(starts) < len(ordered):
        counts = np.diff(starts, append=len(ordered))
        means = {name: np.add.reduceat(column, starts) / counts for name, column in means.items()}
    return ordered[starts], means, len(checked) - len(kept)


def _sorted_with_places(ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids in rising order and where each was; equal ids in their own order.

    Id and place in one number: a sort of numbers is several times faster than one that has to report places.
    """
    bits = max(len(ids) - 1, 1).bit_length()
    if len(ids) and int(ids.max()).bit_length() + bits > 62:
        order = np.argsort(ids, kind="stable")
        return ids[order], order
    keys = np.sort((ids << bits) | np.arange(len(ids)))
    return keys >> bits, keys & ((1 << bits) - 1)


def checked_signal_values(signal: Signal, values: Any, count: int) -> Floats:
    """What a signal made of `count` windows, float64 `[count]`; NaN where it is not finite in float32.

    Raises:
        ValueError: on another shape.
        TypeError: on values that are no real numbers.
    """
    array = np.asarray(values)
    if array.shape != (count,):
        raise ValueError(
            f"signal {signal.name!r} must give one value per window, shape ({count},), got {array.shape}. "
            f"Correct {type(signal).__name__}.values."
        )
    if array.dtype.kind not in "fiu":
        raise TypeError(f"signal {signal.name!r} must give real numbers, got dtype {array.dtype}.")
    wide = array.astype(np.float64)
    wide[~(np.abs(wide) <= np.finfo(np.float32).max)] = np.nan
    if not signal.signed and (wide < 0).any():
        raise ValueError(
            f"signal {signal.name!r} must not be negative, got {float(np.nanmin(wide))!r}. Set `signed` in "
            f"{type(signal).__name__} if it may be."
        )
    return wide
