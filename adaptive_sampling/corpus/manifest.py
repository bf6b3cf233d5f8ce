"""One row per document: what was read, how, what was kept and why not, and where it went.

Split and duplicates follow from the content alone, so that equal content always shares a split and a document stays in
its split when others are added.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from adaptive_sampling._files import atomic_writer
from adaptive_sampling._random import stable_hash
from adaptive_sampling.corpus._extras import require
from adaptive_sampling.corpus.clean import CLEANING_VERSION
from adaptive_sampling.errors import StoreError, clause

Split = Literal["train", "validation"]
SPLITS: tuple[Split, Split] = ("train", "validation")


@dataclass
class ManifestRow:
    """What is known of one document.

    Attributes:
        key: Unique name of the document.
        source: Name of its source.
        content_hash: Hash of its normalised text, 32 hexadecimal digits; "" where there is no text.
        bytes: Length of the cleaned text in UTF-8.
        characters: Its length in code points.
        tokens: Number of stored tokens, EOS included; 0 if it is not kept.
        kept: Whether it is in a token store.
        reason: Why it is not kept, as "exact duplicate of KEY"; "" if it is.
        split: "train" or "validation".
        path: File that it comes from, "" for a text that was handed over.
        position: Line (from 1) or row (from 0) in the file; 0 where the file is the document.
        license: Licence of its source.
        usage: Note on usage of its source.
        raw_bytes: Number of bytes as found.
        raw_hash: Hash of the bytes as found, 32 hexadecimal digits.
        encoding: Codec that decoded it; "" where nothing had to be decoded, or nothing could.
        confidence: How sure the codec is, in [0, 1]; 1 where nothing had to be guessed.
        cleaning_version: Version of the cleaning steps.
        cleaning: Steps that changed the text, with commas.
        duplicate_of: Key of the earlier document of equal content; "" if there is none.
        near_copy_set: Key of the first document of its near-copy set; "" if it is alone.
        shard: Shard of the split's store that holds its first token; -1 if it is not kept.
        document: Index of its first store document in the split's store; -1 if it is not kept.
        parts: Store documents that it became: 1, or more where it was cut; 0 if it is not kept.
        token_start: Position of its first token in the split's store; -1 if it is not kept.
        token_end: Position behind its last token; -1 if it is not kept.
    """

    key: str
    source: str
    content_hash: str
    bytes: int
    characters: int
    tokens: int
    kept: bool
    reason: str
    split: Split
    path: str = ""
    position: int = 0
    license: str = ""
    usage: str = ""
    raw_bytes: int = 0
    raw_hash: str = ""
    encoding: str = ""
    confidence: float = 1.0
    cleaning_version: int = CLEANING_VERSION
    cleaning: str = ""
    duplicate_of: str = ""
    near_copy_set: str = ""
    shard: int = -1
    document: int = -1
    parts: int = 0
    token_start: int = -1
    token_end: int = -1


def content_digest(text: str) -> bytes:
    """Hash of the normalised text, 16 bytes: NFC, line ends as "\\n", no white space at either end."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return hashlib.blake2b(text.strip().encode("utf-8"), digest_size=16).digest()


def content_hash(text: str) -> str:
    """`content_digest` as 32 hexadecimal digits."""
    return content_digest(text).hex()


def split_of(content: str, *, validation_fraction: float, seed: int) -> Split:
    """Split of a document by hash(seed, content); a larger fraction holds out all that a smaller one does."""
    return "validation" if stable_hash("split", seed, content) < int(validation_fraction * 2.0**128) else "train"


def manifest_schema() -> Any:
    """Arrow schema of a manifest."""
    pa = require("pyarrow", "to write a manifest")
    kinds = {"str": pa.string(), "int": pa.int64(), "bool": pa.bool_(), "float": pa.float64(), "Split": pa.string()}
    return pa.schema([(field.name, kinds[str(field.type)]) for field in dataclasses.fields(ManifestRow)])


def write_manifest(path: Path | str, rows: Sequence[ManifestRow]) -> None:
    """Write `rows` as a Parquet file, atomically.

    Raises:
        MissingExtraError: if pyarrow is not installed.
    """
    pa = require("pyarrow", "to write a manifest")
    parquet = require("pyarrow.parquet", "to write a manifest")
    schema = manifest_schema()
    columns = {name: [getattr(row, name) for row in rows] for name in schema.names}
    with atomic_writer(path) as file:
        parquet.write_table(pa.table(columns, schema=schema), file)


def read_manifest(path: Path | str) -> list[ManifestRow]:
    """Rows of a manifest, in the order of writing.

    Raises:
        MissingExtraError: if pyarrow is not installed.
    """
    return list(iterate_manifest(path))


def iterate_manifest(path: Path | str) -> Iterator[ManifestRow]:
    """Rows of a manifest, some thousand in memory at a time; arguments and errors as `read_manifest`."""
    parquet = require("pyarrow.parquet", "to read a manifest")
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=4096):
            for row in batch.to_pylist():
                yield ManifestRow(**cast("dict[str, Any]", row))


@contextlib.contextmanager
def naming_manifest(path: Path | str) -> Iterator[None]:
    """Within, a manifest is read: what pyarrow raises of a file that is damaged or another's names it and the cure.

    Raises:
        StoreError: in the place of such an error.
    """
    try:
        yield
    except (ValueError, KeyError, OSError) as error:
        raise StoreError(
            f"`{path}` must be the manifest of a prepared folder, got {clause(error)}. Prepare again."
        ) from None


def row_of_document(path: Path | str, split: str, document: int) -> dict[str, Any] | None:
    """The row from which a store document comes, None if there is none.

    Args:
        path: Manifest.
        split: Split of the store.
        document: Index of the document in the store.

    Cost: reads three columns of the manifest.
    """
    parquet = require("pyarrow.parquet", "to read a manifest")
    compute = require("pyarrow.compute", "to read a manifest")
    table = parquet.read_table(path, columns=["split", "document", "parts"])
    first = table["document"]
    fits = compute.and_(
        compute.equal(table["split"], split),
        compute.and_(
            compute.less_equal(first, document), compute.greater(compute.add(first, table["parts"]), document)
        ),
    )
    found = compute.indices_nonzero(compute.and_(fits, compute.greater_equal(first, 0))).to_pylist()
    if not found:
        return None
    at, group, seen = found[0], 0, 0
    with parquet.ParquetFile(path) as file:
        while seen + file.metadata.row_group(group).num_rows <= at:
            seen += file.metadata.row_group(group).num_rows
            group += 1
        return cast("dict[str, Any]", file.read_row_group(group).slice(at - seen, 1).to_pylist()[0])
