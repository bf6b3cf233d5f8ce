"""Reference losses: one pass of a module over all windows, kept on disk and resumed where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import default_collate

from adaptive_sampling._arrays import checked_integer
from adaptive_sampling._files import atomic_writer
from adaptive_sampling.errors import StateMismatchError

_SAVE_SECONDS = 30.0
# Losses computed again on the same machine may differ by so much, relatively, if kernels choose another order of sums.
_SAME = 1e-3
# A window may be without a target, and its loss 0 under any module: so many are computed again.
_CHECKED = 8


def next_token_losses(module: torch.nn.Module, batch: Any) -> Tensor:
    """Mean loss per valid target of each window of a batch, for a module that returns logits.

    Args:
        module: called with `batch["input_ids"]`; returns logits `[B, T, V]`.
        batch: "input_ids" and "labels", int64 `[B, T]`; labels of −100 do not count.

    Returns:
        float32 `[B]`, in nats; 0 for a window without a valid target.
    """
    logits, labels = module(batch["input_ids"]), batch["labels"]
    losses = F.cross_entropy(logits.float().transpose(1, 2), labels, reduction="none")
    means: Tensor = losses.sum(dim=1) / (labels != -100).sum(dim=1).clamp(min=1)
    return means


def reference_losses(
    module: torch.nn.Module,
    dataset: Any,
    path: Path | str,
    *,
    losses: Callable[[torch.nn.Module, Any], Tensor] = next_token_losses,
    batch_size: int = 64,
    device: torch.device | str | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> NDArray[np.float32]:
    """Loss of every window under `module`, for `ExcessLossSignal`; computed once, then read from `path`.

    What is done is saved every half a minute, and a call after an interruption goes on there. Before it does, the last
    windows done are computed again, so that losses of different modules or windows never mix.

    Args:
        module: the reference model, best trained on other text than the windows; put into evaluation mode meanwhile.
        dataset: map-style, length N.
        path: `.npy` file to write; what is unfinished lies beside it as `.partial.npy`.
        losses: from module and collated batch to float `[B]`, the mean loss of each window.
        batch_size: windows per forward pass.
        device: where to compute; default: where the module's parameters are.
        progress: called with ("reference losses", windows done, N).

    Returns:
        float32 `[N]`, in nats.

    Raises:
        ValueError: if the losses have another shape or are not finite, naming the first window.
        StateMismatchError: if what lies at `path` is for another number of windows, another module or other windows.

    Cost:
        One forward pass over all windows; 4 bytes per window.

    Example:
        >>> import tempfile
        >>> windows = [{"input_ids": torch.tensor([i, 1]), "labels": torch.tensor([1, 0])} for i in range(3)]
        >>> uniform = lambda ids: torch.zeros(*ids.shape, 4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     reference_losses(torch.nn.Module(), windows, folder + "/reference.npy",
        ...                      losses=lambda _, batch: next_token_losses(uniform, batch)).round(3).tolist()
        [1.3860000371932983, 1.3860000371932983, 1.3860000371932983]
    """
    checked_integer("batch_size", batch_size, 1)
    target = Path(path)
    if target.suffix != ".npy":
        raise ValueError(f"`path` must end with .npy, got {str(path)!r}. Reference losses are a NumPy array.")
    partial = target.with_name(f"{target.stem}.partial.npy")
    if target.exists():
        return _loaded(target, len(dataset), whole=True)
    done = _loaded(partial, len(dataset), whole=False) if partial.exists() else np.empty(0, np.float32)
    first_parameter = next(module.parameters(), None)
    place = device if device is not None else "cpu" if first_parameter is None else first_parameter.device

    def compute(first: int, last: int) -> NDArray[np.float32]:
        values = losses(module, _to(default_collate([dataset[i] for i in range(first, last)]), place))
        return _checked(values, first, last)

    training = module.training
    module.eval()
    try:
        with torch.inference_mode():
            if len(done):
                again = max(len(done) - _CHECKED, 0)
                _check_same(done[again:], compute(again, len(done)), again, partial)
            found = [done]
            position, saved = len(done), time.monotonic()
            try:
                while position < len(dataset):
                    last = min(position + batch_size, len(dataset))
                    found.append(compute(position, last))
                    position = last
                    if progress is not None:
                        progress("reference losses", position, len(dataset))
                    if time.monotonic() - saved > _SAVE_SECONDS:
                        found, saved = [_saved(partial, found)], time.monotonic()
            except BaseException:
                _saved(partial, found)
                raise
    finally:
        module.train(training)
    result = _saved(target, found)
    partial.unlink(missing_ok=True)
    return result


def _saved(path: Path, found: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    whole = np.concatenate(found)
    with atomic_writer(path) as file:
        np.save(file, whole)
    return whole


def _loaded(path: Path, num_windows: int, *, whole: bool) -> NDArray[np.float32]:
    values: NDArray[np.float32] = np.load(path, allow_pickle=False)
    fits = values.ndim == 1 and (len(values) == num_windows if whole else len(values) <= num_windows)
    if not fits or values.dtype != np.float32:
        raise StateMismatchError(
            f"{path} must hold {'' if whole else 'at most '}{num_windows} float32 losses, got {values.dtype} "
            f"{values.shape}. It is of another dataset: delete it, or name another file."
        )
    return values


def _checked(values: Any, first: int, last: int) -> NDArray[np.float32]:
    if not isinstance(values, Tensor) or values.shape != (last - first,):
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(
            f"`losses` must give one value per window, shape ({last - first},), got {shape}. "
            "Average over each window's targets, not over the batch."
        )
    array = values.detach().float().cpu().numpy()
    bad = ~np.isfinite(array)
    if bad.any():
        at = int(bad.argmax())
        raise ValueError(
            f"`losses` must be finite, got {float(array[at])!r} for window {first + at}. "
            "Give windows without a target 0, and check the module."
        )
    return array


def _check_same(saved: NDArray[np.float32], again: NDArray[np.float32], first: int, path: Path) -> None:
    bad = ~np.isclose(saved, again, rtol=_SAME, atol=_SAME)
    if bad.any():
        at = int(bad.argmax())
        raise StateMismatchError(
            f"{path} says {float(saved[at])} for window {first + at}, this module {float(again[at])}. "
            "It is of another module or other windows: delete it to begin anew."
        )


def _to(batch: Any, device: Any) -> Any:
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {name: _to(value, device) for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(_to(value, device) for value in batch)
    return batch
