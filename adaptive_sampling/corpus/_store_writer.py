"""Documents to a file of token ids: checked one by one, never all in memory."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import stable_hash

Key = str | int | bytes
_MISSING = object()


@dataclass
class WrittenDocuments:
    """What was written of each document, in machine integers (int64, int32, uint64)."""

    document_ends: array[int] = field(default_factory=lambda: array("q"))
    document_sources: array[int] = field(default_factory=lambda: array("i"))
    document_keys: array[int] = field(default_factory=lambda: array("Q"))
    source_names: list[str] = field(default_factory=list)


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


def write_documents(
    file: Path,
    documents: Iterable[Any],
    *,
    dtype: np.dtype[Any],
    vocab_size: int,
    eos_id: int | None,
    sources: Iterable[str] | None,
    keys: Iterable[Key] | None,
) -> WrittenDocuments:
    """Write the ids of all `documents` to `file`, each followed by `eos_id` unless that is None."""
    given: tuple[tuple[str, Any], ...] = (("sources", sources), ("keys", keys))
    for name, labels in given:
        if isinstance(labels, (str, bytes)):
            raise TypeError(f"`{name}` must be one entry per document, got {labels!r}. Give a list.")
        if isinstance(labels, Sized) and isinstance(documents, Sized) and len(labels) != len(documents):
            raise _length_error(name, f"{len(labels)} for {len(documents)} documents")
    written = WrittenDocuments()
    source_index: dict[str, int] = {}
    source_of, key_of = iter(() if sources is None else sources), iter(() if keys is None else keys)
    end = 0
    with file.open("wb") as opened:
        number = -1
        for number, document in enumerate(documents):
            ids = _checked_document(document, number, vocab_size)
            source = (
                "default" if sources is None else _checked_source(_next_label("sources", source_of, number), number)
            )
            key = _content_key(ids) if keys is None else _checked_key(_next_label("keys", key_of, number), number)
            ids.astype(dtype).tofile(opened)
            end += len(ids)
            if eos_id is not None:
                np.array([eos_id], dtype).tofile(opened)
                end += 1
            written.document_ends.append(end)
            written.document_sources.append(source_index.setdefault(source, len(source_index)))
            written.document_keys.append(stable_hash(key) & 0xFFFFFFFFFFFFFFFF)
        for name, rest in (("sources", source_of), ("keys", key_of)):
            if next(rest, _MISSING) is not _MISSING:
                raise _length_error(name, f"more than the {number + 1} documents")
        opened.flush()
        os.fsync(opened.fileno())
    written.source_names = list(source_index)
    return written


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
