"""Held-out files by name, where the split is not left to the hash of the content."""

from __future__ import annotations

import os
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
        self._entries = dict.fromkeys(entries)
        self._folders: dict[str, str] = {}
        # Places on disk, so that ./x and the absolute path of x are what a source finds as x.
        self._files: dict[str, list[str]] = {}
        for entry in self._entries:
            for path in find_files(entry).files:
                self._files.setdefault(self._place(path), []).append(entry)
        self._unmatched = set(self._entries)

    def settings(self) -> Any:
        """What it resolved to, for the fingerprint of a run."""
        return [sorted(self._files), sorted(self._entries)]

    def matches(self, work: Work, number: int) -> NDArray[np.bool_]:
        """bool [rows of the chunk], which of its documents are held out."""
        table = work.rows(number, ["path", "key"])
        found = np.zeros(len(table), bool)
        for row, (path, key) in enumerate(zip(table["path"].to_pylist(), table["key"].to_pylist(), strict=True)):
            matched = list(self._files.get(self._place(path), ())) if path else []
            if key in self._entries:
                matched.append(key)
            found[row] = bool(matched)
            self._unmatched.difference_update(matched)
        return found

    def refuse_unmatched(self) -> None:
        """Refuse a list of which something matches nothing.

        Raises:
            ValueError: naming all that matches nothing.
        """
        if not self._unmatched:
            return
        names = [repr(entry) for entry in self._entries if entry in self._unmatched]
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        raise ValueError(
            f"`validation_files` must each match a file of a source or the key of a document, got "
            f"{', '.join(names[:10])}{more}, which match{'es' if len(names) == 1 else ''} none. "
            "Correct the path, or add the file to a source."
        )

    def _place(self, path: str) -> str:
        """Absolute path with the links of its folder resolved, each folder once."""
        folder, name = os.path.split(path)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return os.path.join(self._folders[folder], name)
