"""Observations become one weight per window: running scores, shrinkage, clipping, scarcity, floor and cap, ramp.

Ids and numbers are all that is known here, neither text nor how draws are made, so that any map-style dataset is
served.
"""

from adaptive_sampling.weights.concentration import Concentration, concentration
from adaptive_sampling.weights.importance import share_target, weighted_mean
from adaptive_sampling.weights.policy import WeightPolicy, WeightUpdate
from adaptive_sampling.weights.record import record, recording
from adaptive_sampling.weights.reference import next_token_losses, reference_losses
from adaptive_sampling.weights.scarcity import scarcity_scores
from adaptive_sampling.weights.schedules import Constant, Cosine, Linear, Piecewise, Schedule
from adaptive_sampling.weights.signals import (
    BaseSignal,
    CombinedSignal,
    CurriculumSignal,
    ExcessLossSignal,
    LogLossSignal,
    LossSignal,
    Observed,
    ProgressSignal,
    Signal,
    UncertaintySignal,
)

__all__ = [
    "BaseSignal",
    "CombinedSignal",
    "Concentration",
    "Constant",
    "Cosine",
    "CurriculumSignal",
    "ExcessLossSignal",
    "Linear",
    "LogLossSignal",
    "LossSignal",
    "Observed",
    "Piecewise",
    "ProgressSignal",
    "Schedule",
    "Signal",
    "UncertaintySignal",
    "WeightPolicy",
    "WeightUpdate",
    "concentration",
    "next_token_losses",
    "record",
    "recording",
    "reference_losses",
    "scarcity_scores",
    "share_target",
    "weighted_mean",
]
