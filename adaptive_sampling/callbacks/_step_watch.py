"""What `training_step` shows while it runs: one watch per Trainer, whatever the number of callbacks that look at it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lightning.pytorch.strategies import Strategy
from torch import Tensor

from adaptive_sampling.callbacks._capture_way import CaptureWay
from adaptive_sampling.callbacks.loss_capture import LossCapture
from adaptive_sampling.weights import recording


class StepWatch:
    """Stands around the strategy's `training_step` and keeps what the last batch showed.

    Attributes:
        capture: the cross_entropy calls of the last step; None: it was skipped.
        recorded: what `ads.record` handed over in it.
    """

    def __init__(self) -> None:
        self.capture: LossCapture | None = None
        self.recorded: list[Tensor] = []
        self._entropy = False
        self._users = 0

    @classmethod
    def join(cls, strategy: Strategy, needs: Iterable[str]) -> StepWatch:
        """The watch of `strategy`, put up if there is none; ended by `leave`."""
        watch = getattr(strategy.__dict__.get("training_step"), "watch", None)
        if watch is None:
            watch = cls()
            watch._wrap(strategy)
        watch._users += 1
        watch._entropy = watch._entropy or "entropy" in needs
        assert isinstance(watch, cls)
        return watch

    def _wrap(self, strategy: Strategy) -> None:
        original = strategy.training_step
        way = CaptureWay()

        def training_step(*args: Any, **kwargs: Any) -> Any:
            # A new capture for each step: one that grows would make a compiled module compile again.
            capture = LossCapture(entropy=self._entropy)
            with recording() as recorded, way.watching(capture):
                outputs = original(*args, **kwargs)
            if self.capture is None:
                # A closure may run the step again (LBFGS): the first run sees the parameters that the batch met.
                self.capture, self.recorded = capture, recorded
            return outputs

        training_step.watch = self  # type: ignore[attr-defined]
        strategy.training_step = training_step  # type: ignore[method-assign]

    def forget(self) -> None:
        """A new batch begins."""
        self.capture, self.recorded = None, []

    def leave(self, strategy: Strategy) -> None:
        """The last one to leave makes the strategy what it was."""
        self._users -= 1
        if self._users == 0:
            strategy.__dict__.pop("training_step", None)
