"""One row per document: what was read, what was kept and why not, and in which split it is.

Split and duplicates follow from the content alone, so that equal content always shares a split and a document stays in
its split when others are added.
"""

from __future__ import annotations

import dataclasses
import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from adaptive_sampling._files import atomic_writer
from adaptive_sampling._random import stable_hash
from adaptive_sampling.corpus._extras import require

Split = Literal["train", "validation"]
SPLITS: tuple[Split, Split] = ("train", "validation")


@dataclass
class ManifestRow:
    """What is known of one document.

    Attributes:
        key: Unique name of the document.
        source: Name of its source.
        content_hash: Hash of its normalised text, 32 hexadecimal digits.
        bytes: Length in UTF-8.
        characters: Length in code points.
        tokens: Number of stored tokens, its EOS included; 0 if it is not kept.
        kept: Whether it is in a token store.
        reason: Why it is not kept, as "exact duplicate of KEY"; "" if it is.
        split: "train" or "validation".
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


def content_hash(text: str) -> str:
    """Hash of the normalised text: NFC, line ends as "\\n", no white space at either end."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return hashlib.blake2b(unicodedata.normalize("NFC", lines).strip().encode("utf-8"), digest_size=16).hexdigest()


def split_of(content: str, *, validation_fraction: float, seed: int) -> Split:
    """Split of a document by hash(seed, content); a larger fraction holds out all that a smaller one does."""
    return "validation" if stable_hash("split", seed, content) < int(validation_fraction * 2.0**128) else "train"


class DocumentFilter:
    """Makes manifest rows in reading order: of equal documents the first stays, empty ones go.

    Cost: one hash and one key per document in memory, no text.
    """

    def __init__(self, *, validation_fraction: float, seed: int) -> None:
        self._fraction = validation_fraction
        self._seed = seed
        self._first_key: dict[str, str] = {}
        self._keys: set[str] = set()

    def row(self, key: str, source: str, text: str) -> ManifestRow:
        """The row of the next document; `tokens` is 0 still.

        Raises:
            ValueError: if the key came before, or the text is no valid Unicode.
        """
        if key in self._keys:
            raise ValueError(
                f"`documents` must have unique keys, got {key!r} twice. "
                "Let no file match two patterns, and give each document a name of its own."
            )
        self._keys.add(key)
        try:
            content = content_hash(text)
            num_bytes = len(text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise ValueError(
                f"`documents` must be valid Unicode, got a lone surrogate in {key!r} at character {error.start}. "
                "Decode the text with errors='replace'."
            ) from None
        first = self._first_key.setdefault(content, key)
        reason = "empty" if not text.strip() else "" if first == key else f"exact duplicate of {first}"
        split = split_of(content, validation_fraction=self._fraction, seed=self._seed)
        return ManifestRow(key, source, content, num_bytes, len(text), 0, not reason, reason, split)


def write_manifest(path: Path | str, rows: Sequence[ManifestRow]) -> None:
    """Write `rows` as a Parquet file, atomically.

    Raises:
        MissingExtraError: if pyarrow is not installed.
    """
    pa = require("pyarrow", "to write a manifest")
    parquet = require("pyarrow.parquet", "to write a manifest")
    kinds = {"str": pa.string(), "int": pa.int64(), "bool": pa.bool_(), "Split": pa.string()}
    schema = pa.schema([(field.name, kinds[str(field.type)]) for field in dataclasses.fields(ManifestRow)])
    columns = {name: [getattr(row, name) for row in rows] for name in schema.names}
    with atomic_writer(path) as file:
        parquet.write_table(pa.table(columns, schema=schema), file)


def read_manifest(path: Path | str) -> list[ManifestRow]:
    """Rows of a manifest, in the order of writing.

    Raises:
        MissingExtraError: if pyarrow is not installed.
    """
    parquet = require("pyarrow.parquet", "to read a manifest")
    return [ManifestRow(**cast("dict[str, object]", row)) for row in parquet.read_table(path).to_pylist()]  # type: ignore[arg-type]
