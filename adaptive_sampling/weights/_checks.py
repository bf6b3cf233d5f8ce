"""Observations and per-window arrays are refused before anything is changed, naming the first offender."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._arrays import as_array


def checked_values(name: str, values: Any, length: int) -> NDArray[np.float64]:
    """float64 array of `values`, one per id; what is not finite in float32 is NaN.

    Raises:
        ValueError: on another length.
        TypeError: if the values are no real numbers.
    """
    array = as_array(name, values)
    if len(array) and array.dtype.kind not in "fiu":
        raise TypeError(f"`{name}` must be real numbers, got dtype {array.dtype}. Convert to float32.")
    if len(array) != length:
        raise ValueError(f"`{name}` must hold one value per id ({length}), got {len(array)}.")
    wide = array.astype(np.float64)
    wide[~(np.abs(wide) <= np.finfo(np.float32).max)] = np.nan
    return wide


def checked_factors(name: str, values: Any) -> NDArray[np.float64]:
    """A float64 copy of a fixed factor per window: finite, not negative, not all zero.

    Raises:
        ValueError: naming the first offending window and its value.
        TypeError: if the values are no real numbers.
    """
    array = as_array(name, values)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"`{name}` must be real numbers, got dtype {array.dtype}. Convert to float64.")
    factors = array.astype(np.float64)
    bad = ~(np.isfinite(factors) & (factors >= 0))
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(
            f"`{name}` must be finite and not negative, got {float(factors[first])!r} for window {first}. "
            "Repair it before making the policy."
        )
    if not factors.any():
        raise ValueError(f"`{name}` must be positive for at least one window, got {len(factors)} zeros.")
    return factors


def checked_groups(name: str, values: Any) -> NDArray[np.int64]:
    """int64 copy of the group of each window.

    Raises:
        ValueError: if the array is empty or not one-dimensional.
        TypeError: if the groups are no integers.
    """
    array = as_array(name, values)
    if len(array) == 0:
        raise ValueError(f"`{name}` must hold one group per window, got none. Give None for no groups.")
    if array.dtype.kind not in "iu":
        raise TypeError(f"`{name}` must be integers, got dtype {array.dtype}. Number the groups first.")
    return array.astype(np.int64)


def checked_number(name: str, value: Any, low: float, high: float, *, what: str) -> float:
    """`value` as a float in [low, high].

    Raises:
        ValueError: with `what` it must be; booleans and NaN are refused too.
    """
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not real or math.isnan(value) or not low <= value <= high:
        raise ValueError(f"`{name}` must be {what}, got {value!r}.")
    return float(value)


def checked_count(name: str, value: Any, low: int) -> int:
    """`value` as an int of at least `low`.

    Raises:
        ValueError: for anything else, booleans included.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
        raise ValueError(f"`{name}` must be an integer of at least {low}, got {value!r}.")
    return int(value)
