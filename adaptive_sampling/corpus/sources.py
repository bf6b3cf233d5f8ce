"""A named source: which files, under which licence, read and cleaned how; and the pieces in which they are read."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal

from adaptive_sampling.corpus._extras import require
from adaptive_sampling.corpus._globs import find_files
from adaptive_sampling.corpus.clean import Cleaning, is_share
from adaptive_sampling.corpus.decode import MIN_CONFIDENCE
from adaptive_sampling.errors import clause

UnitFormat = Literal["text", "jsonl", "parquet", "arrow", "spool", "fault"]
PIECE_BYTES = 1 << 23  # a file of lines is read in pieces of about this size, by whichever worker is free
MAX_DOCUMENT_BYTES = 1 << 28
_JSONL = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".jsonl.zst", ".ndjson.zst")
_SUFFIXES: dict[str, UnitFormat] = {".parquet": "parquet", ".arrow": "arrow", **dict.fromkeys(_JSONL, "jsonl")}


@dataclass(frozen=True)
class Source:
    """Files that form one named source.

    What a file is follows from its name: `.jsonl`, `.ndjson` (also `.gz`, `.zst`) hold a document per line, `.parquet`
    and `.arrow` one per row, any other file is one document (`.gz`, `.zst` are unpacked).

    Args:
        name: Name of the source.
        pattern: Pattern of the files, `**` spans folders; or a folder that `datasets.Dataset.save_to_disk` made.
        text_field: Field or column of the text in JSONL, Parquet and Arrow.
        license: Licence of the texts, recorded in the manifest.
        usage: Note on how they may be used, recorded too.
        kind: "code" is never cleaned.
        cleaning: Steps for the texts of this source; files with a suffix or name of code are left alone.
        min_confidence: What is no UTF-8 and less surely of another encoding is left out.
        max_document_bytes: Longer files and lines are left out, so that memory stays bounded.

    Raises:
        ValueError: for an empty name, cleaning of code, or numbers that are none or out of range.
        TypeError: for texts that are no str, or a `cleaning` that is none.
    """

    name: str
    pattern: str
    _: KW_ONLY
    text_field: str = "text"
    license: str = ""
    usage: str = ""
    kind: Literal["text", "code"] = "text"
    cleaning: Cleaning = field(default_factory=Cleaning)
    min_confidence: float = MIN_CONFIDENCE
    max_document_bytes: int = MAX_DOCUMENT_BYTES

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"`name` must be a name, got {self.name!r}. Give the source a name, such as 'wiki'.")
        for name in ("pattern", "text_field", "license", "usage"):
            if not isinstance(value := getattr(self, name), str):
                raise TypeError(f"`{name}` must be a str, got {value!r} for {self.name!r}. Write it as text.")
        if not isinstance(self.cleaning, Cleaning):
            raise TypeError(
                f"`cleaning` must be a Cleaning, got {self.cleaning!r} for {self.name!r}. "
                "Write Cleaning(crlf=True), or Cleaning.parse('crlf')."
            )
        if self.kind not in ("text", "code"):
            raise ValueError(f"`kind` must be 'text' or 'code', got {self.kind!r}. Code is never cleaned.")
        if self.kind == "code" and self.cleaning:
            raise ValueError(f"`cleaning` must be left out for code, got {self.cleaning!r} for {self.name!r}.")
        if not is_share(self.min_confidence):
            raise ValueError(f"`min_confidence` must be in [0, 1], got {self.min_confidence!r}. Try {MIN_CONFIDENCE}.")
        size = self.max_document_bytes
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(
                f"`max_document_bytes` must be an integer of at least 1, got {size!r}. Try {MAX_DOCUMENT_BYTES}."
            )

    def units(self) -> list[Unit]:
        """Pieces in which the source is read, in order; files that lack the field are refused.

        Raises:
            ValueError: if nothing matches, or a schema has no `text_field` of text.
            MissingExtraError: if pyarrow is needed and not installed.
        """
        folder = Path(self.pattern).expanduser()
        if folder.is_dir():
            files = _dataset_files(folder)
            if files is None:
                raise ValueError(
                    f"`glob_pattern` must match files, got {self.pattern!r}, which is a folder. "
                    f"Write {os.path.join(self.pattern, '**', '*.txt')!r} for the text files in it."
                )
            return [unit for path in files for unit in self._units_of(path)]
        found = find_files(self.pattern)
        if not found.files and not found.faults:
            raise ValueError(
                f"`glob_pattern` must match at least one file, got {self.pattern!r}, which matches none. "
                "Check the path, and quote the pattern so that the shell leaves it alone."
            )
        units = [unit for path in found.files for unit in self._units_of(path)]
        units += [_fault_unit(path, reason) for path, reason in found.faults]
        return sorted(units, key=lambda unit: (unit.path, unit.first))

    def _units_of(self, path: str) -> Iterator[Unit]:
        if not _is_unicode(path):
            yield _fault_unit(path, "the name of the file, or of a folder above it, is not UTF-8: rename it")
            return
        lower = path.lower()
        kind: UnitFormat = next((kind for suffix, kind in _SUFFIXES.items() if lower.endswith(suffix)), "text")
        try:
            size = os.path.getsize(path)
            if kind == "jsonl" and not lower.endswith((".gz", ".zst")):
                yield from _line_pieces(path, size)
            elif kind == "parquet":
                yield from self._row_groups(path, size)
            else:
                yield Unit(path, kind, 0, size, 1, size)
        except OSError as error:
            yield _fault_unit(path, f"unreadable: {error.strerror or error}")

    def _row_groups(self, path: str, size: int) -> Iterator[Unit]:
        parquet = require("pyarrow.parquet", "to read Parquet")
        arrow = require("pyarrow", "to read Parquet")
        try:
            metadata = parquet.read_metadata(path)
        except (arrow.ArrowInvalid, OSError):
            yield _fault_unit(path, "not a Parquet file, or cut off")
            return
        self.check_column(path, metadata.schema.to_arrow_schema())
        if not metadata.num_rows:
            yield _fault_unit(path, "empty")
            return
        first = 0
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group)
            share = size * rows.num_rows // max(metadata.num_rows, 1)
            yield Unit(path, "parquet", group, group + 1, first, share)
            first += rows.num_rows

    def field_error(self, path: str, names: list[str]) -> ValueError:
        """The error for a file without the text field."""
        shown = ", ".join(repr(name) for name in names[:10])
        return ValueError(
            f"`text_field` must be a field of {path!r}, got {self.text_field!r} where there are {shown}. "
            "Give the name of the field that holds the text."
        )

    def kind_error(self, path: str, found: str) -> ValueError:
        """The error for a file with something else than text in the text field."""
        return ValueError(
            f"`text_field` must be a field of text in {path!r}, got {self.text_field!r}, which is {found}. "
            "Give the name of the field that holds the text."
        )

    def check_column(self, path: str, schema: Any) -> None:
        """Refuse a Parquet or Arrow file whose schema has no column of text under the text field's name.

        Raises:
            ValueError: naming the columns that are there, or what the column holds.
        """
        if self.text_field not in schema.names:
            raise self.field_error(path, schema.names)
        kind = schema.types[schema.names.index(self.text_field)]
        if not _is_text(kind):
            raise self.kind_error(path, f"a column of {kind}")

    def settings(self) -> dict[str, Any]:
        """All settings as plain values, for the fingerprint of a run."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Unit:
    """A piece that is read at once.

    Attributes:
        path: File, with forward slashes.
        format: How to read it; "fault": nothing to read, `reason` says why.
        start: First byte of a piece of lines, first row group.
        stop: Behind the last.
        first: Number of its first line (from 1) or row (from 0).
        size: Bytes on disk that it stands for.
        reason: Why there is nothing to read.
    """

    path: str
    format: UnitFormat
    start: int
    stop: int
    first: int
    size: int
    reason: str = ""


def _is_text(kind: Any) -> bool:
    """Whether an Arrow type holds text or bytes, or nothing at all, be it as a dictionary or an extension of those."""
    types = require("pyarrow.types", "to read Parquet and Arrow files")
    for name in ("dictionary", "run_end_encoded"):
        if getattr(types, f"is_{name}", lambda _: False)(kind):
            return _is_text(kind.value_type)
    if hasattr(kind, "storage_type"):
        return _is_text(kind.storage_type)
    names = ("string", "binary", "large_string", "large_binary", "string_view", "binary_view", "fixed_size_binary")
    # Views are unknown to older versions of pyarrow.
    return any(getattr(types, f"is_{name}", lambda _: False)(kind) for name in (*names, "null"))


def _fault_unit(path: str, reason: str) -> Unit:
    """A file of which there is nothing to read; what of its name is not UTF-8 is shown escaped."""
    shown = path if _is_unicode(path) else os.fsencode(path).decode("utf-8", "backslashreplace")
    return Unit(shown, "fault", 0, 0, 0, 0, reason)


def _is_unicode(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _line_pieces(path: str, size: int) -> Iterator[Unit]:
    if size <= PIECE_BYTES:
        yield Unit(path, "jsonl", 0, size, 1, size)
        return
    start, line, position, lines, boundary = 0, 1, 0, 0, 0
    with open(path, "rb") as file:
        while block := file.read(PIECE_BYTES):
            last = block.rfind(b"\n")
            if last >= 0:
                lines += block.count(b"\n")
                boundary = position + last + 1
                yield Unit(path, "jsonl", start, boundary, line, boundary - start)
                start, line = boundary, line + lines
                lines = 0
            position += len(block)
    if start < position:
        yield Unit(path, "jsonl", start, position, line, position - start)


def _dataset_files(folder: Path) -> list[str] | None:
    """Arrow files of a dataset saved to disk, in its order, its splits by name; None if it is none."""
    splits = folder / "dataset_dict.json"
    try:
        if splits.is_file():
            names = json.loads(splits.read_text(encoding="utf-8"))["splits"]
            parts = [_dataset_files(folder / name) for name in sorted(names)]
            return [path for part in parts if part for path in part]
        state = folder / "state.json"
        if not state.is_file():
            return None
        files = json.loads(state.read_text(encoding="utf-8"))["_data_files"]
        return [(folder / entry["filename"]).as_posix() for entry in files]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"`{folder}` must be a folder that save_to_disk made, got {type(error).__name__}: "
            f"{clause(error)}. Save it again."
        ) from None
