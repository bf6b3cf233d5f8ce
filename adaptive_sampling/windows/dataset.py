"""Windows of a token store as a map-style dataset: an id goes in, inputs and labels come out.

id ──(thinning)──▶ number over all windows ──plan──▶ stream and start ──layout──▶ tokens of the store
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.windows._ids import checked_id, checked_ids
from adaptive_sampling.windows.config import WindowConfig
from adaptive_sampling.windows.packing import build_layout
from adaptive_sampling.windows.plan import WindowPlan, window_counts
from adaptive_sampling.windows.thinning import thin

Int64 = NDArray[np.int64]
IGNORED_LABEL = -100  # what torch.nn.functional.cross_entropy ignores by default


class Places(NamedTuple):
    """Where windows are; int64 [B] each.

    Attributes:
        streams: Stream of the layout.
        starts: Start in the stream.
        targets: Tokens that are there to be predicted, seq_len unless the window is padded.
        repeated: How many of the first targets are masked because the window before has them.
    """

    streams: Int64
    starts: Int64
    targets: Int64
    repeated: Int64


_SHORT_CURE = "Use a smaller seq_len, tail='pad', or pack='concat'."


class WindowDataset(Dataset[dict[str, torch.Tensor]]):
    """All windows of `store` under `config`.

    An item holds int64 tensors, all but the id of length seq_len:

    - "input_ids", and "labels": the token behind each input, -100 where there is no target (already shifted);
    - "window_id": the id, a scalar;
    - "document_ids": 0 for the document in which the window starts, 1 for the next, ...;
    - "position_ids": distance from the start of the window or, where that is later, of the document.

    Args:
        store: What to read from.
        config: How to cut it.

    Warns:
        UserWarning: if there is no window at all, or documents are lost because they are shorter than a window.

    Raises:
        TypeError: for arguments of another type.

    State: the epoch alone, which only `random_offset` looks at; it lies in shared memory then, so that running
    workers see it. Pickling carries the store's path, the settings and the epoch.

    Cost: O(documents) memory whatever the number of windows; thinning adds a bit per window. Reading a batch is one
    gather.
    """

    def __init__(self, store: TokenStore, config: WindowConfig) -> None:
        if not isinstance(store, TokenStore):
            raise TypeError(f"`store` must be a TokenStore, got {store!r}. Open one with TokenStore.open(path).")
        if not isinstance(config, WindowConfig):
            raise TypeError(f"`config` must be a WindowConfig, got {config!r}. Use WindowConfig(seq_len).")
        self._build(store, config, torch.zeros((), dtype=torch.int64))
        if config.random_offset:
            self._epoch.share_memory_()  # type: ignore[no-untyped-call]
        self._warn_of_losses()

    def _build(self, store: TokenStore, config: WindowConfig, epoch: torch.Tensor) -> None:
        self.store = store
        self.config = config
        self._epoch = epoch
        self.layout = build_layout(store, config)
        lengths = self.layout.stream_lengths
        self.plan = WindowPlan(
            lengths=lengths,
            keys=self.layout.stream_keys,
            window_ends=np.cumsum(window_counts(lengths, config.seq_len, config.step, config.tail)),
            seq_len=config.seq_len,
            stride=config.step,
            tail=config.tail,
            random_offset=config.random_offset,
            seed=config.seed,
        )
        self._kept = None if config.thinning == 1.0 else thin(self.plan, config.thinning, config.seed)
        self._length = self.plan.num_windows if self._kept is None else len(self._kept)

    def _warn_of_losses(self) -> None:
        longest = int(self.plan.lengths.max(initial=0))
        needed = 2 if self.config.tail == "pad" else self.config.seq_len + 1
        if not self.plan.num_windows:
            what = "stream" if self.config.pack == "concat" else "document"
            warnings.warn(
                f"no window: `seq_len` {self.config.seq_len} needs {needed} tokens, the longest {what} has {longest}. "
                + ("Use a smaller seq_len." if needed == 2 or what == "stream" else _SHORT_CURE),
                stacklevel=3,
            )
        elif not self._length:
            warnings.warn(
                f"no window: `thinning` {self.config.thinning} keeps none of {self.plan.num_windows}. Keep more.",
                stacklevel=3,
            )
        elif self.config.pack == "none" and self.config.tail != "pad":
            short = self.plan.lengths < needed
            lost = int(self.plan.lengths[short].sum())
            if lost:
                warnings.warn(
                    f"{short.sum()} of {len(short)} documents are shorter than a window of {needed} tokens, lost: "
                    f"{lost / int(self.plan.lengths.sum()):.1%} of the tokens. "
                    "Use pack='concat' or tail='pad'; min_length leaves them out without this warning.",
                    stacklevel=3,
                )

    @property
    def seq_len(self) -> int:
        """Number of inputs of a window."""
        return self.config.seq_len

    @property
    def epoch(self) -> int:
        """The epoch whose random offsets are in force."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Make the random offsets those of `epoch`; without `random_offset` nothing changes.

        Raises:
            ValueError: if `epoch` is no integer of at least 0.
        """
        if isinstance(epoch, bool) or not isinstance(epoch, (int, np.integer)) or epoch < 0:
            raise ValueError(f"`epoch` must be an integer of at least 0, got {epoch!r}. Epochs are counted from 0.")
        self._epoch.fill_(int(epoch))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> dict[str, torch.Tensor]:
        batch = self.read(np.array([checked_id(index, self._length)]))
        return {name: torch.from_numpy(values)[0] for name, values in batch.items()}

    def __getitems__(self, indices: Any) -> list[dict[str, torch.Tensor]]:
        """Items of many ids from one `read`; DataLoader calls this for a batch.

        Raises:
            IndexError: for an id out of range.
            TypeError: for ids that are no integers.
        """
        columns = {name: torch.from_numpy(values).unbind(0) for name, values in self.read(indices).items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def read(self, ids: Any) -> dict[str, Int64]:
        """Many windows as batch arrays, gathered at once.

        Args:
            ids: Integer sequence, array or tensor [B]; repeats are fine.

        Returns:
            The keys of an item; "window_id" int64 [B], the others int64 [B, seq_len].

        Raises:
            IndexError: for an id out of range.
            TypeError: for ids that are no integers.
        """
        ids = checked_ids(ids, self._length)
        width = self.config.seq_len
        places = self.places(ids)
        starts = self.layout.stream_starts[places.streams] + places.starts
        columns = np.arange(width)
        pieces = places.streams[:, None]
        if self.layout.one_piece:
            document_ids = np.zeros((len(ids), width), np.int64)
            positions = np.tile(columns, (len(ids), 1))
        else:
            pieces, places_in = self.layout.pieces_along(starts, starts + places.targets, width + 1)
            document_ids = pieces[:, :-1] - pieces[:, :1]
            positions = places_in[:, :-1].copy()
        full = bool((places.targets == width).all())
        tokens = np.asarray(self.store.tokens)
        if full and self.layout.one_slice and len(ids):
            first = starts + self.layout.piece_shifts[pieces[:, 0]]
            block = np.lib.stride_tricks.sliding_window_view(tokens, width + 1)[first]
        else:
            along = starts[:, None] + np.minimum(np.arange(width + 1), places.targets[:, None])
            block = tokens[along + self.layout.piece_shifts[pieces]]
        inputs, labels = block[:, :-1].astype(np.int64), block[:, 1:].astype(np.int64)
        if not full:
            behind = columns >= places.targets[:, None]
            inputs[behind] = self.store.eos_id
            labels[behind] = IGNORED_LABEL
        if self.config.mask_repeated_targets:
            labels[columns < places.repeated[:, None]] = IGNORED_LABEL
        return {
            "input_ids": inputs,
            "labels": labels,
            "window_id": ids,
            "document_ids": document_ids,
            "position_ids": positions,
        }

    def starts(self, ids: Any = None) -> Int64:
        """Position in the store of the first token of each window, in the present epoch.

        Args:
            ids: Window ids [B]; default: all.

        Returns:
            int64 [B].

        Raises:
            IndexError: for an id out of range.
            TypeError: for ids that are no integers.
        """
        reading = self._reading_starts(self._ids(ids))
        return reading + self.layout.piece_shifts[self.layout.pieces(reading)]

    def documents(self, ids: Any = None) -> Int64:
        """Store index of the document in which each window starts, int64 [B]; arguments and errors as `starts`."""
        return self.layout.documents[self.layout.pieces(self._reading_starts(self._ids(ids)))]

    def sources(self, ids: Any = None) -> Int64:
        """Source index of each window, int64 [B]; arguments and errors as `starts`."""
        streams, _ = self._locate(self._ids(ids))
        return self.layout.stream_sources[streams].astype(np.int64)

    def valid_targets(self, ids: Any = None) -> Int64:
        """Number of labels that are no -100 in each window, int64 [B]; arguments and errors as `starts`."""
        places = self.places(self._ids(ids))
        return places.targets - places.repeated

    def trace(self, window_id: int) -> dict[str, int | str]:
        """Where a window is from.

        Args:
            window_id: One id.

        Returns:
            "window_id", "document" (store index of the one in which it starts), "document_key" (its hash), "source"
            (name), "start" and "end" (store positions of its first token and behind its last target),
            "start_in_document".

        Raises:
            IndexError: for an id out of range.
            TypeError: for an id that is no integer.
        """
        ids = np.array([checked_id(window_id, self._length)])
        places = self.places(ids)
        first = self.layout.stream_starts[places.streams] + places.starts
        last = first + places.targets
        start, end = (int((at + self.layout.piece_shifts[self.layout.pieces(at)])[0]) for at in (first, last))
        document = int(self.layout.documents[self.layout.pieces(first)][0])
        return {
            "window_id": int(ids[0]),
            "document": document,
            "document_key": int(self.store.document_keys[document]),
            "source": self.store.source_names[int(self.store.document_sources[document])],
            "start": start,
            "end": end + 1,
            "start_in_document": start - (int(self.store.document_ends[document - 1]) if document else 0),
        }

    def _ids(self, ids: Any) -> Int64:
        return np.arange(self._length) if ids is None else checked_ids(ids, self._length)

    def _locate(self, ids: Int64) -> tuple[Int64, Int64]:
        return self.plan.locate(ids if self._kept is None else self._kept.select(ids))

    def _reading_starts(self, ids: Int64) -> Int64:
        streams, numbers = self._locate(ids)
        return self.layout.stream_starts[streams] + self.plan.starts(streams, numbers, self.epoch)

    def places(self, ids: Int64) -> Places:
        """Stream, start, targets and repeated targets of valid `ids`, int64 [B]; what `read` and `audit` stand on."""
        epoch = self.epoch
        streams, numbers = self._locate(ids)
        starts = self.plan.starts(streams, numbers, epoch)
        targets = np.minimum(self.plan.lengths[streams] - 1 - starts, self.config.seq_len)
        repeated = np.zeros(len(ids), np.int64)
        if self.config.mask_repeated_targets and len(ids):
            # Starts rise with the id, so the window before holds whatever any earlier one reaches of this one. With
            # thinning that is the last one kept: what only windows left out would have is not repeated.
            streams_before, numbers_before = self._locate(np.maximum(ids - 1, 0))
            ends_before = self.plan.starts(streams_before, numbers_before, epoch) + self.config.seq_len
            same = (streams_before == streams) & (ids > 0)
            repeated = np.where(same, np.clip(ends_before - starts, 0, targets - 1), 0)
        return Places(streams, starts, targets, repeated)

    def __getstate__(self) -> dict[str, Any]:
        return {"store": self.store, "config": self.config, "epoch": self._epoch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._build(state["store"], state["config"], state["epoch"])

    def __repr__(self) -> str:
        return f"WindowDataset({self.store!r}, {self.config!r}): {self._length} windows"
