"""Settings that all runs of a comparison share, checked before anything is computed.

`run_ab` and `load_config` call the same check, so that a file that passes `--print-commands` can be run.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import lightning.pytorch as pl

from adaptive_sampling.ab._schema import did_you_mean
from adaptive_sampling.ab.arms import Arm, check_arms

Backend = Literal["processes", "ray"]

_OWNED_BY_RUNNER = {
    "max_steps", "max_epochs", "logger", "callbacks", "enable_checkpointing", "enable_progress_bar",
    "enable_model_summary", "num_sanity_val_steps", "limit_val_batches",
}  # fmt: skip


def check_settings(
    arms: Sequence[Arm],
    *,
    max_steps: Any,
    seeds: Sequence[Any] = (0, 1, 2),
    eval_every: Any = None,
    checkpoint_every: Any = None,
    jobs: Any = 1,
    backend: Any = "processes",
    title: Any = "",
    trainer_settings: Mapping[str, Any] | None = None,
    trainer_key: str = "trainer_settings",
) -> None:
    """Refuse settings that cannot be run or compared; all are those of `run_ab`.

    Args:
        trainer_key: how messages call `trainer_settings`.

    Raises:
        ValueError: naming the setting, its value and the cure.
    """
    check_arms(arms)
    check_seeds(seeds)
    for name, value in (
        ("max_steps", max_steps),
        ("jobs", jobs),
        ("eval_every", 1 if eval_every is None else eval_every),
        ("checkpoint_every", 1 if checkpoint_every is None else checkpoint_every),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must be a positive integer, got {value!r}.{_as_integer(value)}")
    if eval_every is not None and eval_every > max_steps:
        raise ValueError(
            f"`eval_every` must be at most `max_steps`, {max_steps}, got {eval_every}. "
            "Leave it out for ten evaluations."
        )
    if backend not in get_args(Backend):
        raise ValueError(f"`backend` must be one of {get_args(Backend)}, got {backend!r}.")
    if not isinstance(title, str):
        raise ValueError(f"`title` must be text, got {title!r}. Put quotes around it.")
    given = set(trainer_settings or {})
    if owned := sorted(_OWNED_BY_RUNNER & given):
        raise ValueError(f"`{trainer_key}` must leave {owned[0]!r} to run_ab, got {owned!r}. Take them out.")
    known = set(inspect.signature(pl.Trainer.__init__).parameters) - {"self"}
    if unknown := sorted(given - known):
        cure = did_you_mean(unknown[0], known, "See the documentation of lightning.Trainer for its arguments.")
        raise ValueError(f"`{trainer_key}` must hold arguments of lightning.Trainer, got {unknown[0]!r}. {cure}")


def check_seeds(given: Sequence[Any]) -> tuple[int, ...]:
    """The seeds as integers.

    Raises:
        ValueError: if there are none, one comes twice, or one is no integer in [0, 2³²).
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(f"`seeds` must hold different integers of 0 or more, got {given!r}. Write (0, 1, 2).")
    seeds = tuple(given)
    if not seeds or any(not _is_seed(seed) for seed in seeds) or len(set(seeds)) < len(seeds):
        raise ValueError(f"`seeds` must hold different integers of 0 or more, got {seeds!r}. Write (0, 1, 2).")
    return tuple(int(seed) for seed in seeds)


def _is_seed(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32


def _as_integer(value: Any) -> str:
    """What to write instead of a whole number in other form; YAML reads 1e2 as text."""
    try:
        number = int(float(value)) if float(value).is_integer() else 0
    except (TypeError, ValueError, OverflowError):
        return ""
    return f" Write {number}." if number > 0 and not isinstance(value, bool) else ""
