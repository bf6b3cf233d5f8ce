"""A token store: one stream of token ids on disk, with the end, source and key of every document.

A folder of tokens.bin (little-endian uint16 or uint32), three .npy arrays with one entry per document, and
metadata.json with sizes and checksums. It is written once, whole or not at all, and only read after that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._files import write_json
from adaptive_sampling.corpus._folders import atomic_folder
from adaptive_sampling.corpus._store_writer import Key, checked_id, write_documents
from adaptive_sampling.errors import StoreError

FORMAT_VERSION = 1
_FORMAT = "adaptive-sampling token store"
_TOKENS = "tokens.bin"
_ARRAYS = {"document_ends": np.int64, "document_sources": np.int32, "document_keys": np.uint64}
_CHUNK_BYTES = 1 << 24


@dataclass(frozen=True)
class EosCheck:
    """EOS tokens held against `document_ends`, which alone decides where a document ends.

    Attributes:
        num_documents: Documents by `document_ends`.
        num_eos: EOS tokens in the store.
        without_eos: int64 indices of the documents whose last token is not EOS (or that are empty).
        scan_ends: int64 ends of the documents that a scan for EOS would find.
    """

    num_documents: int
    num_eos: int
    without_eos: NDArray[np.int64]
    scan_ends: NDArray[np.int64]

    @property
    def agrees(self) -> bool:
        """Whether every document ends with EOS and no EOS is elsewhere."""
        return self.num_documents == self.num_eos and not len(self.without_eos)

    def __str__(self) -> str:
        text = f"{self.num_documents} documents, {self.num_eos} EOS"
        if len(self.without_eos):
            some = ", ".join(str(index) for index in self.without_eos[:5].tolist())
            more = f" and {len(self.without_eos) - 5} more" if len(self.without_eos) > 5 else ""
            text += f"; no EOS at the end of document {some}{more}"
        inner = self.num_eos - (self.num_documents - len(self.without_eos))
        return text + (f"; {inner} EOS inside documents" if inner else "")


class TokenStore:
    """Token ids of many documents, read through a memory map. Made by `TokenStore.write` or `TokenStore.open`.

    Attributes:
        path: Absolute path of the folder.
        tokens: Read-only memory map, uint16 or uint32 [num_tokens].
        document_ends: int64 [num_documents], the token behind each document's last.
        document_sources: int32 [num_documents], indices into `source_names`.
        document_keys: uint64 [num_documents], hash of each document's key.
        source_names: Names of the sources, in order of first appearance.
        vocab_size: Number of ids of the vocabulary.
        eos_id: Id that ends a document.

    State: pickling carries the path alone; the copy opens the store again.
    """

    path: Path
    tokens: NDArray[Any]
    document_ends: NDArray[np.int64]
    document_sources: NDArray[np.int32]
    document_keys: NDArray[np.uint64]
    source_names: list[str]
    vocab_size: int
    eos_id: int

    def __init__(self) -> None:
        raise TypeError("`TokenStore` must be made by TokenStore.open(path) or TokenStore.write(path, documents, ...).")

    @property
    def num_tokens(self) -> int:
        """Number of tokens, EOS included."""
        return len(self.tokens)

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.document_ends)

    @property
    def document_starts(self) -> NDArray[np.int64]:
        """int64 [num_documents], the first token of each document; made anew at each call."""
        return np.concatenate([np.zeros(1, np.int64), self.document_ends])[:-1]

    @classmethod
    def write(
        cls,
        path: str | Path,
        documents: Iterable[Any],
        *,
        vocab_size: int,
        eos_id: int,
        sources: Iterable[str] | None = None,
        keys: Iterable[Key] | None = None,
        append_eos: bool = True,
    ) -> TokenStore:
        """Write a store and open it.

        Args:
            path: New or empty folder; its parents are made.
            documents: Integer sequences, arrays or tensors, one per document; a generator is consumed one by one.
            vocab_size: Number of ids; up to 65,536 they are stored as uint16, above as uint32.
            eos_id: Id in [0, vocab_size).
            sources: One name per document; default: one source named "default".
            keys: One string, integer or bytes per document, the same on every machine; default: hash of the token ids.
            append_eos: Append EOS to each document; False stores the documents as given.

        Raises:
            StoreError: if `path` is occupied.
            ValueError: for an id outside the vocabulary, or `sources` or `keys` of another length than `documents`.
            TypeError: for documents that are no sequences of integers.

        On any error nothing is left on disk. Cost: one document in memory, and 20 bytes for each written.
        """
        path = Path(path).expanduser().absolute()
        vocab_size = checked_id("vocab_size", vocab_size, 1, 2**32)
        eos_id = checked_id("eos_id", eos_id, 0, vocab_size - 1)
        dtype = np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")
        with atomic_folder(path, "path") as folder:
            written = write_documents(
                folder / _TOKENS,
                documents,
                dtype=dtype,
                vocab_size=vocab_size,
                eos_id=eos_id if append_eos else None,
                sources=sources,
                keys=keys,
            )
            for name, kind in _ARRAYS.items():
                np.save(folder / f"{name}.npy", np.frombuffer(getattr(written, name), dtype=kind), allow_pickle=False)
            files = [_TOKENS, *(f"{name}.npy" for name in _ARRAYS)]
            metadata = {
                "format": _FORMAT,
                "version": FORMAT_VERSION,
                "dtype": dtype.str,
                "num_tokens": written.document_ends[-1] if written.document_ends else 0,
                "num_documents": len(written.document_ends),
                "vocab_size": vocab_size,
                "eos_id": eos_id,
                "source_names": written.source_names,
                "files": {
                    name: {"bytes": (folder / name).stat().st_size, "blake2b": _checksum(folder / name)}
                    for name in files
                },
            }
            write_json(folder / "metadata.json", metadata)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path, verify: Literal["size", "hash"] = "size") -> TokenStore:
        """Open the store at `path`.

        Args:
            path: Folder that `write` made.
            verify: "size" compares the size of every file with the recorded one; "hash" reads all for its checksum too.

        Raises:
            StoreError: if there is no store, it is damaged, or a newer version of this package wrote it.
            ValueError: for another `verify`.
        """
        if verify not in ("size", "hash"):
            raise ValueError(
                f"`verify` must be 'size' or 'hash', got {verify!r}. 'size' takes no time, 'hash' reads all."
            )
        path = Path(path).expanduser().absolute()
        metadata = _read_metadata(path)
        try:
            for name, recorded in metadata["files"].items():
                _verify_file(path / name, recorded, verify)
            store = object.__new__(cls)
            store.path = path
            store.vocab_size = int(metadata["vocab_size"])
            store.eos_id = int(metadata["eos_id"])
            store.source_names = [str(name) for name in metadata["source_names"]]
            store.tokens = _map_tokens(path / _TOKENS, np.dtype(metadata["dtype"]), int(metadata["num_tokens"]))
            for name in _ARRAYS:
                setattr(store, name, _map_array(path / f"{name}.npy", int(metadata["num_documents"])))
        except (KeyError, TypeError, AttributeError) as error:
            raise StoreError(
                f"metadata.json of {str(path)!r} must be complete, got {type(error).__name__}: {error}. "
                "Write the store again."
            ) from None
        if store.num_tokens != (store.document_ends[-1] if store.num_documents else 0):
            raise StoreError(
                f"the last document of {str(path)!r} must end at {store.num_tokens}, its number of tokens, "
                f"got {store.document_ends[-1:].tolist()}. Write the store again."
            )
        return store

    def check_eos(self) -> EosCheck:
        """Hold the EOS tokens against `document_ends`; `str` of the result says what differs.

        Cost: reads all tokens once, in chunks.
        """
        chunk = _CHUNK_BYTES // self.tokens.itemsize
        starts = range(0, self.num_tokens, chunk)
        parts = [np.flatnonzero(self.tokens[start : start + chunk] == self.eos_id) + start + 1 for start in starts]
        eos_ends = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
        ends = np.asarray(self.document_ends)
        ends_with_eos = np.isin(ends, eos_ends, assume_unique=False) & (ends > self.document_starts)
        rest = [self.num_tokens] if self.num_tokens and (not len(eos_ends) or eos_ends[-1] < self.num_tokens) else []
        scan_ends = np.concatenate([eos_ends, np.array(rest, np.int64)])
        return EosCheck(self.num_documents, len(eos_ends), np.flatnonzero(~ends_with_eos).astype(np.int64), scan_ends)

    def __reduce__(self) -> tuple[Any, ...]:
        return (TokenStore.open, (str(self.path),))

    def __repr__(self) -> str:
        return f"TokenStore({str(self.path)!r}, num_tokens={self.num_tokens}, num_documents={self.num_documents})"


def _read_metadata(path: Path) -> dict[str, Any]:
    try:
        metadata = json.loads((path / "metadata.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(
            f"`path` must be the folder of a token store, got {str(path)!r}, which has no metadata.json. "
            "Write one with TokenStore.write or `adaptive-sampling prepare`."
        ) from None
    except ValueError as error:
        raise StoreError(
            f"metadata.json of {str(path)!r} must be JSON, got {error}. Copy or write the store again."
        ) from None
    if not isinstance(metadata, dict) or metadata.get("format") != _FORMAT:
        raise StoreError(f"`path` must be a token store, got {str(path)!r}, whose metadata.json is of something else.")
    version = metadata.get("version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise StoreError(
            f"format version of {str(path)!r} must be at most {FORMAT_VERSION}, got {version!r}, which is newer. "
            "Upgrade lightning-adaptive-sampling, or write the store again."
        )
    return metadata


def _verify_file(file: Path, recorded: dict[str, Any], verify: str) -> None:
    found = file.stat().st_size if file.exists() else 0
    if found != recorded["bytes"] or not file.exists():
        raise StoreError(f"`{file}`: expected {recorded['bytes']} bytes, got {found}. Copy or write the store again.")
    if verify == "hash" and (checksum := _checksum(file)) != recorded["blake2b"]:
        raise StoreError(
            f"`{file}`: expected checksum {recorded['blake2b']}, got {checksum}. Copy or write the store again."
        )


def _checksum(file: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for chunk in _chunks(file):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK_BYTES):
            yield chunk


def _map_tokens(file: Path, dtype: np.dtype[Any], num_tokens: int) -> NDArray[Any]:
    found = file.stat().st_size
    if found != num_tokens * dtype.itemsize:
        raise StoreError(
            f"`{file}`: expected {num_tokens * dtype.itemsize} bytes for {num_tokens} tokens, got {found}. "
            "Copy or write the store again."
        )
    if not num_tokens:  # an empty file cannot be mapped
        empty = np.zeros(0, dtype)
        empty.flags.writeable = False
        return empty
    return np.memmap(file, dtype=dtype, mode="r", shape=(num_tokens,))


def _map_array(file: Path, length: int) -> NDArray[Any]:
    if not length:
        return np.load(file, allow_pickle=False)  # type: ignore[no-any-return]
    # A plain view: indexing the memmap class itself is several times slower.
    array: NDArray[Any] = np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
    if array.shape != (length,):
        raise StoreError(f"`{file}`: expected {length} entries, got shape {array.shape}. Write the store again.")
    return array
