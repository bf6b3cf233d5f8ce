"""Held-out files by name, where the split is not left to the hash of the content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.corpus._globs import find_files

if TYPE_CHECKING:
    from adaptive_sampling.corpus._work import Work


class HeldOutFiles:
    """Which documents a list of files or keys holds out.

    Args:
        entries: Patterns of files, or keys of documents.

    Raises:
        ValueError: for an empty list.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        if isinstance(entries, (str, bytes)) or not entries or not all(isinstance(entry, str) for entry in entries):
            raise ValueError(f"`validation_files` must be a list of patterns, got {entries!r}. Name at least one file.")
        self._paths: set[str] = set()
        self._keys: set[str] = set()
        for entry in entries:
            files = find_files(entry).files
            self._paths.update(files)
            if not files:
                self._keys.add(entry)
        self._unmatched = set(self._keys)
        self._matched = False

    def settings(self) -> Any:
        """What it resolved to, for the fingerprint of a run."""
        return [sorted(self._paths), sorted(self._keys)]

    def matches(self, work: Work, number: int) -> NDArray[np.bool_]:
        """bool [rows of the chunk], which of its documents are held out."""
        table = work.rows(number, ["path", "key"])
        keys = table["key"].to_pylist()
        self._unmatched -= set(keys)
        paths = table["path"].to_pylist()
        found = [path in self._paths or key in self._keys for path, key in zip(paths, keys, strict=True)]
        self._matched |= any(found)
        return np.array(found, bool)

    def refuse_unmatched(self) -> None:
        """Refuse a list of which something matches nothing.

        Raises:
            ValueError: naming what matches nothing.
        """
        if self._unmatched or not self._matched:
            what = min(self._unmatched, default=min(self._paths, default=""))
            raise ValueError(
                f"`validation_files` must match files or keys of documents, got {what!r}, which matches none. "
                "Write the path as the source finds it."
            )
