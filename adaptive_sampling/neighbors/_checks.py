"""Features, groups and counts are refused before Faiss sees them, naming the first offender."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._arrays import without_tensor


def positive_integer(name: str, value: Any) -> int:
    """`value` as an int of at least 1.

    Raises:
        ValueError: for anything else, booleans included.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"`{name}` must be a positive integer, got {value!r}.")
    return int(value)


def feature_matrix(name: str, features: Any) -> NDArray[Any]:
    """`features` as a real array `[N, dim]` of whatever layout; a memory map stays one, nothing is copied.

    Raises:
        TypeError: if the values are no real numbers.
        ValueError: if the array is not two-dimensional, has no columns, or is a sparse tensor or one on a GPU.
    """
    features = without_tensor(name, features)
    array = features if isinstance(features, np.ndarray) else np.asarray(features)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"`{name}` must have shape [rows, dim] with dim > 0, got {array.shape}.")
    if array.dtype.kind not in "fiu":
        raise TypeError(f"`{name}` must be real numbers, got dtype {array.dtype}. Convert to float32.")
    return array


def group_codes(name: str, groups: Any, length: int) -> NDArray[Any]:
    """One-dimensional array of `groups`, one integer per row.

    Raises:
        TypeError: if the groups are no integers.
        ValueError: on another length.
    """
    array = np.asarray(groups)
    if array.ndim != 1 or len(array) != length:
        raise ValueError(f"`{name}` must hold one group per row ({length}), got shape {array.shape}.")
    if length and array.dtype.kind not in "iu":
        raise TypeError(f"`{name}` must be integers, got dtype {array.dtype}. Number the groups first.")
    return array


def unit_threshold(name: str, value: Any) -> float:
    """`value` as a similarity in (0, 1].

    Raises:
        ValueError: for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)) or not 0 < value <= 1:
        raise ValueError(f"`{name}` must be in (0, 1], got {value!r}.")
    return float(value)


def integer_seed(value: Any) -> int:
    """`value` as a key of random choices, any integer.

    Raises:
        TypeError: for anything else, booleans included.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"`seed` must be an integer, got {value!r}. Try 0.")
    return int(value)
