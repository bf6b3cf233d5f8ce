"""Observations become one weight per window: running scores, shrinkage, clipping, scarcity, floor and cap, ramp.

Ids and numbers are all that is known here, neither text nor how draws are made, so that any map-style dataset is
served.
"""

from adaptive_sampling.weights.policy import WeightPolicy, WeightUpdate
from adaptive_sampling.weights.record import record, recording
from adaptive_sampling.weights.scarcity import scarcity_scores

__all__ = ["WeightPolicy", "WeightUpdate", "record", "recording", "scarcity_scores"]
