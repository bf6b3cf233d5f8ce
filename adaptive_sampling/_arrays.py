"""Arrays and ids that callers hand over, checked before anything is changed."""

from __future__ import annotations

import operator
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.errors import clause


def without_tensor(name: str, values: Any) -> Any:
    """A tensor as a NumPy array of the same memory, half precision as float32; anything else as it is.

    Raises:
        ValueError: for tensors that are not dense or not on the CPU.
    """
    # Who hands over a tensor has loaded torch; workers that see none save its 200 MB.
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(values, torch.Tensor):
        return values
    if values.device.type != "cpu":
        raise ValueError(f"`{name}` must be on the CPU, got a tensor on {values.device}. Call .cpu() first.")
    if values.layout != torch.strided:
        raise ValueError(f"`{name}` must be dense, got a tensor of layout {values.layout}. Call .to_dense() first.")
    values = values.detach()
    return values.float().numpy() if values.dtype in (torch.bfloat16, torch.float16) else values.numpy()


def as_array(name: str, values: Any) -> NDArray[Any]:
    """One-dimensional NumPy array of `values`; tensors must be dense and live on the CPU.

    Raises:
        ValueError: for other shapes and tensors.
    """
    values = without_tensor(name, values)
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(
            f"`{name}` must be one-dimensional, got rows of different lengths. Flatten it first."
        ) from None
    if array.ndim == 0:
        shown = repr(values)
        raise ValueError(
            f"`{name}` must be one-dimensional, got {shown if len(shown) < 80 else type(values).__name__} of shape (). "
            "Give a list, an array or a tensor."
        )
    if array.ndim != 1:
        raise ValueError(f"`{name}` must be one-dimensional, got shape {array.shape}. Flatten it first.")
    return array


def beyond_int64(array: NDArray[Any]) -> int | None:
    """The first Python integer in an array of objects that int64 does not hold; None if anything else is in it.

    NumPy makes such an array of integers that are too large, which are ids out of range and no wrong type.
    """
    if array.dtype != object or not all(isinstance(value, int) for value in array.tolist()):
        return None
    return next((value for value in array.tolist() if abs(value) >> 63), None)


def open_array(path: Path | str) -> NDArray[Any]:
    """The array in a `.npy` file, as a read-only memory map.

    Raises:
        ValueError: if the file is empty, cut off, or of another kind.
        OSError: if it cannot be read.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        why = "an empty or cut off file" if isinstance(error, EOFError) else clause(error)
        if "pickle" in why:  # NumPy's word for whatever it does not know, with the advice to load it unsafely
            why = "a file of another kind"
        raise ValueError(f"`{path}` must be a .npy file, got {why}. Write it with numpy.save.") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError(f"`{path}` must be a .npy file, got an archive of several arrays. Write it with numpy.save.")
    return array


def checked_ids(name: str, values: Any, num_windows: int) -> NDArray[np.int64]:
    """int64 array of `values`, each in [0, num_windows).

    Raises:
        ValueError: naming the first id out of range.
        TypeError: if the values are no integers.
    """
    array = as_array(name, values)
    huge = beyond_int64(array)
    if huge is not None:
        at = array.tolist().index(huge)
        raise ValueError(f"`{name}` must be in [0, {num_windows}), got {huge} at position {at}.")
    if len(array) and array.dtype.kind not in "iu":
        raise TypeError(
            f"`{name}` must be integers, got dtype {array.dtype}, first {array[:1].tolist()[0]!r}. Convert to int64."
        )
    ids = array.astype(np.int64)
    # Read without a sign, what is negative is far too large: one pass over all finds both ends.
    if len(ids) and ids.view(np.uint64).max() >= num_windows:
        first = int(((ids < 0) | (ids >= num_windows)).argmax())
        raise ValueError(f"`{name}` must be in [0, {num_windows}), got {int(array[first])} at position {first}.")
    return ids


def checked_integer(name: str, value: Any, least: int) -> int:
    """`value` as an int of at least `least`; booleans and floats are refused.

    Raises:
        ValueError, TypeError: naming the value.
    """
    if isinstance(value, bool):
        raise TypeError(f"`{name}` must be an integer, got {value!r}.")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` must be an integer, got {value!r}.") from None
    if number < least:
        raise ValueError(f"`{name}` must be at least {least}, got {number}.")
    return number
