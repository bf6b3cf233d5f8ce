"""Window ids that callers pass in: integers, in range, never counted from the end."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adaptive_sampling._arrays import beyond_int64


def checked_id(value: Any, length: int) -> int:
    """`value` as an int in [0, `length`).

    Raises:
        TypeError: if it is no integer.
        IndexError: if it is out of range.
    """
    if isinstance(value, torch.Tensor) and (value.ndim or value.dtype.is_floating_point or value.dtype == torch.bool):
        raise TypeError(f"window id must be an integer, got {value!r}. Read many ids with `read`.")
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"window id must be an integer, got {value!r}. Convert it with int.")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"window id must be an integer, got {value!r}. Convert it with int.") from None
    if not 0 <= number < length:
        raise _out_of_range(number, length)
    return number


def checked_ids(values: Any, length: int) -> NDArray[np.int64]:
    """`values` as an int64 array [B] of its own, each in [0, `length`).

    Raises:
        TypeError: if they are no integers.
        IndexError: naming the first one out of range.
    """
    array = np.asarray(values.cpu() if isinstance(values, torch.Tensor) else values)
    if array.ndim != 1:
        raise TypeError(f"window ids must be one-dimensional, got shape {array.shape}. Flatten them first.")
    huge = beyond_int64(array)
    if huge is not None:
        raise _out_of_range(huge, length)
    if len(array) and array.dtype.kind not in "iu":
        first = next((value for value in array.tolist() if not isinstance(value, int)), array[0])
        raise TypeError(f"window ids must be integers, got {first!r} of dtype {array.dtype}. Convert them to int64.")
    ids = array.astype(np.int64)
    # Read without a sign, what is negative is far too large: one pass over all finds both ends.
    if len(ids) and ids.view(np.uint64).max() >= length:
        raise _out_of_range(array[(ids < 0) | (ids >= length)][0].item(), length)
    return ids


def _out_of_range(value: int, length: int) -> IndexError:
    there = f"from 0 to {length - 1}" if length else "of a window, and there is none"
    return IndexError(
        f"window id must be {there}, got {value}. Ids come from a sampler of this length, never negative."
    )
