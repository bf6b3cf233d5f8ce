"""Per-window losses and entropies, seen from outside while the user's `training_step` runs.

A `TorchFunctionMode` sees each call of `torch.nn.functional.cross_entropy`, however the module came to call it, returns
what the user asked for, bit for bit, and takes every element's loss from a detached copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True)
class ElementLosses:
    """What one call of cross_entropy said of every target.

    Attributes:
        losses: float32, detached, one per target, 0 where the target is ignored.
        valid: bool, same shape: the target counts.
        targets: what the call was given, detached.
        entropies: float32, detached, same shape: entropy of the prediction, in nats; None: not asked for.
    """

    losses: Tensor
    valid: Tensor
    targets: Tensor
    entropies: Tensor | None = None

    def fits(self, num_windows: int) -> bool:
        """Can the targets be shared out evenly to `num_windows` windows, along the first dimension?"""
        rows = self.losses.shape[0] if self.losses.ndim > 1 else self.losses.numel()
        return 0 < num_windows <= rows and rows % num_windows == 0

    def window_means(self, num_windows: int) -> Tensor:
        """Mean loss over each window's valid targets, float32 `[num_windows]`; NaN for a window without any."""
        losses = self.losses.reshape(num_windows, -1)
        return losses.sum(1) / self.valid.reshape(num_windows, -1).sum(1)

    def window_entropies(self, num_windows: int) -> Tensor | None:
        """Mean entropy over the same targets, float32 `[num_windows]`; None: not asked for."""
        if self.entropies is None:
            return None
        valid = self.valid.reshape(num_windows, -1)
        return torch.where(valid, self.entropies.reshape(num_windows, -1), 0).sum(1) / valid.sum(1)


class LossCapture(TorchFunctionMode):
    """While active, notes loss, and entropy if asked for, of every target of every `cross_entropy` call in `calls`.

    The user's own call is executed as it is. Plain float32 calls are split into their two halves, `log_softmax` and
    `nll_loss`, which is how torch computes them, so that the first half serves both; all others get a second, detached
    call without gradient.

    Args:
        entropy: note entropies too.

    Attributes:
        calls: what was noted, in order.
        calling: a call is being made and noted at this moment.

    Cost:
        A gather over the targets in the first case; one more forward pass of the loss in the second. Entropies take two
        more looks at all logits.
    """

    def __init__(self, *, entropy: bool = False) -> None:
        super().__init__()
        self.calls: list[ElementLosses] = []
        self.calling = False
        self._entropy = entropy

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Hand every function through; cross_entropy is also noted."""
        kwargs = kwargs or {}
        if func is not F.cross_entropy:
            return func(*args, **kwargs)
        return self.note(func, *args, **kwargs)

    def note(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What `func`, which is cross_entropy, returns for these arguments; the call is noted in `calls`."""
        self.calling = True
        try:
            return self._cross_entropy(func, *args, **kwargs)
        finally:
            self.calling = False

    def _cross_entropy(
        self,
        func: Callable[..., Any],
        input: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Any:
        of_classes = not target.dtype.is_floating_point
        plain = (
            of_classes
            and input.dtype is torch.float32
            and input.ndim >= 2
            and label_smoothing == 0.0
            and size_average is None
            and reduce is None
            and not torch.is_autocast_enabled(input.device.type)
            and not torch.compiler.is_compiling()
        )
        log_probabilities: Tensor | None = None
        if plain:
            log_probabilities = F.log_softmax(input, 1)
            result = F.nll_loss(
                log_probabilities, target, weight=weight, ignore_index=ignore_index, reduction=reduction
            )
            with torch.no_grad():
                losses = F.nll_loss(
                    log_probabilities.detach(), target, weight=weight, ignore_index=ignore_index, reduction="none"
                )
        else:
            result = func(
                input,
                target,
                weight=weight,
                size_average=size_average,
                ignore_index=ignore_index,
                reduce=reduce,
                reduction=reduction,
                label_smoothing=label_smoothing,
            )
            with torch.no_grad():
                losses = func(
                    input.detach(),
                    target.detach(),
                    weight=None if weight is None else weight.detach(),
                    ignore_index=ignore_index,
                    reduction="none",
                    label_smoothing=label_smoothing,
                )
        valid = target.detach() != ignore_index if of_classes else torch.ones_like(losses, dtype=torch.bool)
        entropies = None
        if self._entropy:
            with torch.no_grad():
                entropies = _entropies(input.detach() if log_probabilities is None else log_probabilities.detach())
        self.calls.append(ElementLosses(losses.detach().float(), valid, target.detach(), entropies))
        return result


def _entropies(logits: Tensor) -> Tensor:
    """Entropy of each predicted distribution, float32, in nats; a class of probability 0 adds nothing."""
    classes = 1 if logits.ndim > 1 else 0
    entropies: Tensor = torch.special.entr(F.softmax(logits, classes, dtype=torch.float32)).sum(classes)
    return entropies
