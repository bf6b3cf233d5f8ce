"""Documents, and how files become documents: one after the other, in sorted order, each fault with its document."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, cast

from adaptive_sampling.corpus._extras import require
from adaptive_sampling.corpus._globs import find_files
from adaptive_sampling.corpus.sources import Source, Unit

_BLOCK_BYTES = 1 << 20
_ROWS_LOOKED_AT = 100


@dataclass(frozen=True)
class Document:
    """One text before tokenization.

    Attributes:
        source: Name of the source that it belongs to, such as "code".
        key: Unique name of the document, such as its path.
        text: The whole text.

    Raises:
        TypeError: if one of them is no str.
    """

    source: str
    key: str
    text: str

    def __post_init__(self) -> None:
        for name in ("source", "key", "text"):
            if not isinstance(value := getattr(self, name), str):
                raise TypeError(
                    f"`{name}` of a Document must be a str, got {value!r} in the document {self.key!r}. "
                    "Decode bytes, and leave out documents without text."
                )


@dataclass(frozen=True)
class RawDocument:
    """One document as found.

    Attributes:
        key: Path, and the number of the line or row behind a colon where the file holds many.
        path: The file.
        position: Line (from 1) or row (from 0); 0 where the file is the document.
        raw: Its bytes; those of the whole line in JSONL.
        text: The text where the format says what it is; None: `raw` is to be decoded.
        reason: Why it cannot be read, "" if it can.
    """

    key: str
    path: str
    position: int
    raw: bytes = b""
    text: str | None = None
    reason: str = ""


def read_unit(unit: Unit, source: Source) -> Iterator[RawDocument]:
    """Documents of one piece, one in memory at a time; faults come as documents with a reason."""
    if unit.format == "fault":
        yield RawDocument(unit.path, unit.path, 0, reason=unit.reason)
    elif unit.format == "text":
        yield _whole_file(unit.path, source.max_document_bytes)
    elif unit.format == "jsonl":
        yield from _json_lines(unit, source)
    else:
        yield from _arrow_rows(unit, source)


def check_first(unit: Unit, source: Source) -> None:
    """Refuse a piece where none of the first rows has text in the text field, before any work.

    Where one has, those that have none are left out one by one.

    Raises:
        ValueError: naming the fields that are there, or what stands in the text field.
    """
    if unit.format == "jsonl" and unit.first == 1:
        with contextlib.suppress(*_READ_ERRORS):
            lines = (line for line, _ in _lines(unit, 1 << 24))
            values = ((row, _parse(line)) for row, line in enumerate(lines, 1) if line)
            rows = [(row, value) for row, value in itertools.islice(values, _ROWS_LOOKED_AT) if isinstance(value, dict)]
            with_field = [(row, value[source.text_field]) for row, value in rows if source.text_field in value]
            if rows and not with_field:
                raise source.field_error(unit.path, list(rows[0][1]))
            if with_field and not any(isinstance(value, str) for _, value in with_field):
                row, value = with_field[0]
                raise source.kind_error(unit.path, f"{_kind(value)} in row {row}")
    elif unit.format == "arrow":
        arrow = require("pyarrow", "to read Arrow files")
        try:
            with arrow.memory_map(unit.path) as file:
                schema = _arrow_reader(arrow, file).schema
        except (arrow.ArrowInvalid, OSError):
            return
        source.check_column(unit.path, schema)


def _unpacked(path: str) -> IO[bytes]:
    """The file, unpacked as it is read where its name ends in .gz or .zst."""
    if path.lower().endswith(".gz"):
        return cast("IO[bytes]", gzip.GzipFile(path, "rb"))
    if path.lower().endswith(".zst"):
        arrow = require("pyarrow", "to read .zst files")
        stream: IO[bytes] = arrow.CompressedInputStream(arrow.OSFile(path), "zstd")
        return stream
    return open(path, "rb")


# What broken compression and files raise: gzip EOFError and zlib.error, pyarrow and the system OSError.
_READ_ERRORS = (OSError, EOFError, zlib.error)


def _fault(path: str, error: BaseException) -> str:
    if path.lower().endswith((".gz", ".zst")) and not isinstance(error, (FileNotFoundError, PermissionError)):
        return f"truncated or damaged {path.lower().rpartition('.')[2]} file"
    return f"unreadable: {error.strerror or error}" if isinstance(error, OSError) else f"unreadable: {error}"


def _damage(path: str) -> str | None:
    """What is wrong with a packed file that is other than it was written, and not just cut off; None: nothing.

    What is cut off is right up to there. A changed bit is mostly seen by the checksum at the very end alone, when all
    the text before it, right or wrong, has been read: hence a look at the whole file first, which is fast.
    """
    try:
        with _unpacked(path) as file:
            while file.read(_BLOCK_BYTES):
                pass
    except EOFError:
        return None
    except (OSError, zlib.error) as error:
        # A number comes from the system, which could not read the file at all.
        numbered = isinstance(error, OSError) and error.errno is not None
        return None if numbered or "Truncated" in str(error) else str(error)
    return None


def _whole_file(path: str, limit: int) -> RawDocument:
    try:
        with _unpacked(path) as file:
            raw = file.read(limit + 1)
    except _READ_ERRORS as error:
        return RawDocument(path, path, 0, reason=_fault(path, error))
    if len(raw) > limit:
        return RawDocument(path, path, 0, reason=f"more than {limit} bytes")
    return RawDocument(path, path, 0, raw)


def _blocks(unit: Unit) -> Iterator[bytes]:
    """Bytes of a piece of lines, unpacked; all that can be read comes before the fault."""
    if unit.path.lower().endswith(".zst"):
        yield from _zstd_blocks(unit.path)
        return
    with _unpacked(unit.path) as file:
        packed = unit.path.lower().endswith(".gz")
        left = -1 if packed else unit.stop - unit.start
        if not packed:
            file.seek(unit.start)
        # read1 hands over what could be unpacked before it meets a fault; read would keep it to itself.
        read = getattr(file, "read1", file.read)
        while left and (block := read(_BLOCK_BYTES if left < 0 else min(_BLOCK_BYTES, left))):
            left -= len(block) if left > 0 else 0
            yield block


def _zstd_blocks(path: str) -> Iterator[bytes]:
    """The file unpacked. The read that meets a fault keeps what it had: its bytes are read again, one by one."""
    position = 0
    try:
        with _unpacked(path) as file:
            while block := file.read(_BLOCK_BYTES):
                position += len(block)
                yield block
        return
    except OSError as error:
        fault = error
    pieces: list[bytes] = []
    with contextlib.suppress(OSError), _unpacked(path) as file:
        while position and (block := file.read(min(position, _BLOCK_BYTES))):
            position -= len(block)
        while len(pieces) < _BLOCK_BYTES and (piece := file.read(1)):
            pieces.append(piece)
    yield b"".join(pieces)
    raise fault


def _lines(unit: Unit, limit: int) -> Iterator[tuple[bytes | None, int]]:
    """(line without its end or None where it is longer than `limit`, its length), in constant memory."""
    parts: list[bytes] = []  # of the line that goes on in the next block, none of them once it is too long
    size = 0
    for block in _blocks(unit):
        lines = block.split(b"\n")
        for number, line in enumerate(lines):
            if number:
                yield _joined(parts, size, limit)
                parts, size = [], 0
            size += len(line)
            if size <= limit:
                parts.append(line)
            else:
                parts.clear()
    if size:
        yield _joined(parts, size, limit)


def _joined(parts: list[bytes], size: int, limit: int) -> tuple[bytes | None, int]:
    return (None if size > limit else b"".join(parts).removesuffix(b"\r"), size)


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _json_lines(unit: Unit, source: Source) -> Iterator[RawDocument]:
    number, path, name = unit.first - 1, unit.path, source.text_field
    damage = _damage(path) if path.lower().endswith((".gz", ".zst")) else None
    if damage is not None:
        suffix = path.lower().rpartition(".")[2]
        yield RawDocument(path, path, 0, reason=f"damaged {suffix} file, nothing of it is read: {damage}")
        return
    found = False
    try:
        for line, size in _lines(unit, source.max_document_bytes):
            number += 1
            key = f"{path}:{number}"
            if line is None:
                found = True
                reason = f"line of {size} bytes, more than {source.max_document_bytes}"
                yield RawDocument(key, path, number, reason=reason)
                continue
            if not line.strip():
                continue
            found = True
            yield _json_document(line, key, path, number, name)
        if not found and not unit.start and os.path.getsize(path) <= unit.stop:
            yield RawDocument(path, path, 0, reason="empty")
    except _READ_ERRORS as error:
        yield RawDocument(f"{path}:{number + 1}", path, number + 1, reason=_fault(path, error))


def _json_document(line: bytes, key: str, path: str, number: int, name: str) -> RawDocument:
    try:
        value = json.loads(line)
    except UnicodeDecodeError as error:
        reason = f"not JSON: byte 0x{error.object[error.start]:02x} at offset {error.start} is not UTF-8"
        return RawDocument(key, path, number, line, reason=reason)
    except (ValueError, RecursionError) as error:
        return RawDocument(key, path, number, line, reason=f"not JSON: {str(error) or type(error).__name__}"[:200])
    if not isinstance(value, dict):
        return RawDocument(key, path, number, line, reason=f"not a JSON object: {type(value).__name__}")
    text = value.get(name)
    if not isinstance(text, str):
        found = f"{_kind(text)} in" if name in value else "no"
        return RawDocument(key, path, number, line, reason=f"{found} field {name!r}")
    return RawDocument(key, path, number, line, text)


def _kind(value: Any) -> str:
    """What stands where text should, in words."""
    kinds = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return "null" if value is None else kinds.get(type(value), f"a {type(value).__name__}")


def _arrow_rows(unit: Unit, source: Source) -> Iterator[RawDocument]:
    arrow = require("pyarrow", "to read Parquet and Arrow files")
    number, path = unit.first - (unit.format == "arrow"), unit.path
    try:
        for column in _arrow_columns(arrow, unit, source.text_field):
            for value in column:
                text = value.as_py()
                key = f"{path}:{number}"
                if isinstance(text, bytes):
                    yield RawDocument(key, path, number, text)
                elif isinstance(text, str):
                    yield RawDocument(key, path, number, text.encode("utf-8", "surrogatepass"), text)
                else:
                    yield RawDocument(key, path, number, reason=f"{_kind(text)} in field {source.text_field!r}")
                number += 1
        if unit.format == "arrow" and not number:
            yield RawDocument(path, path, 0, reason="empty")
    except (arrow.ArrowInvalid, arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = f"damaged {unit.format} file: {(str(error).splitlines() or [''])[0][:150]}"
        yield RawDocument(f"{path}:{number}", path, number, reason=reason)


def _arrow_columns(arrow: Any, unit: Unit, name: str) -> Iterator[Any]:
    if unit.format == "parquet":
        parquet = require("pyarrow.parquet", "to read Parquet")
        with parquet.ParquetFile(unit.path) as file:
            groups = range(unit.start, unit.stop)
            for batch in file.iter_batches(batch_size=1024, row_groups=list(groups), columns=[name]):
                yield batch.column(0)
        return
    with arrow.memory_map(unit.path) as mapped:
        reader = _arrow_reader(arrow, mapped)
        batches = (
            (reader.get_batch(index) for index in range(reader.num_record_batches))
            if hasattr(reader, "get_batch")
            else reader
        )
        for batch in batches:
            yield batch.column(batch.schema.get_field_index(name))


def _arrow_reader(arrow: Any, file: Any) -> Any:
    """A reader of either Arrow form; `datasets` writes streams."""
    try:
        return arrow.ipc.open_stream(file)
    except arrow.ArrowInvalid:
        file.seek(0)
        return arrow.ipc.open_file(file)


def read_text_files(source_name: str, glob_pattern: str) -> Iterator[Document]:
    """The files that match `glob_pattern`, as documents of the source `source_name`.

    The pattern is resolved at the call, the files are read as the iterator moves, one text in memory at a time.
    A byte-order mark is dropped; line ends are kept. What is no UTF-8 stops the iterator: `Source` records it instead.

    Args:
        source_name: Source of all these documents.
        glob_pattern: Pattern; `**` spans folders, `~` is the home folder.

    Returns:
        Iterator over `Document`, sorted by path; the key is the path with forward slashes.

    Raises:
        ValueError: if the name is empty, no file matches, or (while iterating) a file cannot be read as UTF-8.
    """
    if not source_name:
        raise ValueError(f"`source_name` must be a name, got {source_name!r}. Give the source a name, such as 'wiki'.")
    paths = find_files(glob_pattern).files
    if not paths and os.path.isdir(glob_pattern):
        raise ValueError(
            f"`glob_pattern` must match files, got {glob_pattern!r}, which is a folder. "
            f"Write {os.path.join(glob_pattern, '**', '*.txt')!r} for the text files in it."
        )
    if not paths:
        raise ValueError(
            f"`glob_pattern` must match at least one file, got {glob_pattern!r}, which matches none. "
            "Check the path, and quote the pattern so that the shell leaves it alone."
        )
    return _read_all(source_name, paths)


def _read_all(source_name: str, paths: list[str]) -> Iterator[Document]:
    for path in paths:
        try:
            with open(path, "rb") as file:
                text = file.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"`{path}` must be UTF-8, got byte 0x{error.object[error.start]:02x} at offset {error.start}. "
                "Convert it (for example with iconv) or narrow the pattern."
            ) from None
        except OSError as error:
            raise ValueError(
                f"`{path}` must be readable, got {error.strerror or error}. "
                "Change its permissions or narrow the pattern."
            ) from None
        yield Document(source_name, path, text)
