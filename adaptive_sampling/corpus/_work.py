"""The folder beside the target in which a corpus is prepared, and what of it a killed run has left."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._files import write_json
from adaptive_sampling.corpus._extras import require
from adaptive_sampling.corpus._tasks import open_tokens, replacing
from adaptive_sampling.corpus.sources import PIECE_BYTES, Source, Unit

if TYPE_CHECKING:
    from adaptive_sampling.corpus.readers import Document

Chunk = tuple[tuple[Source, Unit], ...]


class Work:
    """Files of a run in progress, under `.NAME.work` beside the target.

    Attributes:
        path: The folder.
        read: Texts and rows of each chunk.
        spool: Documents that were handed over one by one.
    """

    def __init__(self, out: Path) -> None:
        self.path = out.with_name(f".{out.name}.work")
        self.read = self.path / "read"
        self.spool = self.path / "spool"

    def begin(self, plan: dict[str, Any]) -> bool:
        """Keep what a run of the same plan has left, and nothing else; whether there is any.

        The plan holds everything that the result depends on: files with size and time, settings, tokenizer.
        """
        digest = hashlib.blake2b(json.dumps(plan, sort_keys=True).encode(), digest_size=16).hexdigest()
        known = self.path / "plan.json"
        try:
            same = json.loads(known.read_text(encoding="utf-8"))["digest"] == digest
        except (OSError, ValueError, KeyError, TypeError):
            same = False
        if not same:
            for entry in self.path.iterdir() if self.path.is_dir() else ():
                if entry == self.spool:
                    continue
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
            self.read.mkdir(parents=True, exist_ok=True)
            write_json(known, {"digest": digest})
        shutil.rmtree(self.path / "new", ignore_errors=True)
        return bool(same)

    def remove(self) -> None:
        """Take everything away."""
        shutil.rmtree(self.path, ignore_errors=True)

    def is_read(self, number: int) -> bool:
        """Whether a chunk was read to its end; a crash of the machine may have left a file that is not whole."""
        arrow = require("pyarrow", "to prepare a corpus")
        try:
            text = int(self.rows(number, ["bytes"])["bytes"].to_numpy().sum())
            return (self.read / f"{number:06}.text").stat().st_size == text
        except (OSError, arrow.ArrowInvalid):
            return False

    def is_tokenized(self, folder: Path, number: int, dtype: np.dtype[Any]) -> bool:
        """Whether the tokens of a chunk were written to their end."""
        try:
            with np.load(folder / f"{number:06}.npz", allow_pickle=False) as arrays:
                sizes = {".bin": int(arrays["lengths"].sum()), ".sketch": int(arrays["sketch_lengths"].sum())}
            stem = folder / f"{number:06}"
            return all(stem.with_suffix(kind).stat().st_size == n * dtype.itemsize for kind, n in sizes.items())
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return False

    def rows(self, number: int, columns: list[str]) -> Any:
        """Arrow table of some columns (none named: all) of a chunk that was read."""
        parquet = require("pyarrow.parquet", "to prepare a corpus")
        return parquet.read_table(self.read / f"{number:06}.parquet", columns=columns or None)

    def spool_documents(self, documents: Iterable[Document], first: int) -> Iterator[tuple[Unit, str, int]]:
        """Write documents to files that can be read again: (unit, checksum, documents) of each.

        Raises:
            ValueError: if a text or key is no valid Unicode.
        """
        self.spool.mkdir(parents=True, exist_ok=True)
        lines: list[bytes] = []
        size = number = 0
        for document in documents:
            try:
                line = json.dumps([document.source, document.key, document.text], ensure_ascii=False).encode("utf-8")
            except UnicodeEncodeError:
                raise _no_unicode(document) from None
            lines.append(line + b"\n")
            size += len(line) + 1
            if size >= PIECE_BYTES:
                yield self._spool_file(first + number, lines, size)
                lines, size, number = [], 0, number + 1
        if lines:
            yield self._spool_file(first + number, lines, size)

    def _spool_file(self, number: int, lines: list[bytes], size: int) -> tuple[Unit, str, int]:
        path = self.spool / f"{number:06}.jsonl"
        digest = hashlib.blake2b(digest_size=16)
        with replacing(path) as file:
            for line in lines:
                file.write(line)
                digest.update(line)
        return Unit(os.fspath(path), "spool", 0, size, 1, size), digest.hexdigest(), len(lines)


def _no_unicode(document: Document) -> ValueError:
    for character, letter in enumerate(document.text):
        if "\ud800" <= letter <= "\udfff":
            return ValueError(
                f"`documents` must be valid Unicode, got a lone surrogate in {document.key!r} at character {character}."
                " Decode the text with errors='replace'."
            )
    return ValueError(f"`documents` must have keys of valid Unicode, got {document.key!r}. Name it otherwise.")


def chunks_of(units: Iterable[tuple[Source, Unit]]) -> list[Chunk]:
    """Consecutive units that are read together, about `PIECE_BYTES` each time, however many workers there are."""
    chunks: list[Chunk] = []
    gathered: list[tuple[Source, Unit]] = []
    size = 0
    for pair in units:
        gathered.append(pair)
        size += pair[1].size + 64
        if size >= PIECE_BYTES:
            chunks.append(tuple(gathered))
            gathered, size = [], 0
    if gathered:
        chunks.append(tuple(gathered))
    return chunks


class ChunkTokens:
    """Tokens and sketches of all chunks, by document, from memory maps that are opened once.

    Attributes:
        folder: Where the chunks lie.
        dtype: Of tokens.
        lengths: int64 per chunk: tokens of each document, EOS included.
        all_lengths: int64 `[rows]`, the same in one piece.
        sketch_lengths: int64 `[rows]`, tokens of each document's sketch.
        first_rows: int64 `[chunks]`, row of each chunk's first document.
    """

    def __init__(self, folder: Path, num_chunks: int, dtype: np.dtype[Any]) -> None:
        self.folder, self.dtype = folder, dtype
        self._maps: dict[tuple[str, int], NDArray[Any]] = {}
        self.lengths: list[NDArray[np.int64]] = []
        sketch_lengths: list[NDArray[np.int64]] = []
        for number in range(num_chunks):
            with np.load(folder / f"{number:06}.npz", allow_pickle=False) as arrays:
                self.lengths.append(arrays["lengths"])
                sketch_lengths.append(arrays["sketch_lengths"])
        counts = np.array([len(lengths) for lengths in self.lengths], np.int64)
        self.first_rows = np.cumsum(counts) - counts
        self.all_lengths, self._ends = _joined(self.lengths)
        self.sketch_lengths, self._sketch_ends = _joined(sketch_lengths)

    def chunk(self, number: int, kind: str = ".bin") -> NDArray[Any]:
        """All tokens of a chunk, or of the sketches of its documents."""
        return open_tokens(self.folder / f"{number:06}{kind}", self.dtype)

    def paragraphs(self, number: int) -> NDArray[np.int64]:
        """Starts of paragraphs in the tokens of a chunk."""
        with np.load(self.folder / f"{number:06}.npz", allow_pickle=False) as arrays:
            starts: NDArray[np.int64] = arrays["paragraphs"]
            return starts

    def document(self, row: int) -> NDArray[Any]:
        """Tokens of the document of a row, without its EOS."""
        end, length = int(self._ends[row]), int(self.all_lengths[row])
        return self._map_of(row, ".bin")[end - length : max(end - 1, end - length)]

    def sketch(self, row: int) -> NDArray[Any]:
        """Tokens that stand for the document of a row, see `duplicates.sketch`."""
        end = int(self._sketch_ends[row])
        return self._map_of(row, ".sketch")[end - int(self.sketch_lengths[row]) : end]

    def _map_of(self, row: int, kind: str) -> NDArray[Any]:
        number = int(np.searchsorted(self.first_rows, row, side="right")) - 1
        while not len(self.lengths[number]):
            number -= 1
        if (kind, number) not in self._maps:
            if len(self._maps) >= 256:
                self._maps.clear()
            self._maps[kind, number] = self.chunk(number, kind)
        return self._maps[kind, number]


def _joined(lengths: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths of all chunks, and where each document ends in its own chunk."""
    none = np.zeros(0, np.int64)
    return np.concatenate([none, *lengths]), np.concatenate([none, *(np.cumsum(some) for some in lengths)])
