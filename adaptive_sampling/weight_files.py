"""Weights on disk, and what the windows with the largest and smallest of them say."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adaptive_sampling._arrays import open_array
from adaptive_sampling._state_files import BESIDE, read_beside
from adaptive_sampling.corpus.tokenize import load_tokenizer
from adaptive_sampling.windows import WindowDataset

_TEXT_LENGTH = 72


def read_weights(path: Path | str, num_windows: int) -> NDArray[np.float64]:
    """One weight per window from a `.npy` file, a checkpoint of a training, or a saved `policy.state_dict()`.

    Args:
        path: the file.
        num_windows: N.

    Returns:
        float64 `[N]`.

    Raises:
        ValueError: if there are no weights in it, more than one policy, weights of another number of windows, some that
            are negative or not finite, or none that is positive.
        OSError: if it cannot be read.
    """
    if Path(path).suffix == ".npy":
        found = [open_array(path)]
    else:
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise ValueError(f"`{path}` must be a .npy file or a checkpoint, got {type(error).__name__}.") from None
        found = [weights.numpy() for weights in _policy_weights(saved, path)]
    if len(found) != 1:
        raise ValueError(
            f"`{path}` must hold the weights of one policy, got {len(found)}. Give a checkpoint of a training with "
            "AdaptiveSampling, or save numpy.save('weights.npy', policy.weights)."
        )
    weights = found[0]
    if weights.shape != (num_windows,) or weights.dtype.kind not in "fiu":
        raise ValueError(
            f"`{path}` must hold one weight per window ({num_windows}), got {weights.dtype} {weights.shape}. "
            "Give the window settings of the training."
        )
    wide = np.asarray(weights, np.float64)
    bad = ~(np.isfinite(wide) & (wide >= 0))
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(
            f"`{path}` must hold finite weights that are not negative, got {wide[first]} for window {first}. "
            "Write it again."
        )
    if not wide.any():
        raise ValueError(f"`{path}` must hold a positive weight, got {num_windows} of 0. Write it again.")
    return wide


def _policy_weights(saved: Any, path: Path | str) -> Iterator[torch.Tensor]:
    """Weights of every policy state within `saved`, what was read from `path`."""
    if not isinstance(saved, Mapping):
        return
    if BESIDE in saved:
        saved = read_beside(path, saved)
    if {"version", "visits", "weights"} <= saved.keys():
        yield saved["weights"]
        return
    for value in saved.values():
        yield from _policy_weights(value, path)


def describe_extremes(
    dataset: WindowDataset, weights: NDArray[np.float64], tokenizer: Path | None, count: int = 5
) -> str:
    """The windows with the largest and the smallest weights, one line each with the beginning of their text.

    Args:
        dataset: N windows.
        weights: real `[N]`.
        tokenizer: `tokenizer.json` to read the text with; None: token ids are shown.
        count: windows at either end.
    """
    decode = None if tokenizer is None else load_tokenizer(tokenizer).decode
    order = np.argsort(-weights, kind="stable")
    lines = []
    for title, ids in (("largest weights", order[:count]), ("smallest weights", order[count:][-count:])):
        if len(ids):
            lines.append(f"{title}:")
        for window in ids:
            place = dataset.trace(int(window), manifest=False)
            tokens = dataset[int(window)]["input_ids"].tolist()
            text = " ".join(map(str, tokens)) if decode is None else decode(tokens)
            shown = " ".join(text.split())[:_TEXT_LENGTH]
            lines.append(f"  {weights[window]:8.3f}  window {window}, {place['source']}, at {place['start']}: {shown}")
    return "\n".join(lines)
