"""Observations and per-window arrays are refused before anything is changed, naming the first offender."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def as_array(name: str, values: Any) -> NDArray[Any]:
    """One-dimensional NumPy array of `values`; tensors must live on the CPU."""
    if isinstance(values, torch.Tensor):
        if values.device.type != "cpu":
            raise ValueError(f"`{name}` must be on the CPU, got a tensor on {values.device}. Call .cpu() first.")
        values = values.detach()
        values = values.float().numpy() if values.dtype in (torch.bfloat16, torch.float16) else values.numpy()
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"`{name}` must be one-dimensional, got shape {array.shape}. Flatten it first.")
    return array


def checked_ids(name: str, values: Any, num_windows: int) -> NDArray[np.int64]:
    """int64 array of `values`, each in [0, num_windows).

    Raises:
        ValueError: naming the first id out of range.
        TypeError: if the values are no integers.
    """
    array = as_array(name, values)
    if len(array) and array.dtype.kind not in "iu":
        raise TypeError(
            f"`{name}` must be integers, got dtype {array.dtype}, first {array[0].item()!r}. Convert to int64."
        )
    bad = (array < 0) | (array >= num_windows)
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(f"`{name}` must be in [0, {num_windows}), got {int(array[first])} at position {first}.")
    return array.astype(np.int64)


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
