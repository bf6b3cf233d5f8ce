"""The settings of a policy: checked once, compared when a state is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import stable_hash
from adaptive_sampling.weights import transforms
from adaptive_sampling.weights._checks import checked_count, checked_factors, checked_groups, checked_number
from adaptive_sampling.weights.scarcity import ScarcityMeasure
from adaptive_sampling.weights.schedules import Position, Schedule, as_schedule, checked_position, step_of

# The largest power that keeps (value/reference)^power of float32 losses finite in float64.
_MAX_POWER = 4.0
_LARGEST = float(np.finfo(np.float64).max)


class Moment(NamedTuple):
    """The numbers that follow the training, at one step.

    Attributes:
        ramp: λ.
        power: exponent of step 3.
        blend: β.
        cap: largest weight.
        uniform: share of uniform draws.
        threshold: quantile of a curriculum; 1 without one.
    """

    ramp: float
    power: float
    blend: float
    cap: float
    uniform: float
    threshold: float


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The numbers of a `WeightPolicy`; see there.

    Raises:
        ValueError: on a value out of its range, with the range.
    """

    decay: float
    power: Schedule
    clip: tuple[float, float]
    shrinkage: float
    gate: float
    blend: Schedule
    floor: float
    cap: Schedule
    uniform: Schedule
    warmup: Position
    cooldown: Position
    normalize_every: int
    importance: Schedule
    auto_off: bool
    min_effective_size: float
    scarcity_measure: ScarcityMeasure

    def __post_init__(self) -> None:
        put = object.__setattr__
        decay = checked_number("decay", self.decay, 0.0, 1.0, what="in [0, 1)")
        if decay == 1.0:
            raise ValueError(f"`decay` must be in [0, 1), got {self.decay!r}. With 1 a score would never follow.")
        put(self, "decay", decay)
        put(self, "power", _checked_schedule("power", self.power, 0.0, _MAX_POWER, f"in [0, {_MAX_POWER:g}]"))
        put(self, "clip", _checked_clip(self.clip))
        put(self, "shrinkage", _finite("shrinkage", self.shrinkage))
        put(self, "gate", checked_number("gate", self.gate, 0.0, 1.0, what="in [0, 1]; 0 is no gate"))
        put(self, "blend", _checked_schedule("blend", self.blend, 0.0, 1.0, "in [0, 1]"))
        put(self, "floor", checked_number("floor", self.floor, 0.0, 1.0, what="in [0, 1], a share of the mean weight"))
        what = "at least 1, a multiple of the mean weight"
        put(self, "cap", _checked_schedule("cap", self.cap, 1.0, math.inf, what))
        lowest = min(self.cap.values)
        if self.floor >= lowest:
            raise ValueError(f"`floor` must be below `cap`, got {self.floor!r} and {lowest!r}. Raise `cap`.")
        put(self, "uniform", _checked_schedule("uniform", self.uniform, 0.0, 1.0, "a share in [0, 1]"))
        for name in ("warmup", "cooldown"):
            put(self, name, checked_position(name, getattr(self, name)))
        fractions = [x for x in (self.warmup, self.cooldown) if isinstance(x, float)]
        if sum(fractions) > 1.0:
            raise ValueError(
                f"`warmup` and `cooldown` must be at most 1 together, got {self.warmup!r} and {self.cooldown!r}."
            )
        put(self, "normalize_every", checked_count("normalize_every", self.normalize_every, 1))
        what = "a finite number of at least 0"
        put(self, "importance", _checked_schedule("importance", self.importance, 0.0, _LARGEST, what))
        if not isinstance(self.auto_off, (bool, np.bool_)):
            raise ValueError(f"`auto_off` must be True or False, got {self.auto_off!r}.")
        put(self, "auto_off", bool(self.auto_off))
        what = "a share of the windows in [0, 1]; 0 is no bound"
        put(self, "min_effective_size", checked_number("min_effective_size", self.min_effective_size, 0, 1, what=what))
        if self.scarcity_measure not in get_args(ScarcityMeasure):
            raise ValueError(
                f"`scarcity_measure` must be one of {get_args(ScarcityMeasure)}, got {self.scarcity_measure!r}."
            )

    def check_length_unneeded(self, threshold: Schedule | None) -> None:
        """Where the length of training is unknown, nothing may be a fraction of it.

        Raises:
            ValueError: naming the ways out.
        """
        if any(isinstance(x, float) and x > 0 for x in (self.warmup, self.cooldown)):
            raise ValueError(
                f"`warmup` and `cooldown` must be numbers of steps (int) where the length of training is unknown, got "
                f"{self.warmup!r} and {self.cooldown!r}. Give the Trainer max_steps or max_epochs, "
                "call policy.bind(num_windows, total_steps), or set WeightPolicy(warmup=0, cooldown=0)."
            )
        for name, schedule in [*self._schedules().items(), ("threshold", threshold)]:
            if schedule is not None and schedule.needs_length:
                raise ValueError(
                    f"`{name}` must have positions in steps (int) where the length of training is unknown, got "
                    f"{schedule!r}. Give the Trainer max_steps or max_epochs, or call "
                    "policy.bind(num_windows, total_steps)."
                )

    def follows_length(self, threshold: Schedule | None) -> bool:
        """Does the course of the training depend on its length?"""
        moving = [*self._schedules().values(), *([] if threshold is None else [threshold])]
        return self.cooldown > 0 or isinstance(self.warmup, float) or any(x.needs_length for x in moving)

    def _schedules(self) -> dict[str, Schedule]:
        return {field.name: x for field in fields(self) if isinstance(x := getattr(self, field.name), Schedule)}

    def ramp_steps(self, total_steps: int | None) -> tuple[int, int]:
        """Warm-up and cool-down in optimizer steps."""
        steps = [
            round(x * (total_steps or 0)) if isinstance(x, float) else int(x) for x in (self.warmup, self.cooldown)
        ]
        return steps[0], steps[1]

    def turning_points(self, total_steps: int | None, threshold: Schedule | None) -> list[int]:
        """Steps at which a ramp or a schedule bends or ends: a full pass is due there."""
        warmup, cooldown = self.ramp_steps(total_steps)
        points = [warmup] if total_steps is None else [warmup, total_steps - cooldown, total_steps]
        moving = [*self._schedules().values(), *([] if threshold is None else [threshold])]
        return points + [step_of(position, total_steps) for schedule in moving for position in schedule.positions]

    def moment(self, step: int, total_steps: int | None, threshold: Schedule | None) -> Moment:
        """The numbers after `step` optimizer steps."""
        return Moment(
            transforms.ramp(step, *self.ramp_steps(total_steps), total_steps),
            self.power.at(step, total_steps),
            self.blend.at(step, total_steps),
            self.cap.at(step, total_steps),
            self.uniform.at(step, total_steps),
            1.0 if threshold is None else threshold.at(step, total_steps),
        )

    def as_primitives(self) -> dict[str, Any]:
        """Values as numbers, strings and lists of these, in the order of the fields."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {name: x.as_primitives() if isinstance(x, Schedule) else x for name, x in values.items()}
        return {**plain, "clip": list(self.clip)}


class WindowArrays:
    """What is known of each window beforehand: group, scarcity, prior; each array may be missing.

    Attributes:
        group: int64 `[N]`, group numbers from 0, or None for one group of all.
        num_groups: how many there are.
        scarcity: float64 `[N]`, mean 1 over the windows not excluded, or None for 1 everywhere.
        prior: float64 `[N]`, likewise; 0 excludes a window.
        included: bool `[N]`, prior above 0; None: all are.
        num_included: how many; None: all are.
        length: N, None if no array is there to tell it.

    Raises:
        ValueError: on values that are no factors, or arrays of different lengths.
    """

    def __init__(self, groups: Any, scarcity: Any, priors: Any) -> None:
        self.group: NDArray[np.int64] | None = None
        self.num_groups = 1
        self.scarcity = None if scarcity is None else checked_factors("scarcity", scarcity)
        self.prior = None if priors is None else checked_factors("priors", priors)
        if groups is not None:
            names, numbers = np.unique(checked_groups("groups", groups), return_inverse=True)
            self.group, self.num_groups = numbers.astype(np.int64), len(names)
        given = {"groups": self.group, "scarcity": self.scarcity, "priors": self.prior}
        lengths = {name: len(array) for name, array in given.items() if array is not None}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"`groups`, `scarcity` and `priors` must have one entry per window, got lengths {lengths}. "
                "Make them of the same dataset."
            )
        self.length = next(iter(lengths.values()), None)
        self.digests = {
            name: None if array is None else f"{stable_hash(array.tobytes()):032x}" for name, array in given.items()
        }
        self.included: NDArray[np.bool_] | None = None
        self.num_included: int | None = None
        if self.prior is not None and not self.prior.all():
            self.included = self.prior > 0
            self.num_included = int(np.count_nonzero(self.included))
        for factor in (self.scarcity, self.prior):
            if factor is not None:
                self._scale(factor)
        self.scarcity_replaced = False

    def _scale(self, factor: NDArray[np.float64]) -> None:
        mean = float(factor.mean() if self.included is None else factor[self.included].mean())
        # Scarcity may be 0 for all that is not excluded; the floor then makes it even.
        factor /= mean if mean > 0 else 1.0

    def replace_scarcity(self, scarcity: Any, length: int) -> None:
        """Another scarcity in the place of the one that was given; `digests` stay those of what was given.

        Raises:
            ValueError: on values that are no factors, or another length.
            TypeError: if they are no real numbers.
        """
        factors = checked_factors("scarcity", scarcity)
        if len(factors) != length:
            raise ValueError(f"`scarcity` must have one entry per window ({length}), got {len(factors)}.")
        self._scale(factors)
        self.scarcity, self.scarcity_replaced = factors, True

    def of(self, ids: NDArray[np.int64] | slice) -> tuple[Any, Any, Any]:
        """Group, scarcity and prior of some windows; numbers in place of missing arrays."""
        return (
            0 if self.group is None else self.group[ids],
            1.0 if self.scarcity is None else self.scarcity[ids],
            1.0 if self.prior is None else self.prior[ids],
        )


def _finite(name: str, value: Any) -> float:
    return checked_number(name, value, 0.0, _LARGEST, what="a finite number of at least 0")


def _checked_schedule(name: str, value: Any, low: float, high: float, what: str) -> Schedule:
    schedule = as_schedule(value)
    if not isinstance(schedule, Schedule):
        raise ValueError(f"`{name}` must be {what}, or a schedule of such numbers, got {value!r}.")
    for extreme in schedule.values:
        checked_number(name, extreme, low, high, what=what)
    return schedule


def _checked_clip(clip: Any) -> tuple[float, float]:
    try:
        low, high = clip
    except (TypeError, ValueError):
        raise ValueError(f"`clip` must be two quantiles (lower, upper) in [0, 1], got {clip!r}.") from None
    what = "two quantiles (lower, upper) in [0, 1]"
    pair = (checked_number("clip", low, 0.0, 1.0, what=what), checked_number("clip", high, 0.0, 1.0, what=what))
    if pair[0] >= pair[1]:
        raise ValueError(f"`clip` must be (lower, upper) with lower < upper, got {clip!r}. Use (0, 1) for no clipping.")
    return pair
