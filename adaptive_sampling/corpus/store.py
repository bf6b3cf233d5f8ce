"""A token store: one stream of token ids on disk, with the end, source and key of every document.

A folder of tokens.bin (little-endian uint16 or uint32; tokens-00000.bin, tokens-00001.bin, ... where the byte budget of
a file makes it several), three .npy arrays with one entry per document, paragraph_starts.npy where paragraphs are
known, and metadata.json with sizes and checksums. It is written once, whole or not at all, and only read after that.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._files import checked_path, write_json
from adaptive_sampling.corpus._folders import atomic_folder
from adaptive_sampling.corpus._sharded import ShardedTokens
from adaptive_sampling.corpus._store_checks import check_documents, names_of, whole_number
from adaptive_sampling.corpus._store_writer import (
    ARRAYS,
    PARAGRAPHS,
    TOKENS,
    Key,
    StoreWriter,
    checked_id,
    file_checksum,
    write_documents,
)
from adaptive_sampling.corpus.manifest import naming_manifest, row_of_document
from adaptive_sampling.corpus.shards import SHARD_BYTES, check_shard_bytes
from adaptive_sampling.errors import StoreError, clause

FORMAT_VERSION = 1
_FORMAT = "adaptive-sampling token store"
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
        tokens: Read-only tokens, uint16 or uint32 [num_tokens]: a memory map where there is one shard; where there
            are more, a `ShardedTokens` of several maps, which is indexed the same way.
        document_ends: int64 [num_documents], the token behind each document's last.
        document_sources: int32 [num_documents], indices into `source_names`.
        document_keys: uint64 [num_documents], hash of each document's key.
        source_names: Names of the sources, in order of first appearance.
        vocab_size: Number of ids of the vocabulary.
        eos_id: Id that ends a document.
        paragraph_starts: int64 [num_paragraphs], rising positions of the first token of each paragraph, the first of a
            document included; None where the store was not made from text.

    State: pickling carries the path alone; the copy opens the store again.
    """

    path: Path
    tokens: Any
    document_ends: NDArray[np.int64]
    document_sources: NDArray[np.int32]
    document_keys: NDArray[np.uint64]
    source_names: list[str]
    vocab_size: int
    eos_id: int
    paragraph_starts: NDArray[np.int64] | None
    _shard_tokens: list[int]

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
        shard_bytes: int = SHARD_BYTES,
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
            shard_bytes: Bytes of a file of tokens, EOS counted; a larger document has a file of its own.

        Raises:
            StoreError: if `path` is occupied.
            ValueError: for an id outside the vocabulary, or `sources` or `keys` of another length than `documents`.
            TypeError: for documents that are no sequences of integers.

        On any error nothing is left on disk. Cost: one document in memory, and 20 bytes for each written.
        """
        if not isinstance(append_eos, bool):
            raise TypeError(f"`append_eos` must be True or False, got {append_eos!r}. Give a bool.")
        path = checked_path("path", path).absolute()
        vocab_size = checked_id("vocab_size", vocab_size, 1, 2**32)
        eos_id = checked_id("eos_id", eos_id, 0, vocab_size - 1)
        check_shard_bytes(shard_bytes)
        with (
            atomic_folder(path, "path") as folder,
            StoreWriter(folder, vocab_size=vocab_size, shard_bytes=shard_bytes) as writer,
        ):
            write_documents(
                writer,
                documents,
                vocab_size=vocab_size,
                eos_id=eos_id if append_eos else None,
                sources=sources,
                keys=keys,
            )
            write_metadata(folder, writer, vocab_size=vocab_size, eos_id=eos_id)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path, verify: Literal["size", "hash"] = "size") -> TokenStore:
        """Open the store at `path`.

        Args:
            path: Folder that `write` made.
            verify: "size" compares the size of every file with the recorded one, and looks whether documents follow one
                another; "hash" reads all for its checksum too.

        Raises:
            StoreError: if there is no store, it is damaged, or a newer version of this package wrote it.
            ValueError: for another `verify`.
            TypeError: if `path` is no path.
        """
        if verify not in ("size", "hash"):
            raise ValueError(
                f"`verify` must be 'size' or 'hash', got {verify!r}. 'size' takes no time, 'hash' reads all."
            )
        path = checked_path("path", path).absolute()
        metadata = _read_metadata(path)
        try:
            for name, recorded in metadata["files"].items():
                whole_number(path, f"files.{name}.bytes", recorded["bytes"])
                _verify_file(path / _plain_name(name), recorded, verify)
            store = object.__new__(cls)
            store.path = path
            store.vocab_size = whole_number(path, "vocab_size", metadata["vocab_size"], 1, 2**32)
            store.eos_id = whole_number(path, "eos_id", metadata["eos_id"], 0, store.vocab_size - 1)
            store.source_names = names_of(path, metadata["source_names"])
            dtype, num_tokens = np.dtype(metadata["dtype"]), whole_number(path, "num_tokens", metadata["num_tokens"])
            num_documents = whole_number(path, "num_documents", metadata["num_documents"])
            shards = metadata.get("shards", [])
            if len(shards) < 2:
                shards = [{"file": TOKENS, "tokens": num_tokens}]
            store._shard_tokens = [whole_number(path, "shards.tokens", shard["tokens"]) for shard in shards]
            maps = [_map_tokens(path / _plain_name(shard["file"]), dtype, shard["tokens"]) for shard in shards]
            store.tokens = maps[0] if len(maps) == 1 else ShardedTokens(maps)
            for name, kind in ARRAYS.items():
                setattr(store, name, _map_array(path / f"{name}.npy", kind, num_documents))
            known = PARAGRAPHS in metadata["files"]
            store.paragraph_starts = _map_array(path / PARAGRAPHS, np.int64, None) if known else None
        # np.dtype raises SyntaxError for some texts.
        except (LookupError, TypeError, AttributeError, ValueError, OSError, SyntaxError) as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(
                f"metadata.json of {str(path)!r} must be complete, got {type(error).__name__}: {clause(error)}. "
                "Write the store again."
            ) from None
        check_documents(store)
        if store.num_tokens != num_tokens or num_tokens != (store.document_ends[-1] if store.num_documents else 0):
            raise StoreError(
                f"the last document of {str(path)!r} must end at {num_tokens}, its number of tokens, "
                f"got {store.document_ends[-1:].tolist()} and {store.num_tokens} tokens. Write the store again."
            )
        if metadata.get("checksum", _metadata_checksum(metadata)) != _metadata_checksum(metadata):
            raise StoreError(
                f"metadata.json of {str(path)!r} must be as it was written: expected checksum "
                f"{metadata['checksum']!r}, got {_metadata_checksum(metadata)}. Copy or write the store again."
            )
        return store

    @property
    def num_shards(self) -> int:
        """Number of files of tokens."""
        return len(self._shard_tokens)

    def manifest_row(self, document: int) -> dict[str, Any] | None:
        """What the manifest of a prepared folder says of a document of this store.

        Args:
            document: Index in the store.

        Returns:
            The fields of `ManifestRow` as a dictionary; None if the store lies in no folder with a manifest.

        Raises:
            IndexError: for an index out of range.
            MissingExtraError: if pyarrow is not installed.
            StoreError: if the manifest cannot be read.

        Cost: reads three columns of the manifest.
        """
        if not 0 <= document < self.num_documents:
            raise IndexError(f"`document` must be in [0, {self.num_documents}), got {document}.")
        manifest = self.path.parent / "manifest.parquet"
        if not manifest.is_file():
            return None
        with naming_manifest(manifest):
            return row_of_document(manifest, self.path.name, int(document))

    def check_eos(self) -> EosCheck:
        """Hold the EOS tokens against `document_ends`; `str` of the result says what differs.

        Cost: reads all tokens once, in chunks.
        """
        chunk = _CHUNK_BYTES // self.tokens.itemsize
        starts = range(0, self.num_tokens, chunk)
        parts = [
            np.flatnonzero(np.asarray(self.tokens[start : start + chunk]) == self.eos_id) + start + 1
            for start in starts
        ]
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


def write_metadata(folder: Path, writer: StoreWriter, *, vocab_size: int, eos_id: int) -> None:
    """Finish `writer` and write the metadata, the last file of a store."""
    metadata: dict[str, Any] = {
        "format": _FORMAT,
        "version": FORMAT_VERSION,
        "vocab_size": vocab_size,
        "eos_id": eos_id,
        **writer.finish(),
    }
    write_json(folder / "metadata.json", {**metadata, "checksum": _metadata_checksum(metadata)})


def _metadata_checksum(metadata: dict[str, Any]) -> str:
    """Of everything but itself, so that a changed number anywhere is seen."""
    content = {name: value for name, value in metadata.items() if name != "checksum"}
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def _plain_name(name: str) -> str:
    if Path(name).name != name:
        raise StoreError(f"files of a store must lie in its folder, got {name!r} in its metadata. Write it again.")
    return name


def _read_metadata(path: Path) -> dict[str, Any]:
    try:
        metadata = json.loads((path / "metadata.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        cure = "Write one with TokenStore.write or `adaptive-sampling prepare`."
        if (path / "train" / "metadata.json").exists():
            cure = f"It was made by prepare: did you mean {str(path / 'train')!r}?"
        raise StoreError(
            f"`path` must be the folder of a token store, got {str(path)!r}, which has no metadata.json. {cure}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise StoreError(
            f"metadata.json of {str(path)!r} must be JSON, got {clause(error)}. Copy or write the store again."
        ) from None
    except OSError as error:
        raise StoreError(
            f"metadata.json of {str(path)!r} must be readable, got {clause(error)}. Check it and its permissions."
        ) from error
    if not isinstance(metadata, dict) or metadata.get("format") != _FORMAT:
        raise StoreError(f"`path` must be a token store, got {str(path)!r}, whose metadata.json is of something else.")
    version = metadata.get("version")
    version = whole_number(path, "version", version, 1)
    if version > FORMAT_VERSION:
        raise StoreError(
            f"format version of {str(path)!r} must be at most {FORMAT_VERSION}, got {version!r}, which is newer. "
            "Upgrade lightning-adaptive-sampling, or write the store again."
        )
    return metadata


def _verify_file(file: Path, recorded: dict[str, Any], verify: str) -> None:
    if not file.exists():
        raise StoreError(f"`{file}`: expected {recorded['bytes']} bytes, got no file. Copy or write the store again.")
    found = file.stat().st_size
    if found != recorded["bytes"]:
        raise StoreError(f"`{file}`: expected {recorded['bytes']} bytes, got {found}. Copy or write the store again.")
    if verify == "hash" and (checksum := file_checksum(file)) != recorded["blake2b"]:
        raise StoreError(
            f"`{file}`: expected checksum {recorded['blake2b']}, got {checksum}. Copy or write the store again."
        )


def _map_tokens(file: Path, dtype: np.dtype[Any], num_tokens: int) -> NDArray[Any]:
    if dtype not in (np.dtype("<u2"), np.dtype("<u4")):
        raise StoreError(f"`{file}`: dtype must be <u2 or <u4, got {dtype.str}. Write the store again.")
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


def _map_array(file: Path, dtype: Any, length: int | None) -> NDArray[Any]:
    """Map a .npy file of `length` entries, None: as many as it has, once its header is byte by byte what it must be."""
    kind = np.dtype(dtype)
    size = file.stat().st_size
    if length is None:
        length = max(size - len(_npy_header(kind, 0)), 0) // kind.itemsize
    header = _npy_header(kind, length)
    with file.open("rb") as opened:
        found = opened.read(len(header))
    if found != header or size != len(header) + length * kind.itemsize:
        raise StoreError(
            f"`{file}`: expected {length} entries of {kind.name} in a .npy file, got another header or size. "
            "Copy or write the store again."
        )
    if not length:  # nothing cannot be mapped
        return np.zeros(0, kind)
    # A plain view: indexing the memmap class itself is several times slower.
    return np.asarray(np.memmap(file, kind, mode="r", offset=len(header), shape=(length,)))


def _npy_header(dtype: np.dtype[Any], length: int) -> bytes:
    header = io.BytesIO()
    description = {"descr": dtype.str, "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(header, description)
    return header.getvalue()
