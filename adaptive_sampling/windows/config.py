"""Settings of windows, all checked when they are made."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np

_LONGEST = 1 << 40  # positions stay far inside int64 whatever is added up


@dataclass(frozen=True)
class WindowConfig:
    """How a token store is cut into windows.

    A window at start s of a stream t reads t[s : s + seq_len + 1]; the inputs are the first seq_len of these tokens,
    the labels the last.

    Args:
        seq_len: Number of inputs of a window, in tokens.
        stride: Distance of neighbouring starts, in tokens; default: seq_len.
        tail: "drop" leaves out what is behind the last full window of a stream; "cover" adds a full window that ends
            with the stream; "pad" adds a shorter one, filled up with EOS as input and -100 as label.
        random_offset: Shift the starts of each stream, in each epoch anew, by a random offset in [0, stride). Number
            and ids of windows stay, each within a stride of its place.
        min_length: Documents with fewer tokens (EOS included) are left out.
        pack: "none": each document is a stream of its own. "concat": one stream per source, its documents one after
            the other as in the store.
        group_by: Only None so far.
        align: Only "none" so far.
        thinning: Share of windows to keep, in (0, 1]; by hash(seed, document, start): the same on every machine, and
            those of a smaller share are among those of a larger.
        mask_repeated_targets: Set labels to -100 that the window before it in the stream has as targets already; one
            target at least is left.
        seed: Seed of offsets and thinning.

    Raises:
        ValueError: for a value out of range or an unknown choice.
        TypeError: for a value of another type.
    """

    seq_len: int
    stride: int | None = None
    _: KW_ONLY
    tail: Literal["drop", "cover", "pad"] = "drop"
    random_offset: bool = False
    min_length: int = 0
    pack: Literal["none", "concat"] = "none"
    group_by: None = None
    align: Literal["none"] = "none"
    thinning: float = 1.0
    mask_repeated_targets: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        self._set_integer("seq_len", 1, _LONGEST, "Give the context length of the model.")
        if self.stride is not None:
            self._set_integer("stride", 1, _LONGEST, "Leave it out for windows side by side.")
        self._set_integer("min_length", 0, _LONGEST, "0 keeps every document.")
        self._set_integer("seed", -(2**63), 2**63 - 1, "Try 0.")
        self._check_choice("tail", ("drop", "cover", "pad"))
        self._check_choice("pack", ("none", "concat"))
        self._check_choice("align", ("none",))
        self._check_choice("group_by", (None,))
        for name in ("random_offset", "mask_repeated_targets"):
            value = getattr(self, name)
            if not isinstance(value, (bool, np.bool_)):
                raise TypeError(f"`{name}` must be True or False, got {value!r}. Give a bool.")
            object.__setattr__(self, name, bool(value))
        rate: Any = self.thinning
        if isinstance(rate, (bool, np.bool_)) or not isinstance(rate, (int, float, np.integer, np.floating)):
            raise TypeError(f"`thinning` must be a number above 0 and at most 1, got {rate!r}. 1.0 keeps every window.")
        if not (math.isfinite(rate) and 0 < rate <= 1):
            raise ValueError(f"`thinning` must be above 0 and at most 1, got {rate!r}. 1.0 keeps every window.")
        object.__setattr__(self, "thinning", float(rate))

    @property
    def step(self) -> int:
        """The stride in force: `stride`, or `seq_len` where that is None."""
        return self.seq_len if self.stride is None else self.stride

    def _set_integer(self, name: str, low: int, high: int, cure: str) -> None:
        value = getattr(self, name)
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"`{name}` must be an integer of at least {low}, got {value!r}. {cure}")
        if not low <= value <= high:
            limit = f"at least {low}" if value < low else f"at most {high}"
            raise ValueError(f"`{name}` must be {limit}, got {value!r}. {cure}")
        object.__setattr__(self, name, int(value))

    def _check_choice(self, name: str, accepted: tuple[str | None, ...]) -> None:
        value = getattr(self, name)
        if value not in accepted:
            listed = " or ".join(repr(choice) for choice in accepted)
            raise ValueError(f"`{name}` must be {listed}, got {value!r}. Nothing else is accepted in this version.")
