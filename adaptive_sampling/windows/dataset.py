"""Windows of a token store as a map-style dataset: an id goes in, inputs and labels come out.

id ──(thinning)──▶ number over all windows ──plan──▶ stream and start ──layout──▶ tokens of the store
"""

from __future__ import annotations

from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from adaptive_sampling._random import stable_hash
from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.corpus._extras import MissingExtraError
from adaptive_sampling.windows._buffers import Buffers
from adaptive_sampling.windows._ids import checked_id, checked_ids
from adaptive_sampling.windows._losses import warn_of_losses
from adaptive_sampling.windows._tokens import plain_tokens
from adaptive_sampling.windows._watch import StoreWatch
from adaptive_sampling.windows.attention import cu_seqlens
from adaptive_sampling.windows.config import WindowConfig
from adaptive_sampling.windows.epochs import EpochView, epoch_view
from adaptive_sampling.windows.gather import Places, gather
from adaptive_sampling.windows.packing import build_layout
from adaptive_sampling.windows.plan import WindowPlan, window_ends
from adaptive_sampling.windows.thinning import KeptWindows, kept_windows, thin

Int64 = NDArray[np.int64]


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
        UserWarning: if there is no window at all, documents are lost because they are shorter than a window, or
            windows have no target.

    Raises:
        TypeError: for arguments of another type.
        ValueError: if the store lacks what the settings ask for: paragraph starts, or a manifest with the column.

    State: the epoch alone, which `random_offset`, `eos_dropout` and `reshuffle_documents` look at; it lies in shared
    memory then, so that running workers see it. Pickling carries the store's path, the settings and the epoch; spawned
    workers open the files again and share the bits of thinning.

    Cost: O(documents) memory whatever the number of windows; thinning adds a bit per window. Reading a batch is one
    gather.
    """

    def __init__(self, store: TokenStore, config: WindowConfig) -> None:
        if not isinstance(store, TokenStore):
            raise TypeError(f"`store` must be a TokenStore, got {store!r}. Open one with TokenStore.open(path).")
        if not isinstance(config, WindowConfig):
            raise TypeError(f"`config` must be a WindowConfig, got {config!r}. Use WindowConfig(seq_len).")
        self._build(store, config, torch.zeros((), dtype=torch.int64), StoreWatch(store.path), None)
        if config.changes_by_epoch:
            self._epoch.share_memory_()  # type: ignore[no-untyped-call]
        warn_of_losses(config, self.plan, self._length)

    def _build(
        self,
        store: TokenStore,
        config: WindowConfig,
        epoch: torch.Tensor,
        watch: StoreWatch,
        bits: torch.Tensor | None,
    ) -> None:
        self.store = store
        self.config = config
        self._epoch = epoch
        self._watch = watch
        self._buffers = Buffers()
        self.layout, counts = build_layout(store, config)
        self.plan = WindowPlan(
            lengths=self.layout.stream_lengths,
            keys=self.layout.stream_keys,
            window_ends=window_ends(counts),
            seq_len=config.seq_len,
            stride=config.step,
            tail="pad" if config.pack == "best_fit" else config.tail,
            random_offset=config.random_offset,
            seed=config.seed,
        )
        self._kept: KeptWindows | None = None
        if bits is not None:
            self._kept = kept_windows(bits.numpy())
        elif config.thinning < 1:
            self._kept = thin(self.plan.num_windows, config.thinning, config.seed, self._names)
        self._length = self.plan.num_windows if self._kept is None else len(self._kept)
        self._view_of_epoch: EpochView | None = None
        self._view()

    def _names(self, numbers: Int64) -> tuple[NDArray[np.uint64], Int64]:
        """Document in which each window starts and its start there, before anything moves it; for thinning."""
        streams, within = self.plan.locate(numbers)
        firsts = self.layout.stream_starts[streams] + self.plan.fixed_starts(streams, within)
        pieces = self.layout.pieces_of(firsts, streams)
        documents = self.layout.documents[pieces]
        document_starts = np.where(documents > 0, np.asarray(self.store.document_ends)[documents - 1], 0)
        keys = np.asarray(self.store.document_keys)[documents]
        return keys, firsts + self.layout.piece_shifts[pieces] - document_starts

    def _view(self) -> EpochView:
        epoch = self.epoch if self.config.changes_by_epoch else 0
        if self._view_of_epoch is None or self._view_of_epoch.epoch != epoch:
            self._view_of_epoch = epoch_view(self.store, self.config, self.layout, self.plan, epoch)
        return self._view_of_epoch

    @property
    def adaptive_weights_error(self) -> str | None:
        """Why a weight per window id means nothing for this dataset; None where it does mean something."""
        if not self.config.reshuffle_documents:
            return None
        return (
            "`reshuffle_documents` must be False with adaptive weights, got True. It moves text between window ids in "
            "each epoch, so a weight learned for an id would soon be that of other text. Use random_offset or "
            "eos_dropout, which leave a window in its place."
        )

    @property
    def identity(self) -> str:
        """The tokens, by a checksum of what the store's metadata says of its files, and the window settings.

        Samplers keep it in their state: an order of ids means nothing for other windows.
        """
        metadata = (self.store.path / "metadata.json").read_text(encoding="utf-8")
        return f"of store {stable_hash(metadata) % 16**12:012x} with {self.config!r}"

    @property
    def seq_len(self) -> int:
        """Number of inputs of a window."""
        return self.config.seq_len

    @property
    def epoch(self) -> int:
        """The epoch whose offsets, separators and order are in force."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Make offsets, separators and order those of `epoch`; without settings that look at it nothing changes.

        Raises:
            ValueError: if `epoch` is no integer from 0 to 2^63 - 1.
        """
        if isinstance(epoch, bool) or not isinstance(epoch, (int, np.integer)) or not 0 <= epoch < 2**63:
            limit = "below 2^63" if isinstance(epoch, int) and epoch > 0 else "at least 0"
            raise ValueError(f"`epoch` must be an integer of {limit}, got {epoch!r}. Epochs are counted from 0.")
        self._epoch.fill_(int(epoch))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> dict[str, torch.Tensor]:
        batch = self.read(np.array([checked_id(index, self._length)]))
        return {name: _tensor(values)[0] for name, values in batch.items()}

    def __getitems__(self, indices: Any) -> list[dict[str, torch.Tensor]]:
        """Items of many ids from one `read`; DataLoader calls this for a batch.

        Raises:
            IndexError: for an id out of range.
            TypeError: for ids that are no integers.
        """
        columns = {name: _tensor(values).unbind(0) for name, values in self.read(indices).items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def read(self, ids: Any) -> dict[str, Int64]:
        """Many windows as batch arrays, gathered at once.

        Args:
            ids: Integer sequence, array or tensor [B]; repeats are fine.

        Returns:
            The keys of an item; "window_id" int64 [B], the others int64 [B, seq_len]. Where no window holds more than
            one document, "document_ids" and "position_ids" are read-only.

        Raises:
            IndexError: for an id out of range.
            TypeError: for ids that are no integers.
            StoreError: if the store was changed since the dataset was made.

        Cost: O(B · (seq_len + log documents)).
        """
        ids = checked_ids(ids, self._length)
        self._watch.check()
        places = self.places(ids)
        batch = gather(
            plain_tokens(self.store),
            self._view().layout,
            places,
            self.config.seq_len,
            self.store.eos_id,
            mask_cross=self.config.mask_cross_document_targets,
            buffers=self._buffers,
        )
        # The id stands where items of other datasets have it too, behind inputs and labels.
        return {
            "input_ids": batch["input_ids"],
            "labels": batch["labels"],
            "window_id": ids,
            "document_ids": batch["document_ids"],
            "position_ids": batch["position_ids"],
        }

    def cu_seqlens(self, ids: Any) -> NDArray[np.int32]:
        """Ends of the documents in the flattened inputs of `ids`, see `adaptive_sampling.windows.cu_seqlens`.

        Example: with two windows of four inputs, the first of documents of 3 and 1 tokens, [0, 3, 4, 8].
        """
        return cu_seqlens(self.read(ids)["document_ids"])

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
        places = self.places(self._ids(ids))
        return self._view().layout.store_positions(places.firsts, places.streams)

    def documents(self, ids: Any = None) -> Int64:
        """Store index of the document in which each window starts, int64 [B]; arguments and errors as `starts`."""
        places, layout = self.places(self._ids(ids)), self._view().layout
        return layout.documents[layout.pieces_of(places.firsts, places.streams)]

    def sources(self, ids: Any = None) -> Int64:
        """Source index of each window, int64 [B]; arguments and errors as `starts`."""
        streams, _ = self._locate(self._ids(ids))
        return self.layout.stream_sources[streams].astype(np.int64)

    def valid_targets(self, ids: Any = None) -> Int64:
        """Number of labels that are no -100 in each window, int64 [B]; arguments and errors as `starts`."""
        places = self.places(self._ids(ids))
        valid = places.targets - places.repeated
        if self.config.mask_cross_document_targets and not self.layout.one_piece:
            layout = self._view().layout
            valid -= layout.pieces(places.firsts + places.targets) - layout.pieces(places.firsts + places.repeated)
        return valid

    def target_spans(self, ids: Any = None) -> tuple[Int64, Int64, Int64]:
        """Which tokens of the store are targets of which windows, in runs.

        Args:
            ids: Window ids [B]; default: all.

        Returns:
            (rows, starts, ends), int64 [runs] each: place in `ids`, store position of the run's first target and
            behind its last. Runs of a row follow one another; a row without targets has none.

        Raises:
            IndexError, TypeError: as `starts`.
        """
        places, layout = self.places(self._ids(ids)), self._view().layout
        begins, ends = places.firsts + 1 + places.repeated, places.firsts + places.targets + 1
        rows = np.flatnonzero(ends > begins)
        first = layout.pieces(begins[rows])
        counts = layout.pieces(ends[rows] - 1) - first + 1
        pieces = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        rows = np.repeat(rows, counts)
        piece_starts = layout.piece_starts(pieces)
        starts, ends = np.maximum(begins[rows], piece_starts), np.minimum(ends[rows], layout.piece_ends[pieces])
        if self.config.mask_cross_document_targets:
            starts = starts + (starts == piece_starts)
        some, shifts = ends > starts, layout.piece_shifts[pieces]
        return rows[some], (starts + shifts)[some], (ends + shifts)[some]

    def trace(self, window_id: int, *, manifest: bool = True) -> dict[str, Any]:
        """Where a window is from, down to the file that its text was read from.

        Args:
            window_id: One id.
            manifest: Whether the manifest is looked up.

        Returns:
            "window_id", "document" (store index of the one in which it starts), "document_key" (its hash), "source"
            (name), "start" and "end" (store positions of its first token and behind its last target),
            "start_in_document", and "manifest": the document's row, see `TokenStore.manifest_row`; None for a store
            without a manifest, or where pyarrow, which reads it, is not installed; absent if not asked for.

        Raises:
            IndexError: for an id out of range.
            TypeError: for an id that is no integer.
            StoreError: if the manifest cannot be read.

        Cost: reads three columns of the manifest, if there is one.
        """
        ids = np.array([checked_id(window_id, self._length)])
        places, layout = self.places(ids), self._view().layout
        start, end = (
            int(layout.store_positions(at, places.streams)[0]) for at in (places.firsts, places.firsts + places.targets)
        )
        document = int(layout.documents[layout.pieces_of(places.firsts, places.streams)][0])
        place = {
            "window_id": int(ids[0]),
            "document": document,
            "document_key": int(self.store.document_keys[document]),
            "source": self.store.source_names[int(self.store.document_sources[document])],
            "start": start,
            "end": end + 1,
            "start_in_document": start - (int(self.store.document_ends[document - 1]) if document else 0),
        }
        return {**place, "manifest": self._manifest_row(document)} if manifest else place

    def _manifest_row(self, document: int) -> dict[str, Any] | None:
        try:
            return self.store.manifest_row(document)
        except MissingExtraError:
            return None

    def _ids(self, ids: Any) -> Int64:
        return np.arange(self._length) if ids is None else checked_ids(ids, self._length)

    def _locate(self, ids: Int64) -> tuple[Int64, Int64]:
        return self.plan.locate(ids if self._kept is None else self._kept.select(ids))

    def places(self, ids: Int64) -> Places:
        """Where valid `ids` are, int64 [B]; what all reading stands on."""
        view, width = self._view(), self.config.seq_len
        streams, numbers = self._locate(ids)
        starts = view.starts(streams, numbers)
        if self.config.tail == "pad" or self.config.pack == "best_fit" or self.config.eos_dropout:
            left = view.layout.stream_lengths[streams] - starts
            targets = np.minimum(left - 1, width)
            # A shared window ends with a document, whose last token is an input too.
            inputs = np.minimum(left, width) if self.config.pack == "best_fit" else targets
        else:
            inputs = targets = np.full(len(ids), width)
        repeated = np.zeros(len(ids), np.int64)
        if self.config.mask_repeated_targets and len(ids):
            # Starts rise with the id, so the window before holds whatever any earlier one reaches of this one. With
            # thinning that is the last one kept: what only windows left out would have is not repeated.
            streams_before, numbers_before = self._locate(np.maximum(ids - 1, 0))
            ends_before = view.starts(streams_before, numbers_before) + width
            same = (streams_before == streams) & (ids > 0)
            repeated = np.where(same, np.clip(ends_before - starts, 0, np.maximum(targets - 1, 0)), 0)
        return Places(streams, view.layout.stream_starts[streams] + starts, inputs, targets, repeated)

    def end_documents(self, places: Places) -> tuple[Int64, Int64]:
        """Store index of the document of the first token and of the last target of each window, int64 [B] each."""
        layout = self._view().layout
        first, last = (layout.pieces_of(at, places.streams) for at in (places.firsts, places.firsts + places.targets))
        return layout.documents[first], layout.documents[last]

    def __getstate__(self) -> dict[str, Any]:
        state = {"store": self.store, "config": self.config, "epoch": self._epoch, "watch": self._watch, "bits": None}
        if self._kept is not None and get_spawning_popen() is not None:
            # On its way to a worker: the bits go into shared memory once, instead of being hashed again by each.
            bits = torch.from_numpy(self._kept.bits.reshape(-1))
            if not bits.is_shared():  # type: ignore[no-untyped-call]
                bits = bits.share_memory_()  # type: ignore[no-untyped-call]
                self._kept = kept_windows(bits.numpy())
            state["bits"] = bits
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._build(state["store"], state["config"], state["epoch"], state["watch"], state["bits"])

    def __repr__(self) -> str:
        return f"WindowDataset({self.store!r}, {self.config!r}): {self._length} windows"


def _tensor(values: Int64) -> torch.Tensor:
    """A tensor of `values`; read-only ones, whose rows are all the same, are copied once for all rows."""
    if values.flags.writeable or not len(values):
        return torch.from_numpy(values if values.flags.writeable else values.copy())
    return torch.from_numpy(np.array(values[0])).expand(*values.shape)
