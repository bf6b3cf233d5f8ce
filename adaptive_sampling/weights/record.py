"""The hand-over of per-window losses from inside a training step to whoever listens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import torch

_BOX: ContextVar[list[torch.Tensor] | None] = ContextVar("adaptive_sampling_record", default=None)


def record(losses: torch.Tensor) -> None:
    """Hand over the losses of the windows in this batch; call it anywhere inside `training_step`.

    Outside of a recording, for instance where training runs without the callback, it does nothing.

    Args:
        losses: float `[B]`, one per window in the order of the batch: mean per target token, in nats. It stays on its
            device and is neither copied nor waited for; do not change it in place afterwards.

    Raises:
        TypeError: if `losses` is no tensor.
    """
    if not isinstance(losses, torch.Tensor):
        raise TypeError(f"`losses` must be a tensor with one loss per window, got {type(losses).__name__}.")
    box = _BOX.get()
    if box is not None:
        box.append(losses.detach())


@contextlib.contextmanager
def recording() -> Iterator[list[torch.Tensor]]:
    """Collect what `record` hands over until the end of the `with` block; the innermost recording receives it.

    Example:
        >>> with recording() as box:
        ...     record(torch.tensor([1.0, 2.0]))
        >>> box[0].tolist()
        [1.0, 2.0]
    """
    box: list[torch.Tensor] = []
    token = _BOX.set(box)
    try:
        yield box
    finally:
        _BOX.reset(token)
