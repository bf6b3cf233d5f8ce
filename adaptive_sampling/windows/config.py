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
        stride: Distance of neighbouring starts, in tokens; default: seq_len. A larger one leaves gaps, which the audit
            reports.
        tail: "drop" leaves out what is behind the last full window of a stream; "cover" adds a full window that ends
            with the stream; "pad" adds a shorter one, filled up with EOS as input and -100 as label.
        random_offset: Shift the starts of each stream, in each epoch anew, by a random offset in [0, stride). Number
            and ids of windows stay, each within a stride of its place.
        offset: Leave out the first `offset` tokens of each stream; for held-out text cut another way than the
            training text.
        min_length: Documents with fewer tokens (EOS included) are left out.
        pack: "none": each document is a stream of its own. "concat": one stream per source, its documents one after
            the other as in the store. "best_fit": whole documents share windows, best-fit-decreasing with seq_len
            inputs of room; longer ones give full windows first, and what is left of them shares one. Packed within
            sources, in buffers of 65,536 documents; what stays free is padded.
        group_by: Column of the manifest beside the store, such as "folder": with pack="concat" one stream per group
            and source instead of one per source.
        align: Move each start to the nearest start of a "document" or "paragraph" that is within stride/2, but for the
            first start of a stream and the window that a tail adds. "none": leave them.
        thinning: Share of windows to keep, in (0, 1]; by hash(seed, document, start): the same on every machine, and
            those of a smaller share are among those of a larger.
        mask_repeated_targets: Set labels to -100 that the window before it in the stream has as targets already; one
            target at least is left.
        mask_cross_document_targets: Set labels to -100 that are the first token of another document than the input.
        eos_dropout: Share of the EOS between documents that is left out, in [0, 1], in each epoch anew by hash(seed,
            epoch, document). A window starts where it did and reads on a little further. For pack="concat".
        reshuffle_documents: In each epoch another order of the documents of a stream, for pack="concat". Text moves
            between window ids, so this cannot go together with adaptive weights.
        seed: Seed of offsets, thinning, dropout and shuffling.

    Raises:
        ValueError: for a value out of range, an unknown choice, or settings that contradict each other.
        TypeError: for a value of another type.
    """

    seq_len: int
    stride: int | None = None
    _: KW_ONLY
    tail: Literal["drop", "cover", "pad"] = "drop"
    random_offset: bool = False
    offset: int = 0
    min_length: int = 0
    pack: Literal["none", "concat", "best_fit"] = "none"
    group_by: str | None = None
    align: Literal["none", "document", "paragraph"] = "none"
    thinning: float = 1.0
    mask_repeated_targets: bool = False
    mask_cross_document_targets: bool = False
    eos_dropout: float = 0.0
    reshuffle_documents: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        self._set_integer("seq_len", 1, _LONGEST, "Give the context length of the model.")
        if self.stride is not None:
            self._set_integer("stride", 1, _LONGEST, "Leave it out for windows side by side.")
        self._set_integer("offset", 0, _LONGEST, "0 starts with the first token.")
        self._set_integer("min_length", 0, _LONGEST, "0 keeps every document.")
        self._set_integer("seed", -(2**63), 2**63 - 1, "Try 0.")
        self._check_choice("tail", ("drop", "cover", "pad"))
        self._check_choice("pack", ("none", "concat", "best_fit"))
        self._check_choice("align", ("none", "document", "paragraph"))
        if self.group_by is not None and (not isinstance(self.group_by, str) or not self.group_by):
            raise ValueError(
                f"`group_by` must be None or the name of a manifest column, got {self.group_by!r}. Try 'folder'."
            )
        for name in ("random_offset", "mask_repeated_targets", "mask_cross_document_targets", "reshuffle_documents"):
            value = getattr(self, name)
            if not isinstance(value, (bool, np.bool_)):
                raise TypeError(f"`{name}` must be True or False, got {value!r}. Give a bool.")
            object.__setattr__(self, name, bool(value))
        self._set_share("thinning", "1.0 keeps every window.")
        self._set_share("eos_dropout", "0.0 keeps every EOS.", zero_allowed=True)
        self._check_together()

    @property
    def step(self) -> int:
        """The stride in force: `stride`, or `seq_len` where that is None."""
        return self.seq_len if self.stride is None else self.stride

    @property
    def changes_by_epoch(self) -> bool:
        """Whether windows read other tokens from epoch to epoch."""
        return self.random_offset or self.eos_dropout > 0 or self.reshuffle_documents

    def _check_together(self) -> None:
        if self.pack != "concat":
            for name, off in (("group_by", None), ("eos_dropout", 0.0), ("reshuffle_documents", False)):
                if getattr(self, name) != off:
                    raise ValueError(
                        f"`{name}` must be {off!r} unless pack='concat', got {getattr(self, name)!r} with "
                        f"pack={self.pack!r}. Only concatenated documents form streams of several."
                    )
        if self.pack == "best_fit":
            whole = "With pack='best_fit' whole documents decide where windows start."
            if self.step != self.seq_len:
                raise ValueError(f"`stride` must be None or seq_len {self.seq_len}, got {self.stride!r}. {whole}")
            needed: tuple[tuple[str, Any], ...] = (("random_offset", False), ("offset", 0), ("align", "none"))
            for name, off in needed:
                if getattr(self, name) != off:
                    raise ValueError(f"`{name}` must be {off!r}, got {getattr(self, name)!r}. {whole}")
            if self.tail == "cover":
                raise ValueError(f"`tail` must be 'drop' or 'pad', got 'cover'. {whole}")
        if self.random_offset and self.offset:
            raise ValueError(
                f"`offset` must be 0 with random_offset=True, got {self.offset!r}. Use one of the two: "
                "a fixed offset for held-out text, random ones for training."
            )

    def _set_integer(self, name: str, low: int, high: int, cure: str) -> None:
        value = getattr(self, name)
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"`{name}` must be an integer of at least {low}, got {value!r}. {cure}")
        if not low <= value <= high:
            limit = f"at least {low}" if value < low else f"at most {high}"
            raise ValueError(f"`{name}` must be {limit}, got {value!r}. {cure}")
        object.__setattr__(self, name, int(value))

    def _set_share(self, name: str, cure: str, *, zero_allowed: bool = False) -> None:
        value: Any = getattr(self, name)
        span = "at least 0 and at most 1" if zero_allowed else "above 0 and at most 1"
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise TypeError(f"`{name}` must be a number {span}, got {value!r}. {cure}")
        if not (math.isfinite(value) and 0 <= value <= 1) or (value == 0 and not zero_allowed):
            raise ValueError(f"`{name}` must be {span}, got {value!r}. {cure}")
        object.__setattr__(self, name, float(value))

    def _check_choice(self, name: str, accepted: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in accepted:
            listed = " or ".join(repr(choice) for choice in accepted)
            raise ValueError(f"`{name}` must be {listed}, got {value!r}. Nothing else is accepted.")
