"""What a policy remembers besides its arrays, and how it is written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adaptive_sampling.errors import StateMismatchError
from adaptive_sampling.weights import _full_pass
from adaptive_sampling.weights._full_pass import Frozen
from adaptive_sampling.weights._settings import Settings, WindowArrays

VERSION = 1
_DTYPES = {"score": torch.float32, "visits": torch.int32, "weights": torch.float32}


@dataclass
class Clock:
    """When the last full pass was, and when the next is due.

    Attributes:
        step: optimizer steps done at the last update.
        updates: updates so far.
        updates_since_pass: updates since the last full pass.
        pass_step: optimizer steps done at the last full pass; −1: there was none.
    """

    step: int = 0
    updates: int = 0
    updates_since_pass: int = 0
    pass_step: int = -1

    def tick(self, step: int) -> None:
        """An update at `step`."""
        self.step = step
        self.updates += 1
        self.updates_since_pass += 1

    def passed(self) -> None:
        """A full pass at the current step."""
        self.updates_since_pass = 0
        self.pass_step = self.step

    def pass_is_due(self, *, news: bool, interval: int, total_steps: int | None, ramp_ends: Sequence[int]) -> bool:
        """Is it time: the first scores, an end of a ramp, 1 % of the training, or `interval` updates."""
        if self.pass_step < 0 or news or self.updates_since_pass >= interval:
            return True
        if any(self.pass_step < end <= self.step for end in ramp_ends):
            return True
        return total_steps is not None and (self.step - self.pass_step) * 100 >= total_steps

    def as_primitives(self) -> dict[str, int]:
        """The attributes."""
        return asdict(self)


def frozen_to_primitives(frozen: Frozen) -> dict[str, Any]:
    """A tensor of group means and numbers."""
    return {**vars(frozen), "group_means": torch.from_numpy(frozen.group_means.copy())}


def frozen_from_primitives(state: Mapping[str, Any]) -> Frozen:
    """The inverse of `frozen_to_primitives`."""
    return Frozen(**{**state, "group_means": state["group_means"].numpy().copy()})


def to_tensors(**arrays: NDArray[Any]) -> dict[str, torch.Tensor]:
    """Copies of `arrays` as tensors."""
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def from_tensors(state: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """The arrays of `to_tensors`, as copies on the CPU.

    Raises:
        StateMismatchError: if they do not hold one entry per window.
    """
    arrays = {name: state[name].to("cpu", dtype).numpy().copy() for name, dtype in _DTYPES.items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    if set(shapes.values()) != {(state["num_windows"],)}:
        raise StateMismatchError(
            f"the saved policy must hold {state['num_windows']} entries per array, got shapes {shapes}. "
            "The checkpoint is damaged: resume from another."
        )
    return arrays


def check(state: Mapping[str, Any], num_windows: int | None, settings: Mapping[str, Any]) -> None:
    """Does `state` fit a policy with this N and these settings?

    Raises:
        StateMismatchError: naming what differs, both values and the cure.
    """
    if state.get("version") != VERSION:
        raise StateMismatchError(
            f"the saved policy has version {state.get('version')!r}, this package reads {VERSION}. "
            "Resume with the package version that saved it."
        )
    if num_windows is not None and num_windows != state["num_windows"]:
        raise StateMismatchError(
            f"the saved policy is for {state['num_windows']} windows, this one for {num_windows}. "
            "Resume with the dataset and window settings of the checkpoint, or start a new training."
        )
    saved = state["settings"]
    for name in [*settings, *(name for name in saved if name not in settings)]:
        there, here = saved.get(name), settings.get(name)
        if there != here:
            raise StateMismatchError(
                f"`{name}` of the saved policy is {there!r}, here it is {here!r}. "
                f"Resume with WeightPolicy({name}=…) as saved, or start a new training."
            )


def explanation(
    frozen: Frozen,
    settings: Settings,
    arrays: WindowArrays,
    ids: NDArray[np.int64],
    score: NDArray[np.float32],
    visits: NDArray[np.int32],
) -> dict[str, Any]:
    """The factors of the weight of window `ids[0]`; see `WeightPolicy.explain`."""
    at = ids[0]
    group, scarcity, prior = (x[0] if isinstance(x, np.ndarray) else x for x in arrays.of(ids))
    shrunk = _full_pass.shrunk_scores(frozen, settings, score[ids], visits[ids], np.array([group]))
    learned = _full_pass.ramped(frozen, _full_pass.powered(frozen, settings, shrunk))
    combined = _full_pass.combined(settings, learned, scarcity, prior)
    weight = float(_full_pass.limited(frozen, settings, combined, prior)[0])
    free = float(combined[0]) / frozen.scale
    limit = None
    if prior == 0:
        limit = "excluded"
    elif weight != free:
        limit = "floor" if weight > free else "cap"
    return {
        "window_id": int(at),
        "score": float(score[at]) if visits[at] else float("nan"),
        "visits": int(visits[at]),
        "group_mean": float(frozen.group_means[int(group)]) if frozen.any_seen else float("nan"),
        "shrunk": float(shrunk[0]) if frozen.any_seen else float("nan"),
        "clipped": float(np.clip(shrunk[0], frozen.low, frozen.high)) if frozen.any_seen else float("nan"),
        "ramp": frozen.ramp,
        "learned": float(learned[0]),
        "scarcity": float(scarcity),
        "prior": float(prior),
        "combined": float(combined[0]),
        "scale": 1.0 / frozen.scale,
        "limit": limit,
        "limit_factor": 1.0 if limit in (None, "excluded") else (weight / free if free > 0 else float("inf")),
    }
