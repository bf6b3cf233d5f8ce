"""The jobs of preparing: read a chunk of the corpus into texts and rows, turn its texts into tokens, and those into
features.

The first two write their files under a temporary name and rename them, the one that says "done" last, so that a job
that was killed leaves nothing that counts and is simply done again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import stable_hash
from adaptive_sampling.corpus._extras import require
from adaptive_sampling.corpus.clean import Cleaned, is_code
from adaptive_sampling.corpus.decode import Decoded, decode, fault_of_text
from adaptive_sampling.corpus.duplicates import features_of, sketch
from adaptive_sampling.corpus.manifest import content_digest
from adaptive_sampling.corpus.readers import RawDocument, read_unit
from adaptive_sampling.corpus.sources import Source, Unit
from adaptive_sampling.corpus.tokenize import EncodingError, encode_batches, eos_id_of, load_tokenizer, token_bytes
from adaptive_sampling.errors import clause
from adaptive_sampling.neighbors.features import HashedFeaturizer

_MASK = 0xFFFFFFFFFFFFFFFF
_ROWS_PER_BATCH = 1024
_BREAK = re.compile(rb"\n(?:[ \t\r]*\n)+")


@dataclass(frozen=True)
class ReadJob:
    """Units to read, as (source, unit), into FOLDER/NUMBER.text and .parquet."""

    folder: str
    number: int
    units: tuple[tuple[Source, Unit], ...]


@dataclass(frozen=True)
class TokenizeJob:
    """Texts to turn into FOLDER/NUMBER.bin, .sketch and .npz; `wanted` says which rows."""

    read_folder: str
    folder: str
    number: int
    tokenizer: str
    eos: str | None
    dtype: str
    wanted: NDArray[np.bool_]


@dataclass(frozen=True)
class FeatureJob:
    """Sketches of FOLDER/NUMBER.sketch to turn into features; `wanted` says which rows."""

    folder: str
    number: int
    dtype: str
    featurizer: HashedFeaturizer
    wanted: NDArray[np.bool_]


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name when it is whole; without fsync, since work that is lost is done again."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_schema() -> Any:
    """Arrow schema of the rows that reading makes."""
    pa = require("pyarrow", "to prepare a corpus")
    kinds = {
        "key": pa.string(),
        "source": pa.string(),
        "digest": pa.binary(16),
        "bytes": pa.int64(),
        "characters": pa.int64(),
        "reason": pa.string(),
        "path": pa.string(),
        "position": pa.int64(),
        "license": pa.string(),
        "usage": pa.string(),
        "raw_bytes": pa.int64(),
        "raw_hash": pa.string(),
        "encoding": pa.string(),
        "confidence": pa.float64(),
        "cleaning": pa.string(),
        "key_hash": pa.uint64(),
        "store_key": pa.uint64(),
        "has_text": pa.bool_(),
    }
    return pa.schema(list(kinds.items()))


def read_chunk(job: ReadJob) -> tuple[int, int]:
    """Read, decode, clean and hash; returns (documents, bytes of text)."""
    pa = require("pyarrow", "to prepare a corpus")
    parquet = require("pyarrow.parquet", "to prepare a corpus")
    schema = read_schema()
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    stem = Path(job.folder) / f"{job.number:06}"
    num_documents = num_bytes = 0
    removed: list[dict[str, str]] = []
    with (
        replacing(stem.with_suffix(".parquet")) as rows,
        replacing(stem.with_suffix(".text")) as texts,
        parquet.ParquetWriter(rows, schema) as writer,
    ):
        for source, unit in job.units:
            for document, name in _documents(unit, source):
                row, text, cut = _row(document, source, name)
                for column in schema.names:
                    columns[column].append(row[column])
                texts.write(text)
                num_documents += 1
                num_bytes += len(text)
                removed += ({"key": document.key, "part": part, "text": gone} for part, gone in cut)
                if len(columns["key"]) >= _ROWS_PER_BATCH:
                    writer.write_table(pa.table(columns, schema=schema))
                    columns = {column: [] for column in schema.names}
        writer.write_table(pa.table(columns, schema=schema))
        if removed:
            with replacing(stem.with_suffix(".removed")) as file:
                file.write("".join(json.dumps(line) + "\n" for line in removed).encode())
    return num_documents, num_bytes


def _documents(unit: Unit, source: Source) -> Iterator[tuple[RawDocument, str]]:
    if unit.format != "spool":
        for document in read_unit(unit, source):
            yield document, source.name
        return
    with open(unit.path, encoding="utf-8", newline="\n") as file:
        for line in file:
            name, key, text = json.loads(line)
            yield RawDocument(key, "", 0, text.encode("utf-8"), text), name


def _row(document: RawDocument, source: Source, name: str) -> tuple[dict[str, Any], bytes, tuple[tuple[str, str], ...]]:
    if document.reason:
        found = Decoded("", "", 0.0, document.reason)
    elif document.text is None:
        found = decode(document.raw, min_confidence=source.min_confidence)
    else:
        found = Decoded(document.text, "", 1.0, fault_of_text(document.text))
    cleaned = Cleaned(found.text, reason=found.reason)
    if source.cleaning and not found.reason and not is_code(document.path):
        cleaned = source.cleaning(found.text)
    has_text = not cleaned.reason
    text = cleaned.text.encode("utf-8") if has_text else b""
    digest = content_digest(cleaned.text) if has_text else b""
    row = {
        "key": document.key,
        "source": name,
        "digest": digest or bytes(16),
        "bytes": len(text),
        "characters": len(cleaned.text) if has_text else 0,
        "reason": cleaned.reason,
        "path": document.path,
        "position": document.position,
        "license": source.license,
        "usage": source.usage,
        "raw_bytes": len(document.raw),
        "raw_hash": hashlib.blake2b(document.raw, digest_size=16).hexdigest() if document.raw else "",
        "encoding": found.encoding,
        "confidence": found.confidence,
        "cleaning": cleaned.steps,
        "key_hash": stable_hash(document.key) & _MASK,
        "store_key": stable_hash(digest.hex()) & _MASK,
        "has_text": has_text,
    }
    return row, text, cleaned.removed


def tokenize_chunk(job: TokenizeJob) -> tuple[int, int]:
    """Encode the wanted texts, EOS behind each; returns (documents, bytes of text).

    Raises:
        ValueError: naming the document, if the tokenizer refuses its text.
    """
    tokenizer, eos_id, sizes = _tokenizer(job.tokenizer, job.eos)
    dtype = np.dtype(job.dtype)
    stem = Path(job.folder) / f"{job.number:06}"
    lengths = np.zeros(len(job.wanted), np.int64)
    paragraphs = array("q")
    sketch_lengths = np.zeros(len(job.wanted), np.int64)
    batch = _Sizes()
    texts = read_texts(Path(job.read_folder), job.number, job.wanted, batch)
    num_tokens = 0
    with (
        replacing(stem.with_suffix(".npz")) as arrays,
        replacing(stem.with_suffix(".bin")) as tokens,
        replacing(stem.with_suffix(".sketch")) as sketches,
    ):
        for row, ids in zip(np.flatnonzero(job.wanted).tolist(), _encoded(tokenizer, texts, job), strict=True):
            block = np.empty(len(ids) + 1, dtype)
            block[:-1], block[-1] = ids, eos_id
            tokens.write(block.data)
            short = np.ascontiguousarray(sketch(block[:-1]))
            sketches.write(short.data)
            sketch_lengths[row] = len(short)
            raw = batch.pending.pop(row)
            paragraphs.append(num_tokens)
            if b"\n" in raw:
                paragraphs.frombytes((num_tokens + paragraph_tokens(tokenizer, raw, ids, sizes)).tobytes())
            lengths[row] = len(block)
            num_tokens += len(block)
        np.savez(arrays, lengths=lengths, paragraphs=np.frombuffer(paragraphs, np.int64), sketch_lengths=sketch_lengths)
    return int(job.wanted.sum()), batch.num_bytes


def _encoded(tokenizer: Any, texts: Iterator[str], job: TokenizeJob) -> Iterator[NDArray[np.uint32]]:
    try:
        yield from encode_batches(tokenizer, texts)
    except EncodingError as error:
        parquet = require("pyarrow.parquet", "to prepare a corpus")
        keys = parquet.read_table(Path(job.read_folder) / f"{job.number:06}.parquet", columns=["key"])["key"]
        key = keys[int(np.flatnonzero(job.wanted)[error.number])].as_py()
        raise ValueError(
            f"`tokenizer` must encode every document, got {clause(error.error)!r} for {key!r}. Give it an unknown "
            'token, take another tokenizer ("bytes" encodes everything), or leave the document out.'
        ) from None


def feature_chunk(job: FeatureJob) -> NDArray[np.float32]:
    """Features of the wanted rows, float32 [rows, dim]."""
    stem = Path(job.folder) / f"{job.number:06}"
    with np.load(stem.with_suffix(".npz"), allow_pickle=False) as arrays:
        lengths = arrays["sketch_lengths"]
    tokens = open_tokens(stem.with_suffix(".sketch"), np.dtype(job.dtype))
    ends, rows = np.cumsum(lengths), np.flatnonzero(job.wanted)

    def read(number: int) -> NDArray[Any]:
        end = ends[rows[number]]
        return tokens[end - lengths[rows[number]] : end]

    return features_of(job.featurizer, read, lengths[rows])


def open_tokens(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """All tokens of a file, as a memory map."""
    if not path.stat().st_size:
        return np.zeros(0, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r"))


@dataclass
class _Sizes:
    """Texts that were handed to the tokenizer and are still to be looked into for paragraphs, by row."""

    pending: dict[int, bytes] = field(default_factory=dict)
    num_bytes: int = 0


def read_texts(folder: Path, number: int, wanted: NDArray[np.bool_], sizes: _Sizes | None = None) -> Iterator[str]:
    """Wanted texts of a chunk that was read, one in memory at a time."""
    parquet = require("pyarrow.parquet", "to prepare a corpus")
    stem = folder / f"{number:06}"
    lengths = parquet.read_table(stem.with_suffix(".parquet"), columns=["bytes"])["bytes"].to_numpy()
    with open(stem.with_suffix(".text"), "rb") as file:
        for row, length in enumerate(lengths.tolist()):
            if not wanted[row]:
                file.seek(length, os.SEEK_CUR)
                continue
            raw = file.read(length)
            if sizes is not None:
                sizes.pending[row] = raw
                sizes.num_bytes += length
            yield raw.decode("utf-8")


@functools.lru_cache(maxsize=1)
def _tokenizer(path: str, eos: str | None) -> tuple[Any, int, NDArray[np.int64] | None]:
    tokenizer = load_tokenizer(path, eos=eos)
    return tokenizer, eos_id_of(tokenizer, eos), token_bytes(tokenizer)


def paragraph_tokens(
    tokenizer: Any, raw: bytes, ids: NDArray[np.uint32], sizes: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Index of the first token of each paragraph but the first, int64, rising.

    A paragraph begins behind a run of two or more line ends; its first token is the first that begins there or later.
    """
    breaks = np.array([match.end() for match in _BREAK.finditer(raw)], np.int64)
    breaks = breaks[breaks < len(raw)]
    if not len(breaks):
        return breaks
    starts = None
    if sizes is not None:
        ends = np.cumsum(sizes[ids])
        # Where a normalizer or an added token changes lengths, the sum tells, and the slow way is taken.
        starts = ends - sizes[ids] if ends[-1] == len(raw) else None
    if starts is None:
        offsets = tokenizer.encode(raw.decode("utf-8"), add_special_tokens=False).offsets
        starts = np.array([first for first, _ in offsets], np.int64)
        breaks = np.array([len(raw[:at].decode("utf-8")) for at in breaks.tolist()], np.int64)
    found = np.unique(np.searchsorted(starts, breaks, side="left"))
    return found[(found > 0) & (found < len(starts))].astype(np.int64)
