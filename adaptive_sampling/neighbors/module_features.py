"""Features from the user's own module: what a layer makes of a window, averaged over its tokens.

torch is imported where it is used, so that those who only count tokens, as the workers of `prepare`, do not load it.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.neighbors._checks import positive_integer
from adaptive_sampling.neighbors.feature_file import Float32, Progress, fill_features

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Forward = Callable[[Any, Any], Any]
"""(module, batch) → anything: runs the module."""


def module_features(
    module: nn.Module,
    dataset: Any,
    *,
    layer: str,
    forward: Forward | None = None,
    batch_size: int = 32,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Float32:
    """Mean hidden state of each window at a named layer of `module`.

    The module runs in evaluation mode without gradients and is left as it was: mode of each submodule, buffers,
    gradients, hooks, and the random states of Python, NumPy and torch.

    Args:
        module: any module; a LightningModule too.
        dataset: windows by id: `read(ids)` that gives batch arrays, or a map-style dataset whose items are collated as
            a DataLoader does.
        layer: name of a submodule, as `module.named_modules()` has it. Its output, or the first tensor in it, must
            have shape `[B, T, dim]`, averaged over T, or `[B, dim]`; called several times, its last call counts.
            Positions are left out where a trailing run of labels is −100 and the output has one position per label.
        forward: (module, batch) → anything, runs the module on a batch; default: `module(batch["input_ids"])`.
        batch_size: windows at a time.
        out: `.npy` file to write; it goes on where it was interrupted, see `fill_features`.
        progress: called with ("features", rows done, N).

    Returns:
        float32 `[N, dim]`; with `out`, a memory map.

    Raises:
        ValueError: if there is no such layer (names are given), or it is not reached, or its output has another shape.
        TypeError: if the module cannot be called as it is; give `forward`.

    Cost:
        One forward pass over the dataset, on the device of the module; memory beyond the result is one batch.
    """
    import torch

    size = positive_integer("batch_size", batch_size)
    names = [name for name, _ in module.named_modules() if name]
    if layer not in names:
        some = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        raise ValueError(f"`layer` must name a submodule, got {layer!r}. There are: {some}.")
    run = forward or _call_with_inputs
    device = next((p.device for p in module.parameters()), torch.device("cpu"))

    def compute(first: int, last: int) -> Float32:
        batch = _move(_batch(dataset, np.arange(first, last, dtype=np.int64)), device)
        return _pooled(_hidden(module, layer, run, batch), batch, last - first, layer)

    with untouched(module):
        if len(dataset) == 0:
            raise ValueError("`dataset` must hold at least one window, got none: the layer's width is unknown.")
        first = compute(0, 1)
        return fill_features(
            compute,
            len(dataset),
            first.shape[1],
            batch_size=size,
            settings={"features": "module", "layer": layer},
            out=out,
            progress=progress,
        )


def _call_with_inputs(module: nn.Module, batch: Any) -> Any:
    inputs = batch["input_ids"] if isinstance(batch, Mapping) else batch[0]
    try:
        return module(inputs)
    except NotImplementedError:
        raise TypeError(
            f"{type(module).__name__} must have a forward method that takes input_ids, got none. "
            "Give `forward=lambda module, batch: ...`, which runs the module on a batch."
        ) from None


def _batch(dataset: Any, ids: NDArray[np.int64]) -> Any:
    import torch
    from torch.utils.data import default_collate

    if hasattr(dataset, "read"):
        return {name: torch.from_numpy(np.asarray(values)) for name, values in dataset.read(ids).items()}
    items = getattr(dataset, "__getitems__", None)
    return default_collate(items(ids.tolist()) if items else [dataset[int(i)] for i in ids])


def _move(batch: Any, device: torch.device) -> Any:
    from torch import Tensor

    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: _move(value, device) for name, value in batch.items()}
    return [_move(value, device) for value in batch] if isinstance(batch, (list, tuple)) else batch


def _hidden(module: nn.Module, layer: str, run: Forward, batch: Any) -> Tensor:
    seen: list[Any] = []

    def keep(_module: nn.Module, _inputs: Any, output: Any) -> None:
        seen[:] = [output]

    hook = module.get_submodule(layer).register_forward_hook(keep)
    try:
        run(module, batch)
    finally:
        hook.remove()
    tensor = _first_tensor(seen[0]) if seen else None
    if tensor is None:
        what = "returned no tensor" if seen else "was not called"
        raise ValueError(f"`layer` must name a submodule that returns hidden states, got {layer!r}, which {what}.")
    return tensor


def _first_tensor(output: Any) -> Tensor | None:
    from torch import Tensor

    if isinstance(output, Tensor):
        return output
    values = output.values() if isinstance(output, Mapping) else output if isinstance(output, (list, tuple)) else ()
    return next((found for value in values if (found := _first_tensor(value)) is not None), None)


def _pooled(hidden: Tensor, batch: Any, rows: int, layer: str) -> Float32:
    import torch

    if hidden.ndim not in (2, 3) or len(hidden) != rows or not hidden.is_floating_point():
        raise ValueError(
            f"`layer` {layer!r} must return [{rows}, tokens, dim] or [{rows}, dim] for {rows} windows, got "
            f"{tuple(hidden.shape)} of {hidden.dtype}. Name another layer."
        )
    states = hidden.float()
    if states.ndim == 3:
        labels = batch.get("labels") if isinstance(batch, Mapping) else None
        if isinstance(labels, torch.Tensor) and labels.shape == states.shape[:2]:
            # From the end backwards, nothing counts until the first label that does.
            real = (labels != -100).flip(1).cumsum(1).flip(1) > 0
            weights = real / real.sum(1, keepdim=True).clamp(min=1)
            states = torch.where(real[:, :, None], states, 0) * weights[:, :, None]
            states = states.sum(1)
        else:
            states = states.mean(1)
    return np.asarray(states.detach().cpu().numpy(), dtype=np.float32)


@contextlib.contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards all that the module and the generators were."""
    import torch

    modes = [(part, part.training) for part in module.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = sorted({p.device.index or 0 for p in module.parameters() if p.device.type == "cuda"})
    try:
        with torch.random.fork_rng(devices=devices), torch.no_grad():
            module.eval()
            yield
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        for part, training in modes:
            part.training = training
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
