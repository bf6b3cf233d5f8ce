"""Excess loss over a reference: what the model does not know yet and another one does."""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_sampling._random import stable_hash
from adaptive_sampling.weights._checks import checked_values
from adaptive_sampling.weights.signals.protocol import BaseSignal, Floats, Observed, not_negative


class ExcessLossSignal(BaseSignal):
    """Loss minus a reference loss, in nats: the reducible loss (Mindermann et al. 2022, "RHO-loss", equation 3).

    Noise has a high loss under the reference too, so its excess stays near 0.

    Args:
        reference: real `[N]`, loss of each window under a reference model that was not trained on it, see
            `reference_losses`.

    Raises:
        ValueError: if a reference is not finite, naming the first window, or there is another number of windows.
    """

    name = "excess"
    signed = True

    def __init__(self, reference: Any) -> None:
        values = np.asarray(reference)
        self.reference = checked_values("reference", values, len(values) if values.ndim else 0)
        bad = ~np.isfinite(self.reference)
        if bad.any():
            first = int(bad.argmax())
            raise ValueError(
                f"`reference` must be finite, got {float(values[first])!r} for window {first} and {int(bad.sum())} "
                "such in all. Compute these losses again, or give windows without a target any number, as 0."
            )

    def bind(self, num_windows: int, num_groups: int | None) -> None:
        """Refuse another number of windows."""
        if num_windows != len(self.reference):
            raise ValueError(
                f"`reference` must hold one loss per window ({num_windows}), got {len(self.reference)}. "
                "Compute it with the same dataset and window settings."
            )

    def values(self, observed: Observed) -> Floats:
        """Loss minus reference."""
        losses = not_negative(self.name, observed.ids, observed.captured["loss"])
        return np.asarray(losses - self.reference[observed.ids])

    def settings(self) -> dict[str, Any]:
        """A digest of the reference."""
        return {"reference": f"{stable_hash(self.reference.tobytes()):032x}"}
