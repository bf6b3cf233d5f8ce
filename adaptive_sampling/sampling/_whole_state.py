"""Is a saved state whole? Asked before anything of a sampler is changed, so that a damaged one leaves it as it was."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from adaptive_sampling.errors import StateMismatchError

_LARGEST = float(np.finfo(np.float32).max)
_NUMBERS: dict[str, Callable[[float], bool]] = {
    "an integer": lambda value: isinstance(value, int),
    "an integer of at least 0": lambda value: isinstance(value, int) and value >= 0,
    "an integer of at least 1": lambda value: isinstance(value, int) and value >= 1,
    "a finite number": math.isfinite,
}
_OF_WINDOWS = ("weights", "balance", "tickets")
_PLACE = {"epoch": "an integer of at least 0", "block": "an integer of at least 0", "drawn": "an integer of at least 0"}
_TICKETS_PLACE = {
    **_PLACE,
    "since": "an integer",
    "whole_shift": "an integer",
    **dict.fromkeys(("claimed", "elapsed", "threshold", "total_weight", "largest_total"), "a finite number"),
}
_MIXTURE_PLACE = {**_PLACE, "plan_start": "an integer of at least 0"}
_SAMPLER = {"lag": "an integer", "epoch": "an integer of at least 0", "epoch_start": "an integer of at least 0"}
_STREAM = {
    "block_size": "an integer of at least 1",
    "seed": "an integer of at least 0",
    "last_block_start": "an integer",
    "together_from": "an integer",
    "together": "an integer",
    **dict.fromkeys(("position", "begun", "carried_out_before"), "an integer of at least 0"),
}


def check_sampler_state(state: Any) -> None:
    """Refuse what is no whole state around a stream's own.

    Raises:
        StateMismatchError: naming the entry, its value and the cure.
    """
    if not isinstance(state, Mapping):
        raise _damaged("the state", "a mapping", state)
    if "stream" not in state:
        raise StateMismatchError(
            f"the saved state has keys {sorted(map(str, state))}, an AdaptiveSampler state has 'stream'. "
            "Load what `AdaptiveSampler.state_dict()` returned."
        )
    _check_numbers(state, _SAMPLER)
    if not isinstance(state.get("finished"), bool):
        raise _damaged("finished", "a bool", state.get("finished"))
    if not isinstance(state.get("windows", 0), str | None):
        raise _damaged("windows", "a description of the windows or None", state.get("windows"))
    if not isinstance(state["stream"], Mapping):
        raise _damaged("stream", "a mapping", state["stream"])


def check_stream_state(state: Mapping[str, Any], num_windows: int, source_windows: Sequence[int] | None) -> None:
    """Refuse a stream's state that lacks something, or holds numbers that no stream does.

    Args:
        state: as `DrawStream.state_dict` gave it, for a stream of this kind, its tensors as arrays.
        num_windows: N.
        source_windows: windows per source; None: without shares.

    Raises:
        StateMismatchError: naming the entry, its value and the cure.
    """
    _check_numbers(state, _STREAM)
    for name in ("buffer", "aside"):
        _check_array(state, name, "iu", None, 0, num_windows - 1)
    if state.get("seen") is not None:
        _check_array(state, "seen", "u", -(-num_windows // 8), 0, 255)
    pending = state.get("scheduled")
    if not isinstance(pending, (list, tuple)):
        raise _damaged("scheduled", "a list", pending)
    for change in pending:
        _check_numbers(change, {"position": "an integer of at least 0"})
        length = num_windows
        if change.get("ids") is not None:
            length = len(_check_array(change, "ids", "iu", None, 0, num_windows - 1))
        _check_array(change, "values", "f", length, 0, _LARGEST)
    shares = state.get("shares_now")
    if source_windows is not None and not (
        isinstance(shares, Mapping) and all(isinstance(shares.get(name), list) for name in ("positions", "shares"))
    ):
        raise _damaged("shares_now", "positions and shares", shares)
    if not isinstance(state.get("started"), bool):
        raise _damaged("started", "a bool", state.get("started"))
    engine = state.get("engine")
    if not isinstance(engine, Mapping):
        raise _damaged("engine", "a mapping", engine)
    if not state["started"] or source_windows is None:
        _check_engine(engine, state["started"], state["draws"], num_windows)
        return
    _check_numbers(engine, _MIXTURE_PLACE)
    for name, kinds in (("carry", "f"), ("targets", "f"), ("missing", "f"), ("given", "iu"), ("quota", "iu")):
        _check_array(engine, name, kinds, len(source_windows))
    parts = engine.get("engines")
    if not isinstance(parts, (list, tuple)) or len(parts) != len(source_windows):
        raise _damaged("engines", f"a list of {len(source_windows)}, one per source", parts)
    for part, windows in zip(parts, source_windows, strict=True):
        _check_engine(part, True, state["draws"], windows)


def _check_engine(engine: Any, started: bool, draws: str, num_windows: int) -> None:
    if started:
        _check_numbers(engine, _TICKETS_PLACE if draws == "systematic" else _PLACE)
        if draws == "systematic":
            _check_array(engine, "balance", "f", num_windows)
            _check_array(engine, "tickets", "iu", num_windows, 0)
    _check_array(engine, "weights", "f", num_windows, 0, _LARGEST)


def _check_numbers(state: Any, expected: Mapping[str, str]) -> None:
    if not isinstance(state, Mapping):
        raise _damaged("an entry", "a mapping", state)
    for name, what in expected.items():
        value = state.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _NUMBERS[what](value):
            raise _damaged(name, what, value)


def _check_array(
    state: Mapping[str, Any],
    name: str,
    kinds: str,
    length: int | None,
    least: float = -math.inf,
    most: float = math.inf,
) -> Any:
    array = state.get(name)
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in kinds:
        raise _damaged(name, "a tensor of one dimension" + (" of integers" if "i" in kinds else ""), array)
    if length is not None and len(array) != length:
        raise _damaged(name, f"of length {length}", len(array))
    # A NaN makes every comparison false, and infinities are no limits.
    if len(array) and not (
        array.min() >= least and array.max() <= most and np.isfinite([array.min(), array.max()]).all()
    ):
        wrong = ~(np.isfinite(array) & (array >= least) & (array <= most))
        first = int(wrong.argmax())
        where = f" for window {first}" if name in _OF_WINDOWS else f" at position {first}"
        raise _damaged(name, f"finite and from {least} to {most}", array[first].item(), where)
    return array


def _damaged(name: str, what: str, value: Any, where: str = "") -> StateMismatchError:
    shown = repr(value)
    return StateMismatchError(
        f"the saved sampler state is damaged: `{name}` must be {what}, "
        f"got {shown if len(shown) < 60 else type(value).__name__}{where}. Resume from another checkpoint."
    )
