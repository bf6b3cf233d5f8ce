"""Signals that are a number of the forward pass itself."""

from __future__ import annotations

import numpy as np

from adaptive_sampling.weights.signals.protocol import BaseSignal, Floats, Observed, not_negative


class LossSignal(BaseSignal):
    """Mean loss per target token, in nats; not negative."""

    name = "loss"

    def values(self, observed: Observed) -> Floats:
        """The losses."""
        return not_negative(self.name, observed.ids, observed.captured["loss"])


class LogLossSignal(BaseSignal):
    """log(1 + loss): the same order as the loss, with differences between high losses evened out."""

    name = "log_loss"

    def values(self, observed: Observed) -> Floats:
        """log(1 + loss)."""
        return np.log1p(not_negative(self.name, observed.ids, observed.captured["loss"]))


class UncertaintySignal(BaseSignal):
    """Mean entropy of the predicted distributions, in nats per target token; not negative."""

    name = "uncertainty"
    needs = ("entropy",)

    def values(self, observed: Observed) -> Floats:
        """The entropies."""
        return not_negative(self.name, observed.ids, observed.captured["entropy"])
