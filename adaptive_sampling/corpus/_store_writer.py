"""Token ids to the files of a store: shard after shard, never more than a block in memory."""

from __future__ import annotations

import hashlib
import os
import shutil
from array import array
from collections.abc import Iterable, Iterator, Sized
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import stable_hash
from adaptive_sampling.corpus.shards import check_shard_bytes, shard_numbers

Key = str | int | bytes
TOKENS = "tokens.bin"
PARAGRAPHS = "paragraph_starts.npy"
ARRAYS = {"document_ends": np.int64, "document_sources": np.int32, "document_keys": np.uint64}
_MISSING = object()


def shard_name(number: int) -> str:
    """File of a shard where there are several; a single one is `TOKENS`."""
    return f"tokens-{number:05}.bin"


def checked_id(name: str, value: Any, low: int, high: int) -> int:
    """`value` as int, if it is an integer in [low, high].

    Raises:
        ValueError: otherwise.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise ValueError(
            f"`{name}` must be an integer from {low} to {high}, got {value!r}. Take it from the tokenizer in use."
        )
    return int(value)


class StoreWriter:
    """Writes the files of a store into a folder; `finish` says what they are.

    Args:
        folder: Folder that is there.
        vocab_size: Number of ids; up to 65,536 they are stored as uint16, above as uint32.
        shard_bytes: Bytes of a file of tokens; a document that is larger has a file of its own.

    Cost: 20 bytes of memory per document, and the blocks that are handed over.
    """

    def __init__(self, folder: Path, *, vocab_size: int, shard_bytes: int) -> None:
        self._folder = folder
        self._vocab_size = vocab_size
        self.dtype = np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")
        self._budget = check_shard_bytes(shard_bytes)
        self._arrays: dict[str, array[Any]] = {
            name: array(code) for name, code in zip(ARRAYS, ("q", "i", "Q"), strict=True)
        }
        self.source_names: list[str] = []
        self._source_index: dict[str, int] = {}
        self.num_tokens = 0
        self.shard_tokens: list[int] = []
        self._digests: list[str] = []
        self._paragraphs: IO[bytes] | None = None
        self._num_paragraphs = 0
        self._open_shard()

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._paragraphs is not None:
            self._paragraphs.close()

    def _open_shard(self) -> None:
        self._file = (self._folder / shard_name(len(self.shard_tokens))).open("wb")
        self._digest = hashlib.blake2b(digest_size=16)
        self._in_shard = 0

    def _close_shard(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self.shard_tokens.append(self._in_shard)
        self._digests.append(self._digest.hexdigest())

    def append(
        self,
        tokens: NDArray[Any],
        lengths: NDArray[np.int64],
        sources: Iterable[str],
        keys: NDArray[np.uint64],
        paragraph_starts: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Append documents.

        Args:
            tokens: Ids of all of them, one behind the other, EOS included.
            lengths: Tokens of each.
            sources: Source of each.
            keys: Hash of the key of each.
            paragraph_starts: Positions in `tokens`; None in every call of a store, or in none.

        Returns:
            int64, the shard of each.

        Raises:
            ValueError: for an id outside the vocabulary.
        """
        if len(tokens) and int(tokens.max()) >= self._vocab_size:
            at = int((tokens >= self._vocab_size).argmax())
            raise ValueError(
                f"`tokens` must hold ids below vocab_size = {self._vocab_size}, got {tokens[at]} at {at}. "
                "Give the vocab_size of the tokenizer that made them."
            )
        data = tokens.astype(self.dtype, copy=False)
        numbers = shard_numbers(lengths * self.dtype.itemsize, self._budget, used=self._in_shard * self.dtype.itemsize)
        ends = np.cumsum(lengths)
        first_shard, start = len(self.shard_tokens), 0
        for number in range(int(numbers[-1]) + 1 if len(numbers) else 0):
            if number:
                self._close_shard()
                self._open_shard()
            behind = int(np.searchsorted(numbers, number, side="right"))
            stop = int(ends[behind - 1]) if behind else 0
            block = data[start:stop]
            self._file.write(block.data if block.flags.c_contiguous else block.tobytes())
            self._digest.update(np.ascontiguousarray(block).data)
            self._in_shard += stop - start
            start = stop
        self._arrays["document_ends"].frombytes((ends + self.num_tokens).astype(np.int64).tobytes())
        codes = [self._source_index.setdefault(source, len(self._source_index)) for source in sources]
        self._arrays["document_sources"].extend(codes)
        self._arrays["document_keys"].frombytes(keys.astype(np.uint64).tobytes())
        if paragraph_starts is not None:
            if self._paragraphs is None:
                self._paragraphs = (self._folder / f"{PARAGRAPHS}.raw").open("wb")
            self._paragraphs.write((paragraph_starts + self.num_tokens).astype("<i8").tobytes())
            self._num_paragraphs += len(paragraph_starts)
        self.num_tokens += len(data)
        return numbers + first_shard

    def finish(self) -> dict[str, Any]:
        """Close all files; returns what the metadata must say of them."""
        self._close_shard()
        self.source_names = list(self._source_index)
        names = [shard_name(number) for number in range(len(self.shard_tokens))]
        if len(names) == 1:
            os.replace(self._folder / names[0], self._folder / TOKENS)
            names = [TOKENS]
        files = {
            name: {"bytes": count * self.dtype.itemsize, "blake2b": digest}
            for name, count, digest in zip(names, self.shard_tokens, self._digests, strict=True)
        }
        for name, kind in ARRAYS.items():
            np.save(self._folder / f"{name}.npy", np.frombuffer(self._arrays[name], dtype=kind), allow_pickle=False)
        small = [f"{name}.npy" for name in ARRAYS]
        if self._paragraphs is not None:
            self._finish_paragraphs(self._paragraphs)
            small.append(PARAGRAPHS)
        for name in small:
            files[name] = {
                "bytes": (self._folder / name).stat().st_size,
                "blake2b": file_checksum(self._folder / name),
            }
        return {
            "dtype": self.dtype.str,
            "num_tokens": self.num_tokens,
            "num_documents": len(self._arrays["document_ends"]),
            "source_names": self.source_names,
            "shards": [{"file": name, "tokens": count} for name, count in zip(names, self.shard_tokens, strict=True)],
            "files": files,
        }

    def _finish_paragraphs(self, raw: IO[bytes]) -> None:
        raw.close()
        with (self._folder / PARAGRAPHS).open("wb") as file:
            header = {"descr": "<i8", "fortran_order": False, "shape": (self._num_paragraphs,)}
            np.lib.format.write_array_header_1_0(file, header)
            with open(raw.name, "rb") as content:
                shutil.copyfileobj(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.unlink(raw.name)


_CHUNK_BYTES = 1 << 24


def file_checksum(file: Path) -> str:
    """blake2b of a file, 32 hexadecimal digits; read in blocks."""
    digest = hashlib.blake2b(digest_size=16)
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def write_documents(
    writer: StoreWriter,
    documents: Iterable[Any],
    *,
    vocab_size: int,
    eos_id: int | None,
    sources: Iterable[str] | None,
    keys: Iterable[Key] | None,
) -> None:
    """Hand the ids of all `documents` to `writer`, each followed by `eos_id` unless that is None."""
    given: tuple[tuple[str, Any], ...] = (("sources", sources), ("keys", keys))
    for name, entries in (("documents", documents), *given):
        iterable = hasattr(entries, "__iter__") or hasattr(entries, "__getitem__")
        if not iterable and (name == "documents" or entries is not None):
            raise TypeError(f"`{name}` must be one entry per document, got {entries!r}. Give a list.")
    for name, labels in given:
        if isinstance(labels, (str, bytes)):
            raise TypeError(f"`{name}` must be one entry per document, got {labels!r}. Give a list.")
        if isinstance(labels, Sized) and isinstance(documents, Sized) and len(labels) != len(documents):
            raise _length_error(name, f"{len(labels)} for {len(documents)} documents")
    source_of, key_of = iter(() if sources is None else sources), iter(() if keys is None else keys)
    eos = np.zeros(0, writer.dtype) if eos_id is None else np.array([eos_id], writer.dtype)
    number = -1
    block = _Block(writer)
    for number, document in enumerate(documents):
        ids = _checked_document(document, number, vocab_size)
        source = "default" if sources is None else _checked_source(_next_label("sources", source_of, number), number)
        key = _content_key(ids) if keys is None else _checked_key(_next_label("keys", key_of, number), number)
        block.add([ids.astype(writer.dtype), eos], source, stable_hash(key) & 0xFFFFFFFFFFFFFFFF)
    block.flush()
    for name, rest in (("sources", source_of), ("keys", key_of)):
        if next(rest, _MISSING) is not _MISSING:
            raise _length_error(name, f"more than the {number + 1} documents")


class _Block:
    """Documents that are handed over together: a call of the writer costs more than a short document."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._clear()

    def _clear(self) -> None:
        self._pieces: list[NDArray[Any]] = []
        self._lengths: list[int] = []
        self._sources: list[str] = []
        self._keys: list[int] = []
        self._size = 0

    def add(self, pieces: list[NDArray[Any]], source: str, key: int) -> None:
        self._pieces += pieces
        self._lengths.append(sum(map(len, pieces)))
        self._sources.append(source)
        self._keys.append(key)
        self._size += self._lengths[-1]
        if self._size > 1 << 20 or len(self._lengths) >= 4096:
            self.flush()

    def flush(self) -> None:
        if self._lengths:
            tokens = np.concatenate(self._pieces)
            lengths = np.array(self._lengths, np.int64)
            self._writer.append(tokens, lengths, self._sources, np.array(self._keys, np.uint64))
        self._clear()


def _next_label(name: str, labels: Iterator[Any], number: int) -> Any:
    label = next(labels, _MISSING)
    if label is _MISSING:
        raise _length_error(name, f"{number}, fewer than documents")
    return label


def _length_error(name: str, found: str) -> ValueError:
    return ValueError(f"`{name}` must have one entry per document, got {found}. Give one for each, in the same order.")


def _checked_document(document: Any, number: int, vocab_size: int) -> NDArray[Any]:
    ids = np.asarray(document)
    if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
        raise TypeError(
            f"`documents` must be one-dimensional sequences of integers, got shape {ids.shape} and dtype {ids.dtype} "
            f"for document {number}. Tokenize the text first."
        )
    bad = (ids < 0) | (ids >= vocab_size)
    if bad.any():
        at = int(bad.argmax())
        raise ValueError(
            f"`documents` must hold ids from 0 to vocab_size - 1 = {vocab_size - 1}, got {ids[at]} at token {at} of "
            f"document {number}. Give the vocab_size of the tokenizer that made it."
        )
    return ids


def _checked_source(source: Any, number: int) -> str:
    if not isinstance(source, str) or not source:
        raise ValueError(f"`sources` must be names, got {source!r} for document {number}. Give strings such as 'wiki'.")
    return source


def _checked_key(key: Any, number: int) -> Key:
    if isinstance(key, np.integer):
        key = int(key)
    if isinstance(key, bool) or not isinstance(key, (str, int, bytes)):
        raise ValueError(
            f"`keys` must be strings, integers or bytes, got {key!r} for document {number}. Name each document."
        )
    return key


def _content_key(ids: NDArray[Any]) -> bytes:
    """Hash of the ids, whatever the dtype that they come in."""
    return hashlib.blake2b(ids.astype("<u4").tobytes(), digest_size=16).digest()
