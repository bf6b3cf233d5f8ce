"""Tokens of chunks become two stores and a manifest."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._files import atomic_writer
from adaptive_sampling.corpus._extras import require
from adaptive_sampling.corpus._store_writer import StoreWriter
from adaptive_sampling.corpus._work import ChunkTokens, Work
from adaptive_sampling.corpus.clean import CLEANING_VERSION
from adaptive_sampling.corpus.contamination import NGRAM, clean_ranges, contaminated_starts
from adaptive_sampling.corpus.manifest import SPLITS, manifest_schema
from adaptive_sampling.corpus.progress import Report, StageCounter
from adaptive_sampling.corpus.store import TokenStore, write_metadata

CUT_WINDOWS = b"decontaminated_windows"


@dataclass(frozen=True)
class Kept:
    """What was decided of each document; arrays of one entry per document, in order.

    Attributes:
        counts: Documents of each chunk.
        candidates: bool, whether it has a text.
        first: int64, first document of equal content; −1 without text.
        near: int64, first document of its near-copy set; −1 where `first` is another.
        held_out: bool, whether its split is validation.
        near_copies: "keep" or "drop".
    """

    counts: list[int]
    candidates: NDArray[np.bool_]
    first: NDArray[np.int64]
    near: NDArray[np.int64]
    held_out: NDArray[np.bool_]
    near_copies: str

    def stored(self) -> NDArray[np.bool_]:
        """bool, which documents go into a store."""
        rows = np.arange(len(self.first))
        kept = self.candidates & (self.first == rows)
        return np.asarray(kept & (self.near == rows) if self.near_copies == "drop" else kept)


class _Places:
    """Where documents went; arrays of one entry per document."""

    def __init__(self, count: int) -> None:
        self.tokens = np.zeros(count, np.int64)
        self.shard = np.full(count, -1, np.int64)
        self.document = np.full(count, -1, np.int64)
        self.parts = np.zeros(count, np.int64)
        self.start = np.full(count, -1, np.int64)
        self.end = np.full(count, -1, np.int64)
        self.cut_away = np.zeros(count, bool)
        self.cut_windows = 0

    def forget(self, rows: NDArray[np.bool_]) -> None:
        """Take back what was said of some documents."""
        for places in (self.shard, self.document, self.start, self.end):
            places[rows] = -1
        self.tokens[rows] = self.parts[rows] = 0


def write_prepared(
    work: Work,
    kept: Kept,
    tokens: ChunkTokens,
    tokenizer: Path,
    *,
    eos_id: int,
    vocab_size: int,
    shard_bytes: int,
    split_oversized: bool,
    decontaminate: int,
    report: Report | None,
) -> None:
    """Write WORK/new: tokenizer.json, train/, validation/, manifest.parquet, and removed.jsonl where texts were cut.

    Args:
        work: Folder of the run.
        kept: What was decided.
        tokens: Tokens of all chunks.
        tokenizer: File of the tokenizer.
        eos_id: Id that ends a document.
        vocab_size: Number of ids.
        shard_bytes: Bytes of a file of tokens.
        split_oversized: Whether larger documents are split at paragraphs.
        decontaminate: Tokens of the windows that are cut out of held-out documents; 0: none are.
        report: Called as the work goes on.
    """
    new = work.path / "new"
    new.mkdir()
    shutil.copyfile(tokenizer, new / "tokenizer.json")
    places = _Places(len(kept.first))
    stored = kept.stored()
    counter = StageCounter(report, "writing", int(tokens.all_lengths[stored].sum()) * tokens.dtype.itemsize)
    for split in SPLITS:
        chosen = stored & (kept.held_out == (split == "validation"))
        known = None
        if split == "validation" and decontaminate:
            whole = _SplitWriter(work, kept, tokens, chosen, eos_id, 0)
            store = whole.write(work.path / "uncut", vocab_size, shard_bytes, places, None, None)
            known = (contaminated_starts(TokenStore.open(new / "train"), store), decontaminate)
            shutil.rmtree(work.path / "uncut")
        writer = _SplitWriter(work, kept, tokens, chosen, eos_id, shard_bytes if split_oversized else 0)
        writer.write(new / split, vocab_size, shard_bytes, places, known, counter)
    _write_manifest(new / "manifest.parquet", work, kept, places)
    _copy_removed(work, kept, new / "removed.jsonl")


class _SplitWriter:
    """Writes the chosen documents of all chunks into one store."""

    def __init__(
        self,
        work: Work,
        kept: Kept,
        tokens: ChunkTokens,
        chosen: NDArray[np.bool_],
        eos_id: int,
        split_bytes: int,
    ) -> None:
        self._work, self._kept, self._tokens, self._chosen = work, kept, tokens, chosen
        self._eos_id, self._split_bytes = eos_id, split_bytes

    def write(
        self,
        folder: Path,
        vocab_size: int,
        shard_bytes: int,
        places: _Places,
        known: tuple[NDArray[np.bool_], int] | None,
        counter: StageCounter | None,
    ) -> TokenStore:
        """Write the store; `known`: starts of known runs in it as it was, and the window to cut out."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        places.forget(self._chosen)
        with StoreWriter(folder, vocab_size=vocab_size, shard_bytes=shard_bytes) as writer:
            self._write_chunks(writer, places, known, counter)
            write_metadata(folder, writer, vocab_size=vocab_size, eos_id=self._eos_id)
        return TokenStore.open(folder)

    def _write_chunks(
        self,
        writer: StoreWriter,
        places: _Places,
        known: tuple[NDArray[np.bool_], int] | None,
        counter: StageCounter | None,
    ) -> None:
        num_documents = before = 0
        for number, first in enumerate(self._tokens.first_rows.tolist()):
            lengths = self._tokens.lengths[number]
            chosen = self._chosen[first : first + len(lengths)]
            if not chosen.any():
                continue
            rows = first + np.flatnonzero(chosen)
            block, starts = self._chosen_tokens(number, lengths, chosen)
            sizes = lengths[chosen]
            parts = np.ones(len(rows), np.int64)
            if known is not None or (self._split_bytes and int(sizes.max()) * block.itemsize > self._split_bytes):
                flags = None if known is None else (known[0][before : before + len(block)], known[1])
                before += len(block)
                block, sizes, parts, starts = self._cut(block, sizes, starts, flags, rows, places)
            table = self._work.rows(number, ["source", "store_key"])
            sources = np.asarray(table["source"].to_pylist(), object)[chosen]
            keys = table["store_key"].to_numpy()[chosen].astype(np.uint64)
            # Parts keep the key of their document: what is looked up by it is found for each.
            keys = np.repeat(keys, parts)
            base = writer.num_tokens
            shards = writer.append(block, sizes, np.repeat(sources, parts).tolist(), keys, starts)
            ends = base + np.cumsum(sizes)
            last = np.cumsum(parts) - 1
            there = parts > 0
            rows, firsts, lasts = rows[there], (last - parts + 1)[there], last[there]
            places.shard[rows] = shards[firsts]
            places.document[rows] = num_documents + firsts
            places.parts[rows] = parts[there]
            places.end[rows] = ends[lasts]
            places.start[rows] = ends[firsts] - sizes[firsts]
            places.tokens[rows] = places.end[rows] - places.start[rows]
            num_documents += len(sizes)
            if counter is not None:
                counter.add(len(rows), block.nbytes)
        if not num_documents:
            none = np.zeros(0, np.int64)
            writer.append(np.zeros(0, writer.dtype), none, [], none.astype(np.uint64), none)

    def _chosen_tokens(
        self, number: int, lengths: NDArray[np.int64], chosen: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Tokens of the chosen documents of a chunk, and the starts of paragraphs in them."""
        block, starts = self._tokens.chunk(number), self._tokens.paragraphs(number)
        tokenized = lengths > 0
        if chosen[tokenized].all():
            return block, starts
        gone = np.where(chosen, 0, lengths)
        of = np.searchsorted(np.cumsum(lengths), starts, side="right")
        return block[np.repeat(chosen, lengths)], (starts - np.cumsum(gone)[of])[chosen[of]]

    def _cut(
        self,
        block: NDArray[Any],
        sizes: NDArray[np.int64],
        starts: NDArray[np.int64],
        known: tuple[NDArray[np.bool_], int] | None,
        rows: NDArray[np.int64],
        places: _Places,
    ) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Documents cut into parts: (tokens, length of each part, parts of each document, starts of paragraphs)."""
        pieces: list[NDArray[Any]] = []
        lengths: list[int] = []
        parts = np.zeros(len(sizes), np.int64)
        paragraphs: list[NDArray[np.int64]] = []
        eos = np.array([self._eos_id], block.dtype)
        position = 0
        for index, end in enumerate(np.cumsum(sizes).tolist()):
            start = end - int(sizes[index])
            own = starts[np.searchsorted(starts, start) : np.searchsorted(starts, end)] - start
            ranges = [(0, end - start)]
            if known is not None and known[0][start:end].any():
                ranges, cut = clean_ranges(known[0][start:end], known[1])
                places.cut_windows += cut
                if ranges == [(end - start - 1, end - start)]:  # EOS alone
                    ranges = []
                places.cut_away[rows[index]] = not ranges
            for first, stop in ranges:
                for low, high in self._at_paragraphs(first, stop, own, block.itemsize):
                    piece = block[start + low : start + high]
                    piece = piece if piece[-1] == self._eos_id else np.concatenate([piece, eos])
                    inside = own[(own > low) & (own < high)] - low
                    paragraphs.append(np.concatenate([np.zeros(1, np.int64), inside]) + position)
                    pieces.append(piece)
                    lengths.append(len(piece))
                    parts[index] += 1
                    position += len(piece)
        nothing = np.zeros(0, np.int64)
        tokens = np.concatenate([block[:0], *pieces])
        return tokens, np.array(lengths, np.int64), parts, np.concatenate([nothing, *paragraphs])

    def _at_paragraphs(self, first: int, stop: int, starts: NDArray[np.int64], itemsize: int) -> list[tuple[int, int]]:
        """Parts of [first, stop) that fit a shard with their EOS, cut where paragraphs begin; a larger one stays."""
        if not self._split_bytes or (stop - first + 1) * itemsize <= self._split_bytes:
            return [(first, stop)]
        room = max(self._split_bytes // itemsize - 1, 1)
        bounds = [*starts[(starts > first) & (starts < stop)].tolist(), stop]
        ranges, low, last = [], first, first
        for bound in bounds:
            if bound - low > room and last > low:
                ranges.append((low, last))
                low = last
            last = bound
        return [*ranges, (low, stop)]


def _write_manifest(path: Path, work: Work, kept: Kept, places: _Places) -> None:
    pa = require("pyarrow", "to write a manifest")
    parquet = require("pyarrow.parquet", "to write a manifest")
    schema = manifest_schema().with_metadata({CUT_WINDOWS: str(places.cut_windows).encode()})
    rows = np.arange(len(kept.first))
    set_of = np.where(kept.first >= 0, kept.near[kept.first], -1)
    sizes = np.bincount(set_of[kept.first == rows].clip(0), minlength=1) if len(rows) else np.zeros(1, np.int64)
    set_of = np.where((set_of >= 0) & (sizes[set_of.clip(0, len(sizes) - 1)] > 1), set_of, -1)
    duplicate = np.where((kept.first >= 0) & (kept.first != rows), kept.first, -1)
    dropped = kept.candidates & (duplicate < 0) & ~kept.stored()
    keys = _keys_of(work, kept.counts, np.unique(np.concatenate([set_of, duplicate])))
    with atomic_writer(path) as file, parquet.ParquetWriter(file, schema) as writer:
        first = 0
        for number, count in enumerate(kept.counts):
            here = slice(first, first + count)
            table = work.rows(number, [])
            columns = {name: table[name] for name in schema.names if name in table.column_names}
            stored = places.parts[here] > 0
            reasons = table["reason"].to_pylist()
            copies, sets = duplicate[here].tolist(), set_of[here].tolist()
            for row in np.flatnonzero(~stored & kept.candidates[here]).tolist():
                if copies[row] >= 0:
                    reasons[row] = f"exact duplicate of {keys[copies[row]]}"
                elif dropped[first + row]:
                    reasons[row] = f"near-copy of {keys[sets[row]]}"
                elif places.cut_away[first + row]:
                    reasons[row] = f"contaminated: runs of {NGRAM} tokens stand in training text"
            columns |= {
                "content_hash": [
                    digest.hex() if has else ""
                    for digest, has in zip(table["digest"].to_pylist(), table["has_text"].to_pylist(), strict=True)
                ],
                "tokens": places.tokens[here],
                "kept": stored,
                "reason": reasons,
                "split": np.where(kept.held_out[here], "validation", "train").tolist(),
                "cleaning_version": np.full(count, CLEANING_VERSION, np.int64),
                "duplicate_of": [keys[at] if at >= 0 else "" for at in copies],
                "near_copy_set": [keys[at] if at >= 0 else "" for at in sets],
                "shard": places.shard[here],
                "document": places.document[here],
                "parts": places.parts[here],
                "token_start": places.start[here],
                "token_end": places.end[here],
            }
            writer.write_table(pa.table({name: columns[name] for name in schema.names}, schema=schema))
            first += count


def _keys_of(work: Work, counts: list[int], rows: NDArray[np.int64]) -> dict[int, str]:
    keys: dict[int, str] = {}
    first = 0
    for number, count in enumerate(counts):
        here = rows[(rows >= first) & (rows < first + count)]
        if len(here):
            found = work.rows(number, ["key"])["key"].take((here - first).tolist()).to_pylist()
            keys.update(zip(here.tolist(), found, strict=True))
        first += count
    return keys


def _copy_removed(work: Work, kept: Kept, path: Path) -> None:
    parts = sorted(work.read.glob("*.removed"))
    if not parts:
        return
    with atomic_writer(path) as file:
        for part in parts:
            with part.open("rb") as opened:
                shutil.copyfileobj(opened, file)
