"""Documents, and text files as documents: one file, one document, strict UTF-8, in sorted order."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Document:
    """One text before tokenization.

    Attributes:
        source: Name of the source that it belongs to, such as "code".
        key: Unique name of the document, such as its path.
        text: The whole text.
    """

    source: str
    key: str
    text: str


def read_text_files(source_name: str, glob_pattern: str) -> Iterator[Document]:
    """The files that match `glob_pattern`, as documents of the source `source_name`.

    The pattern is resolved at the call, the files are read as the iterator moves, one text in memory at a time.
    A byte-order mark is dropped; line ends are kept.

    Args:
        source_name: Source of all these documents.
        glob_pattern: Pattern of `glob.glob`; `**` spans folders, `~` is the home folder.

    Returns:
        Iterator over `Document`, sorted by path; the key is the path with forward slashes.

    Raises:
        ValueError: if the name is empty, no file matches, or (while iterating) a file cannot be read as UTF-8.
    """
    if not source_name:
        raise ValueError(f"`source_name` must be a name, got {source_name!r}. Give the source a name, such as 'wiki'.")
    found = glob.glob(os.path.expanduser(glob_pattern), recursive=True)
    paths = sorted((path for path in found if os.path.isfile(path)), key=lambda path: path.replace(os.sep, "/"))
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
        yield Document(source_name, path.replace(os.sep, "/"), text)
