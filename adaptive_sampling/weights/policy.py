"""`WeightPolicy`: what the windows' losses say, as one weight per window."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._arrays import checked_ids
from adaptive_sampling.weights import _full_pass, _state, transforms
from adaptive_sampling.weights._checks import checked_count, checked_values
from adaptive_sampling.weights._full_pass import Frozen
from adaptive_sampling.weights._settings import Settings, WindowArrays
from adaptive_sampling.weights.scarcity import ScarcityMeasure
from adaptive_sampling.weights.signals import observations, resolve_signal

_MOST_UNBOUND = 10**8
"""An id beyond this is taken for an error, as long as nobody said how many windows there are."""


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
    """Turns observations (window ids and their losses) into weights, mean 1.

    1. Running mean: score ← (1−a)·score + a·value, a = max(1−decay, 1/(visits+1)); in the signal's own units.
    2. Shrinkage: ŝ = (visits·score + κ·group mean)/(visits + κ), the mean being over the seen windows of the group; an
       unseen window takes its group's mean, an unseen group that of all seen windows.
    3. Clip ŝ to quantiles of the seen windows, raise to `power`, divide by the mean: s.
    4. Scarcity q and prior r: v = s·q·r ("density"), or v = ((1−β)·s + β·q)·r ("distance").
    5. w = clip(v/m, floor, cap), m such that the mean weight is 1.
    6. What was learned is ramped: s ← 1 + λ·(s − 1) before step 4, λ rising over `warmup` and falling over `cooldown`.

    Each update takes the observed windows through all steps; quantiles, means, λ and m hold from one full pass over all
    windows to the next. A pass comes with the first scores, at the ends of ramps, after every 1 % of the training where
    its length is known, and after `normalize_every` updates.

    Args:
        signal: what is observed; "loss": mean per target token, in nats, not negative.
        decay: share of the old score kept at each visit once a window has 1/(1−decay) of them; in [0, 1).
        power: exponent, in [0, 4]; above 1 sharpens.
        clip: (lower, upper) quantiles.
        shrinkage: κ, the number of visits that a group's mean is worth.
        groups: integers `[N]`: sources, documents or clusters; None: all windows are one group.
        scarcity: real `[N]`, not negative, see `scarcity_scores`; scaled to mean 1. None: 1 everywhere.
        blend: β; counts for `scarcity_measure="distance"`.
        priors: real `[N]`, fixed multipliers, not negative; scaled to mean 1. 0 excludes a window for good.
        floor: smallest weight, as a share of the mean; in [0, 1].
        cap: largest weight, as a multiple of the mean; at least 1.
        warmup: fraction of training (float) or number of steps (int) over which λ rises from 0 to 1.
        cooldown: likewise, over which λ falls back to 0 at the end.
        normalize_every: updates between two full passes, at most.
        importance: γ of `importance_weights`; 0: no correction.
        scarcity_measure: how `scarcity` enters: "density" multiplies, "distance" blends.

    Raises:
        ValueError: on a setting out of its range, or arrays with values that are no factors or of different lengths.
        TypeError: on arrays of a wrong type.

    State:
        Score, visits and weight per window, and the terms of the last full pass. Restored, it continues bit for bit.

    Cost:
        An update: O(observations), whatever N. A full pass: O(N). Memory: 12 bytes per window, beside the arrays given.

    Example:
        >>> policy = WeightPolicy(warmup=0, cooldown=0, shrinkage=0, clip=(0, 1))
        >>> policy.bind(4)
        >>> policy.update([0, 1, 2, 3], [3.0, 1.0, 2.0, 2.0]).values.tolist()
        [1.5, 0.5, 1.0, 1.0]
    """

    def __init__(
        self,
        signal: str = "loss",
        *,
        decay: float = 0.9,
        power: float = 1.0,
        clip: tuple[float, float] = (0.05, 0.9),
        shrinkage: float = 2.0,
        groups: Any = None,
        scarcity: Any = None,
        blend: float = 0.3,
        priors: Any = None,
        floor: float = 0.1,
        cap: float = 4.0,
        warmup: float | int = 0.05,
        cooldown: float | int = 0.1,
        normalize_every: int = 20,
        importance: float = 0.0,
        scarcity_measure: ScarcityMeasure = "density",
    ) -> None:
        self.settings = Settings(
            signal=signal,
            decay=decay,
            power=power,
            clip=clip,
            shrinkage=shrinkage,
            blend=blend,
            floor=floor,
            cap=cap,
            warmup=warmup,
            cooldown=cooldown,
            normalize_every=normalize_every,
            importance=importance,
            scarcity_measure=scarcity_measure,
        )
        self._signal = resolve_signal(signal)
        self._arrays = WindowArrays(groups, scarcity, priors)
        self.num_windows: int | None = None
        self.total_steps: int | None = None
        self.dropped = 0
        self._grows = self._arrays.length is None
        self._warned_cooldown = False
        self._clock = _state.Clock()
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
                ramp is a fraction of it.
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
            raise ValueError(
                f"`num_windows` must be {self.num_windows}, as in this policy's arrays or scores, got {count}. "
                "Make a new WeightPolicy for another dataset, with arrays of its length."
            )
        if total_steps is not ...:
            self._set_length(total_steps)

    def _set_length(self, total_steps: int | None) -> None:
        old, new = self.total_steps, None if total_steps is None else int(total_steps)
        self.total_steps = new
        ramps_move = self.settings.ramp_steps(old) != self.settings.ramp_steps(new) or self.settings.cooldown > 0
        if old is not None and old != new and self._clock.updates and ramps_move:
            warnings.warn(
                f"the training's length changed from {old} to {new} steps: `warmup` and `cooldown` follow the new one.",
                stacklevel=3,
            )

    def _require_length(self) -> None:
        """Without a length, a fraction of it means nothing, and a cool-down does not know when to start."""
        self.settings.check_length_unneeded()
        if self.settings.cooldown > 0 and not self._warned_cooldown:
            self._warned_cooldown = True
            warnings.warn(
                f"`cooldown`={self.settings.cooldown!r} has no effect: the length of training is unknown.", stacklevel=4
            )

    def _allocate(self, num_windows: int) -> None:
        self.num_windows = num_windows
        self._score = np.zeros(num_windows, dtype=np.float32)
        self._visits = np.zeros(num_windows, dtype=np.int32)
        self._frozen, self._weights = self._pass(0.0)

    def _resize(self, num_windows: int) -> None:
        """More windows than before; what is known of the others stays."""
        known = self.num_windows or 0
        if known == num_windows:
            return
        score, visits = (self._score, self._visits) if known else (np.empty(0, np.float32), np.empty(0, np.int32))
        self._score = np.concatenate([score, np.zeros(num_windows - known, np.float32)])
        self._visits = np.concatenate([visits, np.zeros(num_windows - known, np.int32)])
        self.num_windows = num_windows
        self._frozen, self._weights = self._pass(self._frozen.ramp if known else 0.0)

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

    # --- updates ----------------------------------------------------------------------------------------------------

    def update(self, ids: Any, values: Any, step: int | None = None) -> WeightUpdate:
        """Take in observations; repeated ids count once, with their mean.

        Args:
            ids: integers `[B]`, window ids.
            values: real `[B]`, the signal's values. What is not finite is dropped and counted in `dropped`.
            step: optimizer steps done so far; None: one more than at the update before.

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
        before = self.num_windows
        num_windows = self._grown_for(ids)
        now = self._clock.step + 1 if step is None else checked_count("step", step, 0)
        checked = checked_ids("ids", ids, num_windows)
        observed, means, dropped = observations(self._signal, checked, checked_values("values", values, len(checked)))
        visits = self._visits[observed]
        self._score[observed] = transforms.ema_step(self._score[observed], visits, means, self.settings.decay)
        self._visits[observed] = visits + 1
        self.dropped += dropped
        self._clock.tick(now)
        warmup, cooldown = self.settings.ramp_steps(self.total_steps)
        if num_windows != before or self._clock.pass_is_due(
            news=len(observed) > 0 and not self._frozen.any_seen,
            interval=self.settings.normalize_every,
            total_steps=self.total_steps,
            ramp_ends=[warmup] if self.total_steps is None else [warmup, self.total_steps - cooldown, self.total_steps],
        ):
            self._frozen, self._weights = self._pass(transforms.ramp(now, warmup, cooldown, self.total_steps))
            self._clock.passed()
            return WeightUpdate(None, self._weights.copy())
        return self._refresh(observed)

    def _refresh(self, observed: NDArray[np.int64]) -> WeightUpdate:
        weights = _full_pass.evaluate(
            self._frozen, self.settings, self._arrays, observed, self._score[observed], self._visits[observed]
        )
        changed = weights != self._weights[observed]
        self._weights[observed] = weights
        return WeightUpdate(observed[changed], weights[changed])

    def _pass(self, ramp: float) -> tuple[Frozen, NDArray[np.float32]]:
        return _full_pass.full_pass(self.settings, self._arrays, self._score, self._visits, ramp)

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
        return np.where(self._visits > 0, self._score, np.float32(np.nan))

    @property
    def visits(self) -> NDArray[np.int32]:
        """int32 `[N]`, read-only view: updates in which a window was observed."""
        self._bound()
        view = self._visits.view()
        view.flags.writeable = False
        return view

    def initial_weights(self) -> NDArray[np.float32]:
        """float32 `[N]`: what is known beforehand, scarcity and priors within floor and cap (λ = 0)."""
        self._bound()
        return self._pass(0.0)[1]

    def importance_weights(self, probabilities: Any, target: Any = None) -> NDArray[np.float64]:
        """Importance weights (t/p)^γ of draws, γ = `importance`; not renormalised.

        Args:
            probabilities: real `[B]`, positive: the probability p with which each was drawn.
            target: t, real `[B]` or a number; None: uniform over the windows not excluded.

        Returns:
            float64 `[B]`.

        Raises:
            ValueError: on probabilities outside (0, 1], naming the first, or if N is needed and unknown.
        """
        drawn = np.asarray(probabilities, np.float64)
        bad = ~((drawn > 0) & (drawn <= 1))
        if bad.any():
            raise ValueError(
                f"`probabilities` must be in (0, 1], got {float(drawn[bad][0])!r} at position "
                f"{int(np.flatnonzero(bad)[0])}. A window that cannot be drawn has no importance weight."
            )
        if target is None:
            included = self._arrays.included
            target = 1.0 / (self._bound() if included is None else int(included.sum()))
        return transforms.importance(drawn, target, self.settings.importance)

    def explain(self, window_id: int) -> dict[str, Any]:
        """Every factor of one window's weight.

        `learned` (s after the ramp), `scarcity` and `prior` make `combined`; then
        weight = `combined` · `scale` · `limit_factor`. A `limit_factor` other than 1 is the work of floor or cap, named
        by `limit` ("excluded" where the prior is 0); it is infinite where the floor lifts a window from 0.

        Raises:
            ValueError: if the id is out of range.
            TypeError: if it is no integer.
        """
        ids = checked_ids("window_id", [window_id], self._bound())
        return _state.explanation(self._frozen, self.settings, self._arrays, ids, self._score, self._visits) | {
            "weight": float(self._weights[ids[0]]),
            "probability": float(self._weights[ids[0]]) / float(self._weights.sum(dtype=np.float64)),
        }

    # --- state ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Tensors (copies) and Python primitives: all that the continued run depends on."""
        num_windows = self._bound()
        return {
            "version": _state.VERSION,
            "num_windows": num_windows,
            "total_steps": self.total_steps,
            "dropped": self.dropped,
            "settings": self.settings.as_primitives() | self._arrays.digests,
            "clock": self._clock.as_primitives(),
            "frozen": _state.frozen_to_primitives(self._frozen),
            **_state.to_tensors(score=self._score, visits=self._visits, weights=self._weights),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where the state was saved.

        Raises:
            StateMismatchError: if version, N, settings or arrays differ; the message shows both sides. Nothing is
                changed then.
        """
        _state.check(state_dict, self.num_windows, self.settings.as_primitives() | self._arrays.digests)
        arrays = _state.from_tensors(state_dict)
        self.num_windows = int(state_dict["num_windows"])
        self._score, self._visits, self._weights = arrays["score"], arrays["visits"], arrays["weights"]
        self._grows = False
        self._frozen = _state.frozen_from_primitives(state_dict["frozen"])
        self._clock = _state.Clock(**state_dict["clock"])
        self.dropped = int(state_dict["dropped"])
        bound_to, self.total_steps = self.total_steps, state_dict["total_steps"]
        if bound_to is not None:
            self._set_length(bound_to)
