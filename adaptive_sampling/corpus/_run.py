"""The stages of preparing a corpus, and what is known of each document while they go on: arrays, no texts."""

from __future__ import annotations

import itertools
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import stable_hash
from adaptive_sampling.corpus._pool import Workers
from adaptive_sampling.corpus._tasks import (
    FeatureJob,
    ReadJob,
    TokenizeJob,
    feature_chunk,
    read_chunk,
    read_texts,
    tokenize_chunk,
)
from adaptive_sampling.corpus._work import Chunk, ChunkTokens, Work, chunks_of
from adaptive_sampling.corpus.duplicates import MIN_BYTES, first_of_equal, fitted, near_copies
from adaptive_sampling.corpus.manifest import split_of
from adaptive_sampling.corpus.progress import Report, StageCounter
from adaptive_sampling.corpus.readers import Document, check_first
from adaptive_sampling.corpus.sources import Source, Unit
from adaptive_sampling.corpus.split import HeldOutFiles
from adaptive_sampling.corpus.tokenize import eos_id_of, load_tokenizer, train_tokenizer, vocab_size_of

TOKENIZER_BYTES = 1 << 27  # a tokenizer learns no more from more text, and would take memory for it


class Run:
    """The stages of one call, and what is known of each document while they go on: arrays, no texts."""

    def __init__(self, work: Work, out: Path, report: Report | None) -> None:
        self.work, self.out, self.report = work, out, report
        self.chunks: list[Chunk] = []
        self.total_bytes = 0

    def plan(self, documents: Iterable[Document | Source], settings: dict[str, Any]) -> None:
        """Find all files, spool what is handed over, check what can be checked, keep what an earlier run did."""
        units: list[tuple[Source, Unit]] = []
        described: list[Any] = []
        seen: set[str] = set()
        spooled = 0
        handed_over = Source("documents", "-")
        counter = StageCounter(self.report, "collecting", None)
        for source, group in _grouped(documents):
            if source is not None:
                # A loop or a broken link that two patterns come across is one fault.
                own = [unit for unit in source.units() if unit.format != "fault" or unit.path not in seen]
                for unit in own:
                    check_first(unit, source)
                _refuse_twice(seen, {unit.path for unit in own})
                units += ((source, unit) for unit in own)
                described.append([source.settings(), [[*asdict(unit).values(), *_stamp(unit)] for unit in own]])
                continue
            for unit, digest, count in self.work.spool_documents(group, spooled):
                spooled += 1
                units.append((handed_over, unit))
                described.append(digest)
                counter.add(count, unit.size)
        self.total_bytes = sum(unit.size for _, unit in units)
        self._check_disk(units)
        self.chunks = chunks_of(units)
        self.work.begin({"settings": settings, "units": described})

    def _check_disk(self, units: list[tuple[Source, Unit]]) -> None:
        # Packed files are taken for four times their size; texts once, tokens twice (as chunks and in the stores).
        text = sum(unit.size * (4 if unit.path.endswith((".gz", ".zst", ".parquet")) else 1) for _, unit in units)
        folder = self.work.path.parent
        while not folder.exists():
            folder = folder.parent
        free = shutil.disk_usage(folder).free
        if free < 3 * text:
            raise OSError(
                f"`out` must lie on a disk with {3 * text / 1e6:,.1f} MB free, got {free / 1e6:,.1f} MB at {folder}. "
                "Free space, or choose another disk."
            )

    def read(self, workers: Workers) -> None:
        """Read the chunks that are not read yet, and load what later stages need of each document."""
        counter = StageCounter(self.report, "reading", self.total_bytes)
        jobs = []
        for number, chunk in enumerate(self.chunks):
            if self.work.is_read(number):
                counter.add(0, sum(unit.size for _, unit in chunk))
            else:
                jobs.append(ReadJob(os.fspath(self.work.read), number, chunk))
        for at, (count, _) in workers.run(read_chunk, jobs):
            counter.add(count, sum(unit.size for _, unit in jobs[at].units))
        columns: dict[str, list[NDArray[Any]]] = {"digest": [], "has_text": [], "bytes": [], "key_hash": []}
        self.chunks_rows: list[int] = []
        for number in range(len(self.chunks)):
            table = self.work.rows(number, list(columns)).combine_chunks()
            self.chunks_rows.append(len(table))
            for name in ("has_text", "bytes", "key_hash"):
                columns[name].append(table[name].to_numpy())
            digests = b"".join(table["digest"].to_pylist())
            columns["digest"].append(np.frombuffer(digests, np.uint8).reshape(-1, 16))
        self.digests = np.concatenate([np.zeros((0, 16), np.uint8), *columns["digest"]])
        self.candidates = np.concatenate([np.zeros(0, bool), *columns["has_text"]]).astype(bool)
        self.bytes = np.concatenate([np.zeros(0, np.int64), *columns["bytes"]])
        self._refuse_repeated_keys(np.concatenate([np.zeros(0, np.uint64), *columns["key_hash"]]))

    def _refuse_repeated_keys(self, hashes: NDArray[np.uint64]) -> None:
        _, first, counts = np.unique(hashes, return_index=True, return_counts=True)
        if len(first) == len(hashes):
            return
        row = int(first[counts > 1].min())
        for number, count in enumerate(self.chunks_rows):
            if row < count:
                key = self.work.rows(number, ["key"])["key"][row].as_py()
                raise ValueError(
                    f"`documents` must have unique keys, got {key!r} twice. "
                    "Let no file match two patterns, and give each document a name of its own."
                )
            row -= count

    def _unique(self) -> NDArray[np.bool_]:
        """Documents with text that no earlier one equals."""
        return np.asarray(self.candidates & (self.first == np.arange(len(self.first))))

    def exact_groups(self) -> NDArray[np.int64]:
        """First document of equal content for each; itself where there is no text."""
        self.first = first_of_equal(self.digests, self.candidates)
        return np.where(self.first < 0, np.arange(len(self.first)), self.first)

    def near_sets(self, workers: Workers, tokens: ChunkTokens) -> NDArray[np.int64]:
        """First document of the near-copy set of each document that is no exact duplicate; −1 elsewhere."""
        sets = np.full(len(self.first), -1, np.int64)
        unique = self._unique()
        sets[unique] = np.flatnonzero(unique)
        compared = unique & (self.bytes >= MIN_BYTES)
        rows = np.flatnonzero(compared)
        if len(rows) > 1:
            features = self._features(workers, tokens, compared)
            sets[rows] = rows[near_copies(features, lambda number: tokens.document(int(rows[number])))]
        return sets

    def _features(self, workers: Workers, tokens: ChunkTokens, compared: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Features of the sketches of the documents that are compared, float32 [documents, dim]."""
        rows = np.flatnonzero(compared)
        featurizer = fitted(lambda number: tokens.sketch(int(rows[number])), tokens.sketch_lengths[rows])
        counter = StageCounter(self.report, "looking for near-copies", int(self.bytes[compared].sum()))
        parts = [slice(first, first + count) for first, count in zip(tokens.first_rows, self.chunks_rows, strict=True)]
        jobs = [
            FeatureJob(os.fspath(tokens.folder), number, tokens.dtype.str, featurizer, compared[part])
            for number, part in enumerate(parts)
            if compared[part].any()
        ]
        features: dict[int, NDArray[np.float32]] = {}
        for at, found in workers.run(feature_chunk, jobs):
            features[at] = found
            counter.add(len(found), int(self.bytes[parts[jobs[at].number]][jobs[at].wanted].sum()))
        return np.concatenate([features[at] for at in range(len(jobs))])

    def join(self, exact: NDArray[np.int64], near: NDArray[np.int64]) -> NDArray[np.int64]:
        """Set of each document, exact and near together."""
        return np.where(near[exact] >= 0, near[exact], exact)

    def split(
        self, groups: NDArray[np.int64], fraction: float, seed: int, held_out: HeldOutFiles | None
    ) -> NDArray[np.bool_]:
        """Which documents are held out: whole sets, by their smallest hash of content or by a file of theirs."""
        if held_out is not None:
            listed = np.concatenate(
                [np.zeros(0, bool), *(held_out.matches(self.work, number) for number in range(len(self.chunks)))]
            )
            held_out.refuse_unmatched()
            chosen = np.zeros(len(groups), bool)
            chosen[groups[listed]] = True
            return chosen[groups]
        result = np.zeros(len(groups), bool)
        if not fraction:
            return result
        # Order by set, then by hash; the first of each set speaks for it.
        words = self.digests.view(">u8")
        order = np.lexsort((words[:, 1], words[:, 0], groups))
        heads = np.flatnonzero(np.diff(groups[order], prepend=-1))
        for head in order[heads].tolist():
            content = self.digests[head].tobytes().hex()
            result[groups[head]] = split_of(content, validation_fraction=fraction, seed=seed) == "validation"
        return result[groups]

    def moved(self, before: NDArray[np.bool_], after: NDArray[np.bool_]) -> bool:
        """Whether a document that the tokenizer was trained on is held out now."""
        return bool((self._trainable(before) & after).any())

    def _trainable(self, held_out: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Documents that a tokenizer is trained on: of the training split, and of much text an even share."""
        chosen: NDArray[np.bool_] = self._unique() & ~held_out
        total = int(self.bytes[chosen].sum())
        if total > TOKENIZER_BYTES:
            keys = self.digests[:, :8].copy().view("<u8").ravel()
            chosen &= keys < np.uint64(TOKENIZER_BYTES / total * 2.0**64)
        return chosen

    def tokenize(
        self,
        workers: Workers,
        ready: Any,
        vocab_size: int | None,
        split_digits: bool,
        eos: str | None,
        held_out: NDArray[np.bool_],
    ) -> ChunkTokens:
        """Train a tokenizer unless one is given, and encode every document that is no exact duplicate."""
        unique = self._unique()
        if ready is None:
            ready = self._trained(self._trainable(held_out), vocab_size or 0, split_digits)
        content = ready.to_str(pretty=True)
        self.eos_id, self.vocab_size = eos_id_of(ready, eos), vocab_size_of(ready)
        folder = self.work.path / f"tokens-{stable_hash(content) % (1 << 64):016x}"
        folder.mkdir(exist_ok=True)
        self.tokenizer_path = folder / "tokenizer.json"
        if not self.tokenizer_path.exists():
            temporary = folder / "tokenizer.new"
            temporary.write_text(content, encoding="utf-8")
            os.replace(temporary, self.tokenizer_path)
        dtype = np.dtype("<u2") if self.vocab_size <= 1 << 16 else np.dtype("<u4")
        counter = StageCounter(self.report, "tokenizing", int(self.bytes[unique].sum()))
        jobs, first = [], 0
        for number, count in enumerate(self.chunks_rows):
            wanted = unique[first : first + count]
            if self.work.is_tokenized(folder, number, dtype):
                counter.add(int(wanted.sum()), int(self.bytes[first : first + count][wanted].sum()))
            else:
                source, target = os.fspath(self.work.read), os.fspath(folder)
                jobs.append(TokenizeJob(source, target, number, os.fspath(self.tokenizer_path), eos, dtype.str, wanted))
            first += count
        for _, done in workers.run(tokenize_chunk, jobs):
            counter.add(*done)
        return ChunkTokens(folder, len(self.chunks), dtype)

    def _trained(self, chosen: NDArray[np.bool_], vocab_size: int, split_digits: bool) -> Any:
        kept = self.work.path / f"trained-{stable_hash(chosen.tobytes()) % (1 << 64):016x}.json"
        if kept.exists():
            return load_tokenizer(kept)
        if not chosen.any():
            self._refuse_nothing(chosen)
        counter = StageCounter(self.report, "training the tokenizer", int(self.bytes[chosen].sum()))
        trained = train_tokenizer(self._texts(chosen, counter), vocab_size, split_digits=split_digits)
        temporary = kept.with_suffix(".new")
        trained.save(os.fspath(temporary))
        os.replace(temporary, kept)
        return trained

    def _texts(self, chosen: NDArray[np.bool_], counter: StageCounter) -> Iterator[str]:
        first = 0
        for number, count in enumerate(self.chunks_rows):
            wanted = chosen[first : first + count]
            sizes = self.bytes[first : first + count][wanted].tolist()
            for size, text in zip(sizes, read_texts(self.work.read, number, wanted), strict=True):
                yield text
                counter.add(1, size)
            first += count

    def _refuse_nothing(self, trainable: NDArray[np.bool_]) -> None:
        unique = self._unique()
        total = len(unique)
        if unique.any():
            raise ValueError(
                f"`documents` must leave at least one for training, got {total}, of which {int(unique.sum())} are held "
                "out and none is left. Add documents, or take another seed."
            )
        why = ""
        for number in range(len(self.chunks)):
            table = self.work.rows(number, ["key", "reason"])
            if len(table):
                why = f" ({table['key'][0].as_py()}: {table['reason'][0].as_py()})"
                break
        raise ValueError(
            f"`documents` must leave at least one for training, got {total}, none with text that could be read{why}. "
            "Check the files."
        )

    def check_splits(self, held_out: NDArray[np.bool_], fraction: float) -> None:
        """Refuse an empty training split, warn of an empty validation split."""
        unique = self._unique()
        if not (unique & ~held_out).any():
            self._refuse_nothing(unique & ~held_out)
        if fraction and not (unique & held_out).any():
            count = int(unique.sum())
            cure = "cut the text into several" if count == 1 else "cut the text into more, take another seed"
            warnings.warn(
                f"the validation split is empty: none of {count} documents was held out. Splits are made of whole "
                f"documents: {cure}, or name files to hold out.",
                stacklevel=3,
            )


def _checked(item: Any, number: int) -> Document | Source:
    if not isinstance(item, (Document, Source)):
        raise TypeError(
            f"`documents` must be Documents or Sources, got {item!r:.100} at place {number}. "
            "Write Document(source, key, text) for a text, Source(name, pattern) for files."
        )
    return item


def _grouped(documents: Iterable[Document | Source]) -> Iterator[tuple[Source | None, Iterator[Document]]]:
    """Each source by itself, and the documents between two sources as one lazy group."""
    stream = map(_checked, documents, itertools.count())
    waiting: list[Source] = []

    def run_of(first: Document) -> Iterator[Document]:
        yield first
        for item in stream:
            if isinstance(item, Source):
                waiting.append(item)
                return
            yield item

    for item in stream:
        waiting_item: Document | Source | None = item
        while waiting_item is not None:
            if isinstance(waiting_item, Source):
                yield waiting_item, iter(())
            else:
                yield None, run_of(waiting_item)
            waiting_item = waiting.pop() if waiting else None


def _stamp(unit: Unit) -> tuple[int, int]:
    try:
        status = os.stat(unit.path)
    except OSError:
        return (0, 0)
    return (status.st_size, status.st_mtime_ns)


def _refuse_twice(seen: set[str], paths: set[str]) -> None:
    for path in sorted(paths):
        if path in seen:
            raise ValueError(
                f"`documents` must have unique keys, got {path!r} twice. "
                "Let no file match two patterns, and give each document a name of its own."
            )
    seen |= paths
