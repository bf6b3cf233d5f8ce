"""Signals: what one forward pass says of a window."""

from adaptive_sampling.weights.signals.combined import CombinedSignal
from adaptive_sampling.weights.signals.curriculum import CurriculumSignal
from adaptive_sampling.weights.signals.excess import ExcessLossSignal
from adaptive_sampling.weights.signals.losses import LogLossSignal, LossSignal, UncertaintySignal
from adaptive_sampling.weights.signals.named import resolve_signal
from adaptive_sampling.weights.signals.progress import ProgressSignal
from adaptive_sampling.weights.signals.protocol import BaseSignal, Observed, Signal

__all__ = [
    "BaseSignal",
    "CombinedSignal",
    "CurriculumSignal",
    "ExcessLossSignal",
    "LogLossSignal",
    "LossSignal",
    "Observed",
    "ProgressSignal",
    "Signal",
    "UncertaintySignal",
    "resolve_signal",
]
