"""Bad weights and ids are refused before anything is changed, naming the first offender."""

from __future__ import annotations

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


def checked_weights(name: str, values: Any, length: int, ids: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
    """A float32 copy of `values`: numbers, finite, not negative, `length` of them.

    Raises:
        ValueError: naming the first offending id and its value.
        TypeError: if the values are no real numbers.
    """
    array = as_array(name, values)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"`{name}` must be real numbers, got dtype {array.dtype}. Convert to float32.")
    if len(array) != length:
        raise ValueError(f"`{name}` must have length {length}, got {len(array)}. Give one weight per window.")
    with np.errstate(over="ignore"):
        weights = array.astype(np.float32)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        first = int(bad.argmax())
        at = first if ids is None else int(ids[first])
        raise ValueError(
            f"`{name}` must be finite in float32 and not negative, got {array[first].item()!r} for window {at}. "
            "Clean the weights first; the old ones stay in place."
        )
    return weights


def checked_ids(name: str, values: Any, num_windows: int) -> NDArray[np.int64]:
    """int64 array of `values`, each in [0, num_windows).

    Raises:
        ValueError: naming the first id out of range.
        TypeError: if the values are no integers.
    """
    array = as_array(name, values)
    if len(array) and array.dtype.kind not in "iu":
        raise TypeError(f"`{name}` must be integers, got dtype {array.dtype}. Convert to int64.")
    bad = (array < 0) | (array >= num_windows)
    if bad.any():
        raise ValueError(
            f"`{name}` must be in [0, {num_windows}), got {int(array[bad.argmax()])} at position {int(bad.argmax())}."
        )
    return array.astype(np.int64)
