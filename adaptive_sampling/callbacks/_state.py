"""Losses not yet used, as a checkpoint holds them: one part per rank, tensors and Python primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from adaptive_sampling._state_files import BESIDE
from adaptive_sampling.callbacks._window_values import Values
from adaptive_sampling.errors import StateMismatchError

VERSION = 2
Observed = list[tuple[Tensor, Values]]


def check(state: dict[str, Any]) -> None:
    """Refuse the state of another version, or one without its tables.

    Raises:
        StateMismatchError: with both versions, or the name of the file.
    """
    if state.get("version") != VERSION:
        raise StateMismatchError(
            f"the saved state has version {state.get('version')!r}, this package reads {VERSION}. "
            "Resume with the package version that saved it."
        )
    if BESIDE in state:
        raise StateMismatchError(
            f"the saved state has its tables in `{state[BESIDE]['file']}`, got none. "
            "Let Trainer.fit(ckpt_path=…) read both."
        )


def own_part(observed: Observed) -> list[dict[str, Any]]:
    """What this rank has noted, as the only part."""
    if not observed:
        return [{"ids": torch.empty(0, dtype=torch.int64), "values": {}}]
    names = observed[0][1]
    return [
        {
            "ids": torch.cat([ids for ids, _ in observed]).long().cpu(),
            "values": {name: torch.cat([values[name] for _, values in observed]).cpu() for name in names},
        }
    ]


def parts_of_ranks(gathered: Sequence[tuple[Tensor, Tensor]], needs: Sequence[str]) -> list[dict[str, Any]]:
    """What all ranks have noted, a part each."""
    return [
        {"ids": ids, "values": {need: values[:, column].clone() for column, need in enumerate(needs)}}
        for ids, values in gathered
    ]


def observations(parts: Sequence[dict[str, Any]], rank: int, world_size: int) -> Observed:
    """This rank's share of saved parts: its own; where there were other ranks, rank 0 takes all."""
    if len(parts) == world_size:
        mine = [parts[rank]]
    else:
        mine = list(parts) if rank == 0 else []
    return [(part["ids"], dict(part["values"])) for part in mine if len(part["ids"])]
