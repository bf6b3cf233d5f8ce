"""The Lightning side: losses are captured while `training_step` runs, weights go back at step boundaries.

`AdaptiveSampling` is the one line that a user adds to a Trainer; `SamplingMonitor` shows what the weights do;
`ScarcityRefresh` renews scarcity from the module's own features. Nothing here changes the module, its loss or its
gradients.
"""

if __name__ == "callbacks":
    raise ImportError(
        "`callbacks` is not an importable name: another distribution may own it. "
        "Write `from adaptive_sampling.callbacks import AdaptiveSampling`."
    )

from adaptive_sampling.callbacks.adaptive_sampling import AdaptiveSampling
from adaptive_sampling.callbacks.loss_capture import LossCapture
from adaptive_sampling.callbacks.monitor import SamplingMonitor
from adaptive_sampling.callbacks.scarcity_refresh import ScarcityRefresh

__all__ = ["AdaptiveSampling", "LossCapture", "SamplingMonitor", "ScarcityRefresh"]
