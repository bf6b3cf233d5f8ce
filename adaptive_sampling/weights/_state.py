"""What a policy remembers besides its arrays, and how it is written down."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adaptive_sampling.errors import StateMismatchError
from adaptive_sampling.weights._full_pass import Frozen
from adaptive_sampling.weights._settings import Moment
from adaptive_sampling.weights._table import COLUMNS
from adaptive_sampling.weights.drift import Trend

VERSION = 2
# Full passes may take this share of the time.
_TIME_SHARE = 0.005
# From so many windows on, a full pass costs more than an update's worth of training gives back ...
_MANY_WINDOWS = 1 << 18
# ... and waits until one observation for each so many windows says something new. A pass takes some 50 ns per window,
# training on one takes milliseconds.
_WINDOWS_PER_OBSERVATION = 256
# It also waits one step for each so many windows, until the time of a step is told: with what the sampler does after
# it, a pass takes some 80 ns per window, which is 0.2 % of steps of 50 ms.
_WINDOWS_PER_STEP = 1024


@dataclass
class Clock:
    """When the last full pass was, and when the next is due.

    Attributes:
        step: optimizer steps done at the last update.
        updates: updates so far.
        updates_since_pass: updates since the last full pass.
        pass_step: optimizer steps done at the last full pass; −1: there was none.
        least_steps: optimizer steps that lie between two passes at least, since passes are slow; 0: not decided yet.
        observed_since_pass: observations since the last full pass.
    """

    step: int = 0
    updates: int = 0
    updates_since_pass: int = 0
    pass_step: int = -1
    least_steps: int = 0
    observed_since_pass: int = 0

    def tick(self, step: int, observations: int) -> None:
        """An update at `step`."""
        self.step = step
        self.updates += 1
        self.updates_since_pass += 1
        self.observed_since_pass += observations

    def passed(self) -> None:
        """A full pass at the current step."""
        self.updates_since_pass = self.observed_since_pass = 0
        self.pass_step = self.step

    def decide(self, pass_seconds: float, seconds_per_step: float) -> None:
        """Choose `least_steps`, once: a power of two, so that passes take at most half a per cent of the time.

        Times differ from run to run; what was decided is part of the state, so that a resumed run goes on as it was.
        """
        if self.least_steps == 0:
            self.least_steps = 1 << math.ceil(math.log2(max(pass_seconds / (_TIME_SHARE * seconds_per_step), 1.0)))

    def pass_is_due(
        self,
        *,
        news: bool,
        interval: int,
        num_windows: int,
        total_steps: int | None,
        turning_points: Sequence[int],
    ) -> bool:
        """Is it time: the first scores, a turn of a ramp or schedule, 1 % of the training, or `interval` updates.

        The latter two wait where passes are slow or little was observed for so many windows.
        """
        if self.pass_step < 0 or news:
            return True
        if any(self.pass_step < end <= self.step for end in turning_points):
            return True
        if num_windows >= _MANY_WINDOWS and self.observed_since_pass * _WINDOWS_PER_OBSERVATION < num_windows:
            return False
        least_steps = self.least_steps
        if least_steps == 0 and num_windows >= _MANY_WINDOWS:
            least_steps = num_windows // _WINDOWS_PER_STEP
        if self.step - self.pass_step < least_steps:
            return False
        if self.updates_since_pass >= interval:
            return True
        return total_steps is not None and (self.step - self.pass_step) * 100 >= total_steps

    def as_primitives(self) -> dict[str, int]:
        """The attributes."""
        return asdict(self)


def frozen_to_primitives(frozen: Frozen) -> dict[str, Any]:
    """Tensors and numbers."""
    trend = frozen.trend
    return {
        **vars(frozen),
        "group_means": torch.from_numpy(frozen.group_means.copy()),
        "moment": list(frozen.moment),
        "trend": None
        if trend is None
        else {**to_tensors(movement=trend.movement, learnable=trend.learnable), "width": trend.width},
    }


def frozen_from_primitives(state: Mapping[str, Any]) -> Frozen:
    """The inverse of `frozen_to_primitives`."""
    trend = state["trend"]
    if trend is not None:
        trend = Trend(trend["movement"].numpy().copy(), trend["learnable"].numpy().copy(), int(trend["width"]))
    means = state["group_means"].numpy().copy()
    return Frozen(**{**state, "group_means": means, "moment": Moment(*state["moment"]), "trend": trend})


def to_tensors(**arrays: NDArray[Any]) -> dict[str, torch.Tensor]:
    """Copies of `arrays` as tensors."""
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def from_tensors(state: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """The arrays of `to_tensors`, as copies on the CPU.

    Raises:
        StateMismatchError: if they do not hold one entry per window.
    """
    dtypes = {**COLUMNS, "weights": np.float32}
    arrays = {name: state[name].cpu().numpy().astype(dtype) for name, dtype in dtypes.items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    if set(shapes.values()) != {(state["num_windows"],)}:
        raise StateMismatchError(
            f"the saved policy must hold {state['num_windows']} entries per array, got shapes {shapes}. "
            "The checkpoint is damaged: resume from another."
        )
    for name, array in arrays.items():
        bad = ~np.isfinite(array)
        what = "finite"
        if name in ("visits", "weights"):
            bad |= array < 0
            what = "finite and not negative"
        if bad.any():
            at = int(bad.argmax())
            raise StateMismatchError(
                f"`{name}` of the saved policy must be {what}, got {array[at].item()!r} for window {at}. "
                "The checkpoint is damaged: resume from another."
            )
    return arrays


@contextmanager
def damaged_if_it_fails() -> Iterator[None]:
    """What a part of a state refuses, or lacks, means that the state is damaged."""
    try:
        yield
    except StateMismatchError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise StateMismatchError(
            f"the saved policy is damaged: {type(error).__name__}: {error}. Resume from another checkpoint."
        ) from error


def check(state: Mapping[str, Any], num_windows: int | None, settings: Mapping[str, Any]) -> None:
    """Does `state` fit a policy with this N and these settings?

    Raises:
        StateMismatchError: naming what differs, both values and the cure.
    """
    if not isinstance(state, Mapping):
        raise StateMismatchError(
            f"the saved policy must be a mapping, got {state!r}. Load what `WeightPolicy.state_dict()` returned."
        )
    if state.get("version") != VERSION:
        raise StateMismatchError(
            f"the saved policy has version {state.get('version')!r}, this package reads {VERSION}. "
            "Resume with the package version that saved it."
        )
    parts = {"clock": fields(Clock), "frozen": fields(Frozen), "drift": (), "signal": (), "settings": ()}
    missing = [
        name for name in ("num_windows", "total_steps", "dropped", "weights", *COLUMNS, *parts) if name not in state
    ]
    for name, entries in parts.items():
        part = state.get(name)
        if isinstance(part, Mapping):
            missing += [f"{name}.{entry.name}" for entry in entries if entry.name not in part]
        elif name in state:
            missing.append(name)
    if missing:
        raise StateMismatchError(
            f"the saved policy must be whole, got none of {missing}. The checkpoint is damaged: resume from another."
        )
    if num_windows is not None and num_windows != state["num_windows"]:
        raise StateMismatchError(
            f"the saved policy is for {state['num_windows']} windows, this one for {num_windows}. "
            "Resume with the dataset and window settings of the checkpoint, or start a new training."
        )
    saved = state["settings"]
    for name in [*settings, *(name for name in saved if name not in settings)]:
        there, here = saved.get(name, "nothing"), settings.get(name)
        if there != here:
            raise StateMismatchError(
                f"`{name}` of the saved policy is {there!r}, here it is {here!r}. "
                f"Resume with WeightPolicy({name}=…) as saved, or start a new training."
            )
