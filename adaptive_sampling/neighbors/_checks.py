"""Features, groups and counts are refused before Faiss sees them, naming the first offender."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def positive_integer(name: str, value: Any) -> int:
    """`value` as an int of at least 1.

    Raises:
        ValueError: for anything else, booleans included.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"`{name}` must be a positive integer, got {value!r}.")
    return int(value)


def unit_rows(name: str, features: Any) -> NDArray[np.float32]:
    """C-contiguous float32 copy `[N, dim]` of `features` with rows of unit length; rows of zeros stay zeros.

    Raises:
        TypeError: if the values are no real numbers.
        ValueError: if the array is not two-dimensional or a row is not finite; the message names the rows.
    """
    array = np.asarray(features)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"`{name}` must be real numbers, got dtype {array.dtype}. Convert to float32.")
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"`{name}` must have shape [rows, dim] with dim > 0, got {array.shape}.")
    rows = np.array(array, dtype=np.float32, order="C")
    # One sum per row finds what is not finite without a boolean array of the size of the features.
    norms = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))
    if not np.isfinite(norms).all():
        bad = np.flatnonzero(~np.isfinite(norms))
        raise ValueError(
            f"`{name}` must be finite, got NaN or infinity in {len(bad)} rows, first {bad[:5].tolist()}. "
            "Drop or repair these rows."
        )
    rows /= np.where(norms > 0, norms, 1.0)[:, None].astype(np.float32)
    return rows


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
