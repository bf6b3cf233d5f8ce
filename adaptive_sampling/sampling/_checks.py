"""Bad weights and ids are refused before anything is changed, naming the first offender."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adaptive_sampling._arrays import as_array, checked_integer

_INFINITY = np.float32(np.inf).view(np.uint32)


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
    # Bit patterns of what may pass are below that of infinity, so one pass over all is enough; minus zero is not.
    if len(weights) and weights.view(np.uint32).max() >= _INFINITY:
        bad = ~(np.isfinite(weights) & (weights >= 0))
        if not bad.any():
            return weights
        first = int(bad.argmax())
        at = first if ids is None else int(ids[first])
        raise ValueError(
            f"`{name}` must be finite in float32 and not negative, got {array[first].item()!r} for window {at}. "
            "Clean the weights first; the old ones stay in place."
        )
    return weights


def checked_length(num_windows_or_dataset: Any) -> int:
    """Number of windows: an integer, or the length of a dataset.

    Raises:
        ValueError, TypeError: if there is no window, or no length.
    """
    if isinstance(num_windows_or_dataset, (int, np.integer)):
        return checked_integer("num_windows", num_windows_or_dataset, 1)
    if _are_weights(num_windows_or_dataset):
        raise TypeError(
            "`num_windows_or_dataset` must be an integer or a dataset, got an array of real numbers. For weights, "
            "write AdaptiveSampler.from_weights(weights)."
        )
    try:
        if isinstance(num_windows_or_dataset, (str, bytes)):
            raise TypeError
        length = len(num_windows_or_dataset)
    except TypeError:
        raise TypeError(
            "`num_windows_or_dataset` must be an integer or a dataset with a length, "
            f"got {type(num_windows_or_dataset).__name__}."
        ) from None
    if length < 1:
        raise ValueError(
            "`num_windows_or_dataset` must hold at least one window, got 0. "
            "Check the text, or use a smaller seq_len, tail='pad' or pack='concat'."
        )
    return length


def _are_weights(given: Any) -> bool:
    """Does it look like the weights that torch's WeightedRandomSampler takes first?"""
    if isinstance(given, torch.Tensor):
        return given.ndim == 1 and given.is_floating_point()
    if isinstance(given, np.ndarray):
        return given.ndim == 1 and given.dtype.kind == "f"
    return isinstance(given, (list, tuple)) and bool(given) and isinstance(given[0], float)
