"""`WeightPolicy`: what the windows' losses say, as one weight per window."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._arrays import checked_ids
from adaptive_sampling.weights import _full_pass, _state, transforms
from adaptive_sampling.weights._checks import checked_count, checked_number
from adaptive_sampling.weights._explain import explanation
from adaptive_sampling.weights._full_pass import Parts
from adaptive_sampling.weights._observations import checked_observations, checked_signal_values
from adaptive_sampling.weights._settings import Moment, Settings, WindowArrays
from adaptive_sampling.weights._table import COLUMNS, Rows, Table
from adaptive_sampling.weights.concentration import Concentration, concentration
from adaptive_sampling.weights.drift import Drift
from adaptive_sampling.weights.scarcity import ScarcityMeasure
from adaptive_sampling.weights.schedules import Schedule
from adaptive_sampling.weights.signals import Observed, Signal, resolve_signal

_MOST_UNBOUND = 10**8
"""An id beyond this is taken for an error, as long as nobody said how many windows there are."""
_EARLY_UPDATES = 10
"""Where the length of training is unknown, so many updates are early."""
_ALARM = 0.3
"""Weights as varied as less than this share of the windows are too concentrated for the beginning of a training."""


@dataclass(frozen=True)
class WeightUpdate:
    """Weights that an update changed.

    Attributes:
        ids: int64 `[B]`, ascending; None: `values` are the weights of all windows, in the order of their ids.
        values: float32 `[B]`, the new weights.
    """

    ids: NDArray[np.int64] | None
    values: NDArray[np.float32]


class WeightPolicy:
    """Turns observations (window ids and what was captured of them) into weights, mean 1.

    1. Running mean: score ← (1−a)·score + a·value, a = max(1−decay, 1/(visits+1)); in the signal's own units.
    2. Shrinkage: ŝ = (visits·score + κ·group mean)/(visits + κ), the mean being over the seen windows of the group; an
       unseen window takes its group's mean, an unseen group that of all seen windows. Scores seen long ago are first
       brought forward by how far the level of their group has moved since, see `Drift`, and so the group mean follows
       the model; then ŝ is multiplied by the share of it that can be learned, see `gate`.
    3. Clip ŝ to quantiles of the seen windows, raise to `power`, divide by the mean: s.
    4. Scarcity q and prior r: v = s·q·r ("density"), or v = ((1−β)·s + β·q)·r ("distance").
    5. w = clip(v/m, floor, cap), m such that the mean weight is 1; then (1−u)·w + u for the uniform share u.
    6. What was learned is ramped: s ← 1 + λ·(s − 1) before step 4, λ rising over `warmup` and falling over `cooldown`.

    Each update takes the observed windows through all steps; quantiles, means, levels, λ and m hold from one full pass
    over all windows to the next. A pass comes with the first scores, where ramps and schedules turn, after every 1 % of
    the training where its length is known, and after `normalize_every` updates. Slow passes come less often: from 2^18
    windows on, the latter two wait for one observation per 256 windows and one step per 1,024.

    Args:
        signal: name ("loss", "log_loss", "uncertainty", "progress") or a `Signal`; "loss": mean per target token, in
            nats, not negative.
        decay: share of the old score kept at each visit once a window has 1/(1−decay) of them; in [0, 1).
        power: exponent, in [0, 4]; above 1 sharpens. A number or a `Schedule`.
        clip: (lower, upper) quantiles.
        shrinkage: κ, the number of visits that a group's mean is worth. 0: each window speaks for itself, groups say
            nothing, neither mean nor drift nor what can be learned.
        groups: integers `[N]`: sources, documents or clusters; None: all windows are one group.
        scarcity: real `[N]`, not negative, see `scarcity_scores`; scaled to mean 1. None: 1 everywhere.
        blend: β, a number or a `Schedule`; counts for `scarcity_measure="distance"`.
        priors: real `[N]`, fixed multipliers, not negative; scaled to mean 1. 0 excludes a window for good.
        floor: smallest weight, as a share of the mean; in [0, 1].
        cap: largest weight, as a multiple of the mean; at least 1. A number or a `Schedule`.
        warmup: fraction of training (float) or number of steps (int) over which λ rises from 0 to 1.
        cooldown: likewise, over which λ falls back to 0 at the end.
        normalize_every: updates between two full passes, at most, unless passes are slow.
        importance: γ of `importance_weights`, a number or a `Schedule`; 0: no correction.
        scarcity_measure: how `scarcity` enters: "density" multiplies, "distance" and "cluster" blend.
        gate: groups and windows whose value falls less than this share of the mean fall count for proportionally less:
            what is high for good is noise and teaches nothing. 0: no gate. It waits for evidence: until a group could
            have shown a fall, it counts in full. Signed signals, curricula and policies without `groups` have no gate.
        uniform: u, share of uniform draws mixed in, a number or a `Schedule`.
        min_effective_size: bound on the effective sample size, as a share of the windows; where weights would fall
            below, uniform draws are mixed in until it holds. 0: no bound.
        auto_off: leave out what was learned as long as `variance_gain` is about 1 (below 1.05).

    Raises:
        ValueError: on a setting out of its range, or arrays with values that are no factors or of different lengths.
        TypeError: on arrays of a wrong type or a signal that is none.

    State:
        Four numbers and the weight per window, levels per group, the signal's memory, and the terms of the last full
        pass. Restored, it continues bit for bit.

    Cost:
        An update: O(observations), whatever N. A full pass: O(N), on up to four threads. Memory: 20 bytes per window,
        beside the arrays given, and 12 more during a pass.

    Example:
        >>> policy = WeightPolicy(warmup=0, cooldown=0, shrinkage=0, clip=(0, 1))
        >>> policy.bind(4)
        >>> policy.update([0, 1, 2, 3], [3.0, 1.0, 2.0, 2.0]).values.tolist()
        [1.5, 0.5, 1.0, 1.0]
    """

    def __init__(
        self,
        signal: str | Signal = "loss",
        *,
        decay: float = 0.9,
        power: float | Schedule = 1.0,
        clip: tuple[float, float] = (0.05, 0.9),
        shrinkage: float = 2.0,
        groups: Any = None,
        scarcity: Any = None,
        blend: float | Schedule = 0.3,
        priors: Any = None,
        floor: float = 0.1,
        cap: float | Schedule = 4.0,
        warmup: int | float = 0.05,
        cooldown: int | float = 0.1,
        normalize_every: int = 20,
        importance: float | Schedule = 0.0,
        scarcity_measure: ScarcityMeasure = "density",
        gate: float = 0.5,
        uniform: float | Schedule = 0.0,
        min_effective_size: float = 0.0,
        auto_off: bool = False,
    ) -> None:
        self._signal = resolve_signal(signal)
        self.settings = Settings(
            decay=decay,
            power=power,  # type: ignore[arg-type]  # numbers become schedules there
            clip=clip,
            shrinkage=shrinkage,
            gate=gate,
            blend=blend,  # type: ignore[arg-type]
            floor=floor,
            cap=cap,  # type: ignore[arg-type]
            uniform=uniform,  # type: ignore[arg-type]
            warmup=warmup,
            cooldown=cooldown,
            normalize_every=normalize_every,
            importance=importance,  # type: ignore[arg-type]
            auto_off=auto_off,
            min_effective_size=min_effective_size,
            scarcity_measure=scarcity_measure,
        )
        self._arrays = WindowArrays(groups, scarcity, priors)
        self.num_windows: int | None = None
        self.total_steps: int | None = None
        self.dropped = 0
        self._grows = self._arrays.length is None
        self._warned: set[str] = set()
        self._pass_seconds = 0.0
        self._clock = _state.Clock()
        self._drift = Drift(self._arrays.num_groups)
        self._unused_signal = copy.deepcopy(self._signal.state_dict())
        if self._arrays.length is not None:
            self._allocate(self._arrays.length)

    # --- joining a training -----------------------------------------------------------------------------------------

    def bind(self, num_windows: int, total_steps: int | EllipsisType | None = ...) -> None:
        """Say how many windows there are and how long the training is; may be called again with the same number.

        Args:
            num_windows: N.
            total_steps: length of the training in optimizer steps; None: unknown for good; left out: said later, or
                as said before.

        Raises:
            ValueError: if N differs from what arrays, a state or an earlier call say, or if the length is unknown and a
                ramp or a schedule is a fraction of it.
        """
        count = checked_count("num_windows", num_windows, 1)
        if total_steps is None:
            self._require_length()
        elif total_steps is not ...:
            checked_count("total_steps", total_steps, 1)
        if self._grows and count >= (self.num_windows or 0):
            self._resize(count)
            self._grows = False
        elif self.num_windows != count:
            given = " and ".join(f"`{name}`" for name, of in self._arrays.digests.items() if of) or "scores"
            raise ValueError(
                f"`num_windows` must be {self.num_windows}, the length of this policy's {given}, got {count} windows. "
                "Make a new WeightPolicy with arrays of as many entries as there are windows."
            )
        if total_steps is not ...:
            self._set_length(total_steps)

    def _set_length(self, total_steps: int | None) -> None:
        old, new = self.total_steps, None if total_steps is None else int(total_steps)
        self.total_steps = new
        if old is None or old == new or not self._clock.updates:
            return
        if self.settings.follows_length(self._signal.threshold):
            warnings.warn(
                f"the training's length changed from {old} to {new} steps: `warmup`, `cooldown` and schedules follow "
                "the new one.",
                stacklevel=3,
            )

    def _turning_points(self, total_steps: int | None) -> list[int]:
        return self.settings.turning_points(total_steps, self._signal.threshold)

    def _require_length(self) -> None:
        """Without a length, a fraction of it means nothing, and a cool-down does not know when to start."""
        self.settings.check_length_unneeded(self._signal.threshold)
        if self.settings.cooldown > 0:
            self._warn_once(
                f"`cooldown`={self.settings.cooldown!r} has no effect: the length of training is unknown.", "cooldown"
            )

    def _warn_once(self, message: str, about: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            warnings.warn(message, stacklevel=4)

    def _allocate(self, num_windows: int) -> None:
        self._signal.bind(num_windows, None if self._arrays.group is None else self._arrays.num_groups)
        self.num_windows = num_windows
        self._table = Table(num_windows)
        self._frozen, self._weights = _full_pass.full_pass(self._parts, self._initial_moment())

    def _resize(self, num_windows: int) -> None:
        """More windows than before; what is known of the others stays."""
        if self.num_windows is None:
            self._allocate(num_windows)
        elif self.num_windows < num_windows:
            self._signal.bind(num_windows, None)
            self.num_windows = num_windows
            self._table.grow(num_windows)
            self._frozen, self._weights = _full_pass.full_pass(self._parts, self._frozen.moment)

    def _grown_for(self, ids: Any) -> int:
        """N, which is the largest id so far plus one as long as nothing else says what it is."""
        if self._grows:
            checked = checked_ids("ids", ids, _MOST_UNBOUND)
            needed = max(int(checked.max(initial=-1)) + 1, self.num_windows or 0)
            if needed:
                self._resize(needed)
        return self._bound()

    def _bound(self) -> int:
        if self.num_windows is None:
            raise ValueError(
                "the number of windows must be known first, got none. Call policy.bind(num_windows), give an array of "
                "`groups`, `scarcity` or `priors`, or hand the policy to AdaptiveSampling, which binds it."
            )
        return self.num_windows

    @property
    def _parts(self) -> Parts:
        return Parts(self.settings, self._signal, self._arrays, self._table, self._drift)

    def _moment(self, step: int) -> Moment:
        return self.settings.moment(step, self.total_steps, self._signal.threshold)

    def _initial_moment(self) -> Moment:
        """Of the beginning, which does not depend on a length that may not be known yet."""
        start = self.settings.moment(0, self.total_steps or 10**9, self._signal.threshold)
        return start._replace(ramp=0.0)

    # --- updates ----------------------------------------------------------------------------------------------------

    @property
    def needs(self) -> tuple[str, ...]:
        """What has to be captured of each window, see `Signal`: names of the values that `update` takes."""
        return self._signal.needs

    @property
    def signal_name(self) -> str:
        """Name of the signal."""
        return self._signal.name

    def update(
        self, ids: Any, values: Any, step: int | None = None, *, seconds_per_step: float | None = None
    ) -> WeightUpdate:
        """Take in observations; repeated ids count once, with their mean.

        Args:
            ids: integers `[B]`, window ids.
            values: real `[B]`, what `needs` names; where it names several, a mapping from name to real `[B]`. What is
                not finite is dropped and counted in `dropped`.
            step: optimizer steps done so far; None: one more than at the update before.
            seconds_per_step: how long an optimizer step takes, on average. When first told, the policy decides how far
                apart full passes are at least, so that they stay under half a per cent of the time; that stays so for
                the whole training and is part of the state. None: passes are not made rarer.

        Returns:
            The weights that changed.

        As long as no array, state or `bind` says how many windows there are, there are as many as the largest id seen.

        Raises:
            ValueError: on ids out of range, values the signal cannot take, other lengths, or an unknown number of
                windows or length of training; nothing is changed then.
            TypeError: on ids that are no integers or values that are no real numbers.
        """
        if self.total_steps is None:
            self._require_length()
        if seconds_per_step is not None:
            checked_number("seconds_per_step", seconds_per_step, 1e-9, 1e9, what="a positive number of seconds")
        before = self.num_windows
        num_windows = self._grown_for(ids)
        now = self._clock.step + 1 if step is None else checked_count("step", step, 0)
        observed, captured, dropped = checked_observations(ids, values, self._signal, num_windows)
        groups = observed if self._arrays.group is None else self._arrays.group[observed]
        seen = self._signal.values(Observed(observed, groups, captured))
        means = checked_signal_values(self._signal, seen, len(observed))
        finite = np.isfinite(means)
        if not finite.all():
            dropped += int((~finite).sum())
            observed, means = observed[finite], means[finite]
        self._table.observe(observed, means, self._note_levels(observed, means), self.settings.decay)
        self.dropped += dropped
        self._clock.tick(now, len(observed))
        if seconds_per_step is not None and self._pass_seconds > 0:
            self._clock.decide(self._pass_seconds, float(seconds_per_step))
        if num_windows != before or self._clock.pass_is_due(
            news=len(observed) > 0 and not self._frozen.any_seen,
            interval=self.settings.normalize_every,
            num_windows=num_windows,
            total_steps=self.total_steps,
            turning_points=self._turning_points(self.total_steps),
        ):
            return self._pass(now)
        return self._refresh(observed)

    def _note_levels(self, observed: NDArray[np.int64], values: NDArray[np.float64]) -> float:
        """Add observations to the levels of their groups; the time they were made at."""
        if not self._parts.pooled or len(observed) == 0:
            return 0.0
        low, high = _full_pass.level_bounds(self._frozen, self._parts, values)
        levels = transforms.level_of(values, low, high, signed=self._signal.signed)
        # Draws prefer some windows; one over their weight makes the mean that of all windows of the group.
        weights = self._weights[observed].astype(np.float64)
        groups = np.zeros_like(observed) if self._arrays.group is None else self._arrays.group[observed]
        return self._drift.observe(groups, levels, 1.0 / np.where(weights > 0, weights, 1.0))

    def _pass(self, step: int) -> WeightUpdate:
        start = time.perf_counter()
        self._frozen, self._weights = _full_pass.full_pass(self._parts, self._moment(step))
        if self._frozen.any_seen:
            self._pass_seconds = time.perf_counter() - start
        self._clock.passed()
        self._warn_of_concentration(step)
        return WeightUpdate(None, self._weights.copy())

    def _warn_of_concentration(self, step: int) -> None:
        frozen, bound = self._frozen, self.settings.min_effective_size
        if bound > 0 and frozen.uniform > frozen.moment.uniform:
            self._warn_once(
                f"`min_effective_size`={bound} holds from step {step} on because {frozen.uniform:.0%} uniform draws "
                "are mixed in. Lower `power` or `cap`, or raise `floor`, if weights should do it by themselves.",
                "bound",
            )
        early = step * 10 <= self.total_steps if self.total_steps else self._clock.updates <= _EARLY_UPDATES
        if early and frozen.moment.ramp > 0 and frozen.effective_size < _ALARM:
            self._warn_once(
                f"early concentration: at step {step} the weights are as varied as {frozen.effective_size:.0%} of the "
                "windows. Lower `power` or `cap`, lengthen `warmup`, or set `min_effective_size`.",
                "concentration",
            )

    def _refresh(self, observed: NDArray[np.int64]) -> WeightUpdate:
        weights = _full_pass.evaluate(self._frozen, self._parts, observed)
        changed = weights != self._weights[observed]
        self._weights[observed] = weights
        return WeightUpdate(observed[changed], weights[changed])

    # --- what it knows ----------------------------------------------------------------------------------------------

    @property
    def weights(self) -> NDArray[np.float32]:
        """float32 `[N]`, read-only view: the current weights."""
        self._bound()
        view = self._weights.view()
        view.flags.writeable = False
        return view

    @property
    def scores(self) -> NDArray[np.float32]:
        """float32 `[N]`, a copy: running scores in the signal's units, NaN where a window was never seen."""
        self._bound()
        return np.where(self._table.rows.visits > 0, self._table.rows.score, np.float32(np.nan))

    @property
    def visits(self) -> NDArray[np.int32]:
        """int32 `[N]`, read-only view: updates in which a window was observed."""
        self._bound()
        view = self._table.rows.visits.view()
        view.flags.writeable = False
        return view

    @property
    def variance_gain(self) -> float:
        """How many times smaller what was learned makes the variance of a corrected gradient, as of the last full pass.

        Scores stand for the sizes of gradients; 1: drawing by them gains nothing over uniform draws.
        """
        self._bound()
        return self._frozen.gain

    @property
    def excluded(self) -> NDArray[np.bool_]:
        """bool `[N]`: windows with prior 0, which are never drawn."""
        included = self._arrays.included
        return np.zeros(self._bound(), np.bool_) if included is None else ~included

    @property
    def limits(self) -> tuple[float, float]:
        """Weights at the floor and at the cap, as of the last full pass; 0 and infinite under uniform draws."""
        self._bound()
        frozen = self._frozen
        if frozen.uniform == 1.0:
            return 0.0, math.inf
        low, high = ((1.0 - frozen.uniform) * bound + frozen.uniform for bound in (frozen.floor, frozen.moment.cap))
        return float(np.float32(low)), float(np.float32(high))

    def concentration(self) -> Concentration:
        """How unevenly the weights of the windows not excluded are spread; O(N)."""
        included = self._arrays.included
        _, largest = self.limits
        return concentration(self._weights if included is None else self._weights[included], largest)

    def initial_weights(self) -> NDArray[np.float32]:
        """float32 `[N]`: what is known beforehand, scarcity and priors within floor and cap (λ = 0)."""
        self._bound()
        return _full_pass.full_pass(self._parts, self._initial_moment())[1]

    def importance_weights(
        self, probabilities: Any, target: Any = None, *, step: int | None = None
    ) -> NDArray[np.float64]:
        """Importance weights (t/p)^γ of draws, γ = `importance` at a step; not renormalised.

        Args:
            probabilities: real `[B]`, positive: the probability p with which each was drawn.
            target: t, real `[B]` or a number, see `share_target`; None: uniform over the windows not excluded.
            step: optimizer steps done so far; None: as of the last update.

        Returns:
            float64 `[B]`.

        Raises:
            ValueError: on probabilities outside (0, 1] or targets outside [0, 1], naming the first, on another number
                of targets, or if N is needed and unknown.
        """
        drawn = np.asarray(probabilities, np.float64)
        bad = ~((drawn > 0) & (drawn <= 1))
        if bad.any():
            raise ValueError(
                f"`probabilities` must be in (0, 1], got {float(drawn[bad][0])!r} at position "
                f"{int(np.flatnonzero(bad)[0])}. A window that cannot be drawn has no importance weight."
            )
        if target is None:
            included = self._arrays.num_included
            target = 1.0 / (self._bound() if included is None else included)
        target = np.asarray(target, np.float64)
        if target.ndim and target.shape != drawn.shape:
            raise ValueError(
                f"`target` must be a number or have shape {drawn.shape}, one per draw, got shape {target.shape}."
            )
        wrong = ~((target >= 0) & (target <= 1))
        if wrong.any():
            raise ValueError(
                f"`target` must be in [0, 1], got {float(target[wrong][0])!r}. Give probabilities, see `share_target`."
            )
        now = self._clock.step if step is None else checked_count("step", step, 0)
        return transforms.importance(drawn, target, self.settings.importance.at(now, self.total_steps))

    def explain(self, window_id: int) -> dict[str, Any]:
        """Every factor of one window's weight, in the terms of the last full pass.

        The way up: `score` (after `visits`), `brought_forward` to now, `shrunk` to `group_mean`, times the share that
        is `learnable` makes `reducible`; `clipped` to the bounds `clip`, raised and divided by the mean: `relative`;
        1 + `ramp`·(`relative` − 1) = `learned`, which with `scarcity` and `prior` makes `combined`. Then
        weight = `combined` · `scale` · `limit_factor` · `uniform_factor`. A `limit_factor` other than 1 is the work of
        floor or cap, named by `limit` ("excluded" where the prior is 0); it is infinite where the floor lifts a window
        from 0. `uniform_factor` is the work of the share `uniform` of uniform draws. `probability` is weight/Σ weight.

        Raises:
            ValueError: if the id is out of range.
            TypeError: if it is no integer.
        """
        ids = checked_ids("window_id", [window_id], self._bound())
        weight = float(self._weights[ids[0]])
        return explanation(self._frozen, self._parts, ids) | {
            "weight": weight,
            "probability": weight / float(self._weights.sum(dtype=np.float64)),
        }

    def set_scarcity(self, scarcity: Any) -> None:
        """Another scarcity for all windows; it counts from the next update on, which makes a full pass.

        Args:
            scarcity: real `[N]`, not negative; scaled to mean 1.

        Raises:
            ValueError: on values that are no factors, or another length; nothing is changed then.
            TypeError: if they are no real numbers.
        """
        self._arrays.replace_scarcity(scarcity, self._bound())
        self._clock.pass_step = -1

    def reset(self) -> None:
        """Forget all observations, for another training on the same windows; settings and arrays stay."""
        self._signal.load_state_dict(copy.deepcopy(self._unused_signal))
        self._drift = Drift(self._arrays.num_groups)
        self._clock = _state.Clock()
        self._warned.clear()
        self.dropped = 0
        self.total_steps = None
        self._pass_seconds = 0.0
        if self.num_windows is not None:
            self._allocate(self.num_windows)

    # --- state ------------------------------------------------------------------------------------------------------

    def _fingerprint(self) -> dict[str, Any]:
        signal = {"name": self._signal.name, **self._signal.settings()}
        return {"signal": signal, **self.settings.as_primitives(), **self._arrays.digests}

    def state_dict(self) -> dict[str, Any]:
        """Tensors (copies) and Python primitives: all that the continued run depends on."""
        num_windows = self._bound()
        arrays: dict[str, NDArray[Any]] = {"weights": self._weights, **self._table.rows._asdict()}
        if self._arrays.scarcity is not None and self._arrays.scarcity_replaced:
            arrays["scarcity"] = self._arrays.scarcity
        return {
            "version": _state.VERSION,
            "num_windows": num_windows,
            "total_steps": self.total_steps,
            "dropped": self.dropped,
            "settings": self._fingerprint(),
            "clock": self._clock.as_primitives(),
            "frozen": _state.frozen_to_primitives(self._frozen),
            "drift": self._drift.state_dict(),
            "signal": self._signal.state_dict(),
            **_state.to_tensors(**arrays),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where the state was saved.

        Raises:
            StateMismatchError: if version, N, settings or arrays differ, where the message shows both sides, or if
                something is missing or damaged. Nothing is changed then.
        """
        _state.check(state_dict, self.num_windows, self._fingerprint())
        arrays = _state.from_tensors(state_dict)
        num_windows = int(state_dict["num_windows"])
        signal, drift = copy.deepcopy(self._signal), copy.deepcopy(self._drift)
        with _state.damaged_if_it_fails():
            signal.bind(num_windows, None if self._arrays.group is None else self._arrays.num_groups)
            signal.load_state_dict(state_dict["signal"])
            drift.load_state_dict(state_dict["drift"])
            frozen = _state.frozen_from_primitives(state_dict["frozen"])
            clock = _state.Clock(**state_dict["clock"])
            if "scarcity" in state_dict:
                self._arrays.replace_scarcity(state_dict["scarcity"].to("cpu"), num_windows)
        self.num_windows, self._signal, self._drift = num_windows, signal, drift
        self._table = Table(0)
        self._table.rows = Rows(**{name: arrays[name] for name in COLUMNS})
        self._weights = arrays["weights"]
        self._grows = False
        self._frozen, self._clock = frozen, clock
        self.dropped = int(state_dict["dropped"])
        bound_to, self.total_steps = self.total_steps, state_dict["total_steps"]
        if bound_to is not None:
            self._set_length(bound_to)
