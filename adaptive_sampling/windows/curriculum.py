"""Windows that get longer as training goes on, with their weights carried from stage to stage."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.windows.config import WindowConfig
from adaptive_sampling.windows.dataset import WindowDataset
from adaptive_sampling.windows.transfer import transfer_weights

_NAMES = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "block_size",
    "context_length",
)


_REAL = (int, float, np.integer, np.floating)
_TABLE = re.compile(r"(^|[._])(wpe|positions?|pos(ition)?(al)?_emb\w*)$")


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of training with windows of one length.

    Attributes:
        number: From 0.
        begin: Fraction of training at which it begins.
        end: Fraction at which it ends.
        dataset: Its windows.
    """

    number: int
    begin: float
    end: float
    dataset: WindowDataset

    def max_steps(self, total_steps: int) -> int:
        """Optimizer step at which the stage ends, of `total_steps` in all."""
        return round(self.end * total_steps)


class ContextCurriculum:
    """Stages of training with windows of their own length and stride, over one store.

    Args:
        store: What to read from.
        config: Settings that all stages share; its seq_len and stride are replaced.
        stages: (fraction of training, seq_len, stride) each; the fractions sum to 1, stride None is seq_len.
        model: Refuse a seq_len beyond its positions, where these can be seen; see `max_positions`.

    Raises:
        ValueError: for fractions that do not sum to 1, or a seq_len that is too long for `model`.
        TypeError: for arguments of another type.

    Example:
        ``ContextCurriculum(store, WindowConfig(256), [(0.8, 256, None), (0.2, 1024, None)], model=module)``
    """

    def __init__(
        self,
        store: TokenStore,
        config: WindowConfig,
        stages: Sequence[tuple[float, int, int | None]],
        *,
        model: Any = None,
    ) -> None:
        if not isinstance(config, WindowConfig):
            raise TypeError(f"`config` must be a WindowConfig, got {config!r}. Use WindowConfig(seq_len).")
        if (
            not isinstance(stages, (tuple, list))
            or not stages
            or any(not isinstance(stage, (tuple, list)) or len(stage) != 3 for stage in stages)
        ):
            raise ValueError(f"`stages` must be (fraction, seq_len, stride) each, got {stages!r}. Give at least one.")
        fractions: list[Any] = [fraction for fraction, _, _ in stages]
        for fraction in fractions:
            if isinstance(fraction, bool) or not isinstance(fraction, _REAL) or not 0 < fraction <= 1:
                raise ValueError(f"`stages` must have fractions above 0 and at most 1, got {fraction!r}.")
        if abs(sum(fractions) - 1) > 1e-9:
            raise ValueError(f"`stages` must have fractions that sum to 1, got {sum(fractions)!r} from {fractions}.")
        configs = [dataclasses.replace(config, seq_len=seq_len, stride=stride) for _, seq_len, stride in stages]
        if model is not None:
            for own in configs:
                check_positions(own.seq_len, model)
        ends = [*np.cumsum(fractions)[:-1].tolist(), 1.0]
        self.stages = tuple(
            Stage(number, begin, end, WindowDataset(store, own))
            for number, (begin, end, own) in enumerate(zip([0.0, *ends], ends, configs, strict=False))
        )

    def __len__(self) -> int:
        return len(self.stages)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def at(self, fraction: float) -> Stage:
        """The stage that is on when `fraction` of training is done; a new one begins exactly at its fraction.

        Raises:
            ValueError: if `fraction` is not in [0, 1].
        """
        if not isinstance(fraction, _REAL) or not 0 <= fraction <= 1:
            raise ValueError(f"`fraction` must be from 0 to 1, got {fraction!r}. Divide the step by all steps.")
        return next((stage for stage in self.stages if fraction < stage.end), self.stages[-1])

    def carry(self, stage: Stage, weights: Any) -> NDArray[np.float64]:
        """Weights of the windows of `stage` moved to those of the next, see `transfer_weights`.

        Raises:
            ValueError: if it is the last, or for wrong weights.
        """
        if stage.number + 1 >= len(self.stages):
            raise ValueError(f"`stage` must have one behind it, got stage {stage.number} of {len(self.stages)}.")
        return transfer_weights(stage.dataset, self.stages[stage.number + 1].dataset, weights)


def max_positions(model: Any) -> int | None:
    """How many positions a model takes, as far as that can be seen; None where it cannot.

    Looked for are max_position_embeddings, n_positions, max_sequence_length, max_seq_len, block_size and
    context_length in `model`, `model.config`, `model.hparams` and the same of `model.model`, and tables of learned
    positions: embeddings named wpe, positions, position_embeddings or the like.
    """
    inner = getattr(model, "model", None)
    places = [holder for one in (model, inner) if one is not None for holder in (one, *_settings(one))]
    found = [_value(place, name) for place in places for name in _NAMES]
    numbers = [
        int(value)
        for value in found
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value > 0
    ]
    if isinstance(model, torch.nn.Module):
        for name, part in model.named_modules():
            if isinstance(part, torch.nn.Embedding) and _TABLE.search(name):
                numbers.append(part.num_embeddings)
    return min(numbers, default=None)


def check_positions(seq_len: int, model: Any) -> None:
    """Refuse windows longer than what `model` takes, where that can be seen.

    Raises:
        ValueError: if `seq_len` is larger than `max_positions(model)`.
    """
    most = max_positions(model)
    if most is not None and seq_len > most:
        raise ValueError(
            f"`seq_len` must be at most {most}, the positions of {type(model).__name__}, got {seq_len}. "
            "Use shorter windows, or give the model more positions."
        )


def _settings(holder: Any) -> list[Any]:
    return [value for name in ("config", "hparams") if (value := getattr(holder, name, None)) is not None]


def _value(place: Any, name: str) -> Any:
    if isinstance(place, dict):
        return place.get(name)
    try:
        return getattr(place, name, None)
    except (AttributeError, RuntimeError):
        return None
