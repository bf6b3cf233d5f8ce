"""Token files of other programs become token stores, without tokenizing again."""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.corpus.store import TokenStore
from adaptive_sampling.errors import StoreError

_MAGIC = b"MMIDIDX\x00\x00"
# Codes of Megatron-Core's index (docs: "Data Pipeline", indexed_dataset); floating types hold no tokens.
_MEGATRON_DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_HEADER = struct.Struct("<9sQBQQ")
_BLOCK_TOKENS = 1 << 22
# A file this long that is one document was more likely read with a wrong EOS.
_LONG_DOCUMENT = 1 << 16


def import_nanogpt(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    eos_id: int,
    dtype: str = "uint16",
    vocab_size: int | None = None,
    source: str = "default",
) -> TokenStore:
    """Make a store of a flat file of token ids, as nanoGPT's prepare.py writes: documents end with EOS.

    Args:
        path: File of ids, little-endian, without header.
        out: New or empty folder of the store.
        eos_id: Id that ends a document; what follows the last one is a document without EOS.
        dtype: "uint16" or "uint32".
        vocab_size: Number of ids; default: the largest found, plus 1.
        source: Name of the source.

    Raises:
        ValueError: for another dtype, an empty file, or one whose size is no multiple of the dtype's.
        StoreError: if `out` is occupied.

    Cost: two readings; a block of tokens in memory, or the longest document.
    """
    kinds = {"uint16": "<u2", "uint32": "<u4"}
    if str(dtype) not in kinds:
        raise ValueError(f"`dtype` must be 'uint16' or 'uint32', got {dtype!r}. nanoGPT writes uint16.")
    kind = np.dtype(kinds[str(dtype)])
    size = Path(path).stat().st_size
    if size == 0 or size % kind.itemsize:
        raise StoreError(
            f"`{os.fspath(path)}` must be whole ids of {kind.itemsize} bytes, got {size} bytes. "
            "Copy it again, or give its dtype."
        )
    tokens = np.memmap(path, kind, mode="r")
    largest = _largest(tokens)
    num_documents = sum(1 for _ in _split_at(tokens, eos_id))
    if len(tokens) > _LONG_DOCUMENT and num_documents == 1 and tokens[-1] != eos_id:
        warnings.warn(
            f"none of the {len(tokens)} tokens of {os.fspath(path)} is `eos_id` {eos_id}, so that all of them are one "
            "document. Give the id that ends documents, and the file's dtype.",
            stacklevel=2,
        )
    return TokenStore.write(
        os.fspath(out),
        _split_at(tokens, eos_id),
        vocab_size=max(largest, eos_id) + 1 if vocab_size is None else vocab_size,
        eos_id=eos_id,
        sources=[source] * num_documents,
        append_eos=False,
    )


def import_megatron(
    prefix: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    eos_id: int,
    vocab_size: int | None = None,
    source: str = "default",
) -> TokenStore:
    """Make a store of Megatron-Core's PREFIX.bin and PREFIX.idx, token for token, with its documents.

    Args:
        prefix: Path of both files without suffix; one of the two paths will do.
        out: New or empty folder of the store.
        eos_id: Id that ends a document, recorded; none is appended.
        vocab_size: Number of ids; default: the largest found, plus 1.
        source: Name of the source.

    Raises:
        StoreError: if a file is missing, of another format, cut off, or `out` is occupied.

    Cost: two readings of the tokens; the index and one document in memory.
    """
    stem = os.fspath(prefix)
    stem = stem[:-4] if stem.endswith((".bin", ".idx")) else stem
    index, dtype = _read_index(Path(f"{stem}.idx"))
    binary = Path(f"{stem}.bin")
    if not binary.is_file():
        raise StoreError(f"`{binary}` must be there beside its index, got no file. Copy both files.")
    found, needed = binary.stat().st_size, int(index.ends.max(initial=0))
    if found < needed or found % dtype.itemsize:
        raise StoreError(f"`{binary}`: expected {needed} bytes by its index, got {found}. Copy both files again.")
    tokens = np.memmap(binary, dtype, mode="r") if found else np.zeros(0, dtype)
    largest = _largest(tokens)
    return TokenStore.write(
        os.fspath(out),
        index.documents(tokens),
        vocab_size=max(largest, eos_id) + 1 if vocab_size is None else vocab_size,
        eos_id=eos_id,
        sources=[source] * (len(index.bounds) - 1),
        append_eos=False,
    )


def _largest(tokens: NDArray[Any]) -> int:
    blocks = range(0, len(tokens), _BLOCK_TOKENS)
    return max((int(tokens[first : first + _BLOCK_TOKENS].max()) for first in blocks), default=0)


def _split_at(tokens: NDArray[Any], eos_id: int) -> Iterator[NDArray[Any]]:
    start = 0
    for first in range(0, len(tokens), _BLOCK_TOKENS):
        for end in (np.flatnonzero(tokens[first : first + _BLOCK_TOKENS] == eos_id) + first + 1).tolist():
            yield tokens[start:end]
            start = end
    if start < len(tokens):
        yield tokens[start:]


class _Index:
    """Sequences and documents of an index file.

    Attributes:
        starts: int64, first byte of each sequence.
        ends: int64, byte behind each.
        bounds: int64 [num_documents + 1], sequence at which each document begins, and the number of sequences.
    """

    def __init__(self, starts: NDArray[np.int64], ends: NDArray[np.int64], bounds: NDArray[np.int64]) -> None:
        self.starts, self.ends, self.bounds = starts, ends, bounds

    def documents(self, tokens: NDArray[Any]) -> Iterator[NDArray[Any]]:
        size = tokens.itemsize
        for first, stop in zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True):
            pieces = [tokens[self.starts[i] // size : self.ends[i] // size] for i in range(first, stop)]
            yield np.concatenate(pieces) if pieces else np.zeros(0, np.int64)


def _read_index(path: Path) -> tuple[_Index, np.dtype[Any]]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StoreError(f"`{path}` must be readable, got {error.strerror}. Give PREFIX of PREFIX.idx.") from None
    if len(raw) < _HEADER.size or raw[:9] != _MAGIC:
        raise StoreError(f"`{path}` must be an index of Megatron-Core, got something else. Write it again.")
    _, version, code, num_sequences, num_bounds = _HEADER.unpack_from(raw)
    if version != 1:
        raise StoreError(f"`{path}`: index version must be 1, got {version}. Write it with another Megatron-Core.")
    if code not in _MEGATRON_DTYPES:
        raise StoreError(f"`{path}`: dtype code must be of {sorted(_MEGATRON_DTYPES)}, got {code}. Write it again.")
    dtype = np.dtype(_MEGATRON_DTYPES[code])
    least = _HEADER.size + 12 * num_sequences + 8 * num_bounds
    if len(raw) not in (least, least + num_sequences):  # the modes of multimodal sequences may follow
        raise StoreError(f"`{path}`: expected {least} bytes, got {len(raw)}. Copy it again.")
    lengths = np.frombuffer(raw, "<i4", num_sequences, _HEADER.size).astype(np.int64)
    starts = np.frombuffer(raw, "<i8", num_sequences, _HEADER.size + 4 * num_sequences)
    bounds = np.frombuffer(raw, "<i8", num_bounds, _HEADER.size + 12 * num_sequences)
    whole = num_bounds > 0 and bounds[0] == 0 and bounds[-1] == num_sequences and bool((np.diff(bounds) >= 0).all())
    if not whole or (lengths < 0).any() or (starts < 0).any() or (starts % dtype.itemsize).any():
        raise StoreError(f"`{path}`: documents, lengths or positions make no sense. Copy it again.")
    return _Index(starts, starts + lengths * dtype.itemsize, bounds), dtype
