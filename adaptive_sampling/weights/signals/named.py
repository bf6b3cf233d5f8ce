"""The names by which a policy can be asked for a signal."""

from __future__ import annotations

import copy
from typing import Any

from adaptive_sampling.weights.signals.losses import LogLossSignal, LossSignal, UncertaintySignal
from adaptive_sampling.weights.signals.progress import ProgressSignal
from adaptive_sampling.weights.signals.protocol import Signal

_MAKERS: dict[str, type] = {kind.name: kind for kind in (LossSignal, LogLossSignal, UncertaintySignal, ProgressSignal)}
# These cannot be made from a name alone.
_WITH_ARGUMENTS = {
    "combined": "CombinedSignal({name: weight})",
    "curriculum": "CurriculumSignal(difficulty)",
    "excess": "ExcessLossSignal(reference)",
}
_PARTS = (
    "name",
    "needs",
    "signed",
    "known",
    "threshold",
    "bind",
    "values",
    "settings",
    "state_dict",
    "load_state_dict",
)


def resolve_signal(signal: Any) -> Signal:
    """A new signal of this name, or a copy of the one given, so that policies share no memory.

    Raises:
        ValueError: naming the signals there are.
        TypeError: if it is neither a name nor a signal, naming what it lacks.
    """
    if isinstance(signal, str):
        if signal in _WITH_ARGUMENTS:
            raise ValueError(
                f"`signal` must be an instance for {signal!r}, got the name alone. Give {_WITH_ARGUMENTS[signal]}."
            )
        if signal not in _MAKERS:
            raise ValueError(f"`signal` must be one of {sorted(_MAKERS)} or a signal, got {signal!r}.")
        made: Signal = _MAKERS[signal]()
        return made
    if isinstance(signal, type) or not isinstance(signal, Signal):
        missing = [part for part in _PARTS if not hasattr(signal, part)]
        raise TypeError(
            f"`signal` must be a name or a signal, got {signal!r} without {missing or 'being an instance'}. "
            "Subclass adaptive_sampling.weights.BaseSignal."
        )
    copied: Signal = copy.deepcopy(signal)
    return copied
