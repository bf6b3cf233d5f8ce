"""Schedules: numbers that follow the training, given in place of a constant.

A position is a fraction of the training (float in [0, 1]) or a number of optimizer steps (int), like `warmup`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Position = int | float  # in this order, so that a step of a configuration file stays one


def step_of(position: Position, total_steps: int | None) -> int:
    """`position` as a number of optimizer steps.

    Raises:
        ValueError: for a fraction of an unknown length.
    """
    if not isinstance(position, float):
        return int(position)
    if position > 0 and total_steps is None:
        raise ValueError(
            f"a position must be a number of steps (int) where the length of training is unknown, got {position!r}. "
            "Say how long it is: policy.bind(num_windows, total_steps)."
        )
    return round(position * (total_steps or 0))


def checked_position(name: str, value: Any) -> Position:
    """`value` as a float in [0, 1] or an int of at least 0.

    Raises:
        ValueError: for anything else, booleans included.
    """
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 0:
        return int(value)
    if isinstance(value, (float, np.floating)) and 0.0 <= value <= 1.0:
        return float(value)
    raise ValueError(
        f"`{name}` must be a fraction of training (float in [0, 1]) or a number of steps (int), got {value!r}."
    )


class Schedule:
    """A number that follows the training; the kinds are `Constant`, `Linear`, `Cosine` and `Piecewise`."""

    @property
    def values(self) -> tuple[float, ...]:
        """Between the smallest and the largest of these lies every value."""
        raise NotImplementedError

    @property
    def positions(self) -> tuple[Position, ...]:
        """Where the course of the values bends or jumps."""
        return ()

    def at(self, step: int, total_steps: int | None) -> float:
        """The value after `step` optimizer steps of `total_steps`.

        Raises:
            ValueError: if a fraction of an unknown length is needed.
        """
        raise NotImplementedError

    @property
    def needs_length(self) -> bool:
        """Is a position a fraction of the training?"""
        return any(isinstance(position, float) and position > 0 for position in self.positions)

    def as_primitives(self) -> Any:
        """Numbers and strings that tell schedules apart."""
        return {"kind": type(self).__name__, "values": list(self.values), "positions": list(self.positions)}


@dataclass(frozen=True)
class Constant(Schedule):
    """The same number all the time."""

    value: float

    @property
    def values(self) -> tuple[float, ...]:
        """The number."""
        return (self.value,)

    def at(self, step: int, total_steps: int | None) -> float:
        """The number."""
        return self.value

    def as_primitives(self) -> Any:
        """The number itself."""
        return self.value


@dataclass(frozen=True)
class _Ramp(Schedule):
    start: float
    stop: float
    begin: Position = 0.0
    end: Position = 1.0

    def __post_init__(self) -> None:
        for name in ("start", "stop"):
            _check_value(name, getattr(self, name))
        for name in ("begin", "end"):
            object.__setattr__(self, name, checked_position(name, getattr(self, name)))
        if isinstance(self.begin, float) is isinstance(self.end, float) and self.begin >= self.end:
            raise ValueError(f"`begin` must be before `end`, got {self.begin!r} and {self.end!r}. Swap them.")

    @property
    def values(self) -> tuple[float, ...]:
        """Start and stop."""
        return (self.start, self.stop)

    @property
    def positions(self) -> tuple[Position, ...]:
        """Begin and end."""
        return (self.begin, self.end)

    def at(self, step: int, total_steps: int | None) -> float:
        """`start` up to `begin`, exactly `stop` from `end` on."""
        begin, end = step_of(self.begin, total_steps), step_of(self.end, total_steps)
        if step >= end:
            return self.stop
        if step <= begin:
            return self.start
        return self.start + (self.stop - self.start) * self._share((step - begin) / (end - begin))

    def _share(self, done: float) -> float:
        raise NotImplementedError


@dataclass(frozen=True)
class Linear(_Ramp):
    """From `start` to `stop` in a straight line between two positions.

    Args:
        start: value up to `begin`.
        stop: value from `end` on.
        begin: fraction of the training (float) or number of optimizer steps (int).
        end: likewise.

    Raises:
        ValueError: on values that are not finite, or positions that are none or in the wrong order.

    Example:
        >>> schedule = Linear(2.0, 1.0, begin=10, end=20)
        >>> [schedule.at(step, None) for step in (0, 10, 15, 20, 99)]
        [2.0, 2.0, 1.5, 1.0, 1.0]
    """

    def _share(self, done: float) -> float:
        return done


@dataclass(frozen=True)
class Cosine(_Ramp):
    """From `start` to `stop` along half a cosine, flat at both ends; arguments as of `Linear`.

    Example:
        >>> round(Cosine(0.0, 1.0, end=100).at(25, None), 4)
        0.1464
    """

    def _share(self, done: float) -> float:
        return (1.0 - math.cos(math.pi * done)) / 2.0


@dataclass(frozen=True)
class Piecewise(Schedule):
    """A value from each position on, up to the next.

    Args:
        pieces: pairs (position, value) in rising order, the first at 0.

    Raises:
        ValueError: on no pieces, a first position other than 0, positions in the wrong order, or bad values.

    Example:
        >>> schedule = Piecewise(((0, 1.0), (0.5, 2.0)))
        >>> [schedule.at(step, 100) for step in (0, 49, 50, 100)]
        [1.0, 1.0, 2.0, 2.0]
    """

    pieces: tuple[tuple[Position, float], ...]

    def __post_init__(self) -> None:
        try:
            pieces = tuple((position, value) for position, value in self.pieces)
        except (TypeError, ValueError):
            raise ValueError(f"`pieces` must be pairs (position, value), got {self.pieces!r}.") from None
        pieces = tuple((checked_position("pieces", p), _check_value("pieces", v)) for p, v in pieces)
        if not pieces or pieces[0][0] != 0:
            raise ValueError(f"`pieces` must begin with a value at position 0, got {self.pieces!r}.")
        for (one, _), (other, _) in itertools.pairwise(pieces[1:]):
            if isinstance(one, float) is isinstance(other, float) and one >= other:
                raise ValueError(f"`pieces` must be in the order of their positions, got {one!r} before {other!r}.")
        object.__setattr__(self, "pieces", pieces)

    @property
    def values(self) -> tuple[float, ...]:
        """All of them."""
        return tuple(value for _, value in self.pieces)

    @property
    def positions(self) -> tuple[Position, ...]:
        """All of them."""
        return tuple(position for position, _ in self.pieces)

    def at(self, step: int, total_steps: int | None) -> float:
        """The value of the last piece that has begun."""
        begun = [value for position, value in self.pieces if step_of(position, total_steps) <= step]
        return begun[-1]


def as_schedule(value: Any) -> Any:
    """A number as a `Constant`; a schedule and all else as it is."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return Constant(float(value)) if number else value


def _check_value(name: str, value: Any) -> float:
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise ValueError(f"`{name}` must be a finite number, got {value!r}.")
    return float(value)
