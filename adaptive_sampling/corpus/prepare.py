"""From documents to a prepared folder: tokenizer, manifest, and a token store for training and for validation.

documents ──▶ manifest rows (duplicates, split) ──▶ kept texts on disk ──▶ tokenizer ──▶ train/ and validation/
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.corpus._extras import require
from adaptive_sampling.corpus._folders import atomic_folder, folder_lock, refuse_occupied
from adaptive_sampling.corpus.manifest import SPLITS, DocumentFilter, ManifestRow, Split, write_manifest
from adaptive_sampling.corpus.readers import Document
from adaptive_sampling.corpus.store import TokenStore
from adaptive_sampling.corpus.tokenize import (
    check_vocab_size,
    encode_batches,
    eos_id_of,
    for_documents,
    load_tokenizer,
    train_tokenizer,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# stage, done, total (None where unknown); documents while reading, bytes of text after that
Progress = Callable[[str, int, "int | None"], None]


@dataclass(frozen=True)
class SourceSummary:
    """What became of the documents of one source; bytes are UTF-8 bytes of kept text, tokens include EOS."""

    source: str
    documents: int
    duplicates: int
    train_documents: int
    validation_documents: int
    train_tokens: int
    validation_tokens: int
    bytes: int

    @property
    def bytes_per_token(self) -> float:
        """Bytes of kept text per stored token; 0.0 where nothing was kept."""
        tokens = self.train_tokens + self.validation_tokens
        return self.bytes / tokens if tokens else 0.0


@dataclass(frozen=True)
class PrepareSummary:
    """What `prepare` made; `vocab_size` counts the tokenizer's ids, `sources` are in order of first appearance."""

    out: Path
    vocab_size: int
    sources: tuple[SourceSummary, ...]


def prepare(
    documents: Iterable[Document],
    out: str | Path,
    *,
    vocab_size: int = 4096,
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    validation_fraction: float = 0.1,
    seed: int = 0,
    progress: Progress | None = None,
) -> PrepareSummary:
    """Make `out`/tokenizer.json, manifest.parquet, train/ and validation/, all or nothing.

    Exact duplicates (by normalised content) after the first and empty texts are left out. Each document is in one
    split, by hash(seed, content). The tokenizer is trained on the training split alone.

    Args:
        documents: Documents in the order of the stores; a generator is consumed once.
        out: New or empty folder.
        vocab_size: Largest number of ids of the tokenizer that is trained; not used when one is given.
        tokenizer: A tokenizers.Tokenizer, or the path of a tokenizer.json; default: one is trained.
        validation_fraction: Expected share of documents held out, in [0, 1).
        seed: Seed of the split.
        progress: Called with (stage, done, total) as the work goes on.

    Returns:
        Counts per source.

    Raises:
        StoreError: if `out` is occupied, or another process prepares it.
        ValueError: for bad settings, repeated keys, text that is no Unicode, or nothing left to train on.
        MissingExtraError: if pyarrow or tokenizers is not installed.

    Determinism: same documents and settings, same files. Cost: texts pass through a temporary file beside `out`; one
    batch of texts and tokens and one manifest row per document in memory.
    """
    if isinstance(validation_fraction, bool) or not 0 <= validation_fraction < 1:
        raise ValueError(f"`validation_fraction` must be at least 0 and below 1, got {validation_fraction!r}. Try 0.1.")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"`seed` must be an integer of at least 0, got {seed!r}. Try 0.")
    if tokenizer is None:
        check_vocab_size(vocab_size)
    require("pyarrow", "to write a manifest")
    require("tokenizers", "to tokenize")
    ready = None if tokenizer is None else _own_tokenizer(tokenizer)
    report = progress or (lambda stage, done, total: None)
    out = Path(out).expanduser().absolute()
    refuse_occupied(out, "out")
    with folder_lock(out), atomic_folder(out, "out") as folder:
        rows = _spool(documents, folder, DocumentFilter(validation_fraction=validation_fraction, seed=seed), report)
        kept = {split: [row for row in rows if row.kept and row.split == split] for split in SPLITS}
        _check_splits(kept, len(rows), validation_fraction)
        if ready is None:
            texts = _texts(folder, kept, "train", _Counter("training the tokenizer", report, kept["train"]))
            ready = train_tokenizer(texts, vocab_size)
        ready.save(str(folder / "tokenizer.json"))
        for split in SPLITS:
            counter = _Counter(f"tokenizing {split}", report, kept[split])
            TokenStore.write(
                folder / split,
                _counted(encode_batches(ready, _texts(folder, kept, split, counter)), kept[split]),
                vocab_size=ready.get_vocab_size(),
                eos_id=eos_id_of(ready),
                sources=(row.source for row in kept[split]),
                keys=(row.content_hash for row in kept[split]),
            )
            _spool_path(folder, split).unlink()
        write_manifest(folder / "manifest.parquet", rows)
        vocabulary = ready.get_vocab_size()
    return PrepareSummary(out, vocabulary, _summarise(rows))


class _Counter:
    """Reports the bytes of text of one stage."""

    def __init__(self, stage: str, report: Progress, rows: list[ManifestRow]) -> None:
        self._stage, self._report = stage, report
        self._done, self._total = 0, sum(row.bytes for row in rows)

    def add(self, size: int) -> None:
        self._done += size
        self._report(self._stage, self._done, self._total)


def _own_tokenizer(tokenizer: Any) -> Any:
    if isinstance(tokenizer, (str, os.PathLike)):
        return load_tokenizer(tokenizer)
    if not hasattr(tokenizer, "to_str"):
        raise TypeError(
            f"`tokenizer` must be a tokenizers.Tokenizer or a path, got {type(tokenizer).__name__}. "
            "Of a transformers tokenizer give its `backend_tokenizer`."
        )
    # A copy, so that the settings for whole documents do not leak into the caller's object.
    return for_documents(type(tokenizer).from_str(tokenizer.to_str()))


def _spool_path(folder: Path, split: Split) -> Path:
    return folder / f"{split}.texts"


def _spool(documents: Iterable[Document], folder: Path, rows_of: DocumentFilter, report: Progress) -> list[ManifestRow]:
    """Rows of all documents; the kept texts lie one after the other in a file per split."""
    rows: list[ManifestRow] = []
    with _spool_path(folder, "train").open("wb") as train, _spool_path(folder, "validation").open("wb") as validation:
        files = {"train": train, "validation": validation}
        for document in documents:
            row = rows_of.row(document.key, document.source, document.text)
            rows.append(row)
            if row.kept:
                files[row.split].write(document.text.encode("utf-8"))
            report("reading", len(rows), None)
    return rows


def _check_splits(kept: dict[Split, list[ManifestRow]], num_documents: int, validation_fraction: float) -> None:
    if not kept["train"] and not kept["validation"]:
        raise ValueError(
            f"`documents` must leave at least one for training, got {num_documents}, none with text. Check the files."
        )
    if not kept["train"]:
        raise ValueError(
            f"`documents` must leave at least one for training, got {num_documents}, of which "
            f"{len(kept['validation'])} are held out and none is left. Add documents, or take another seed."
        )
    if validation_fraction and not kept["validation"]:
        warnings.warn(
            f"the validation split is empty: none of {len(kept['train'])} documents was held out. "
            "Splits are made of whole documents: cut the text into more, or take another seed.",
            stacklevel=3,
        )


def _texts(folder: Path, kept: dict[Split, list[ManifestRow]], split: Split, counter: _Counter) -> Iterator[str]:
    with _spool_path(folder, split).open("rb") as file:
        for row in kept[split]:
            yield file.read(row.bytes).decode("utf-8")
            counter.add(row.bytes)


def _counted(batches: Iterable[NDArray[np.uint32]], rows: list[ManifestRow]) -> Iterator[NDArray[np.uint32]]:
    for row, ids in zip(rows, batches, strict=True):
        row.tokens = len(ids) + 1
        yield ids


def _summarise(rows: list[ManifestRow]) -> tuple[SourceSummary, ...]:
    summaries = []
    for source in dict.fromkeys(row.source for row in rows):
        own = [row for row in rows if row.source == source]
        train = [row.tokens for row in own if row.kept and row.split == "train"]
        validation = [row.tokens for row in own if row.kept and row.split == "validation"]
        summaries.append(
            SourceSummary(
                source=source,
                documents=len(own),
                duplicates=sum(row.reason.startswith("exact duplicate") for row in own),
                train_documents=len(train),
                validation_documents=len(validation),
                train_tokens=sum(train),
                validation_tokens=sum(validation),
                bytes=sum(row.bytes for row in own if row.kept),
            )
        )
    return tuple(summaries)
