"""Groups of documents by a column of the manifest that `prepare` wrote beside the store."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import stable_hash
from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.corpus._extras import require

_MANIFEST = "manifest.parquet"
_KEY_COLUMNS = ("content_hash", "key")  # what the keys of a store's documents may be hashes of


def document_groups(store: TokenStore, column: str) -> tuple[NDArray[np.int64], list[str]]:
    """Group of each document by a manifest column; "folder", where there is none, is that of "path" or else "key".

    Args:
        store: Its manifest.parquet is in its folder or in the one above.
        column: Name of the column.

    Returns:
        (int64 [documents], names): index into the names, which are sorted.

    Raises:
        ValueError: if there is no manifest or no such column, or documents of the store are not in it.
        MissingExtraError: if pyarrow is not installed.
    """
    folders = (store.path, store.path.parent)
    path = next((folder / _MANIFEST for folder in folders if (folder / _MANIFEST).exists()), None)
    if path is None:
        raise ValueError(
            f"`group_by` must have a {_MANIFEST} in {str(folders[0])!r} or above it, got {column!r} and none. "
            "Make the store with `adaptive-sampling prepare`."
        )
    table: Any = require("pyarrow.parquet", "to read a manifest").read_table(path)
    values, there = _column(table, column), table.column_names
    if values is None:
        raise ValueError(
            f"`group_by` must be a column of {str(path)!r}, got {column!r}. There are: {', '.join(there)}."
        )
    wanted = np.asarray(store.document_keys)
    for name in _KEY_COLUMNS:
        if name not in there:
            continue
        hashes = [stable_hash(key) & 0xFFFFFFFFFFFFFFFF for key in table.column(name).to_pylist()]
        keys = np.array(hashes, np.uint64)
        order = np.argsort(keys, kind="stable")
        at = np.minimum(np.searchsorted(keys[order], wanted), max(len(keys) - 1, 0))
        if not len(wanted) or (len(keys) and (keys[order][at] == wanted).all()):
            names, groups = np.unique(np.array(values, dtype=str), return_inverse=True)
            found = groups[order[at]] if len(wanted) else np.zeros(0)
            return found.astype(np.int64), [str(name) for name in names]
    raise ValueError(
        f"`group_by` must have every document of the store in {str(path)!r}, got a store with others. "
        "Write the store with the manifest's content_hash or key of each document as its key."
    )


def _column(table: Any, column: str) -> list[str] | None:
    if column in table.column_names:
        return ["" if value is None else str(value) for value in table.column(column).to_pylist()]
    if column != "folder":
        return None
    # A document that was no file has no path; its key may say where it is from.
    paths, keys = (
        table.column(name).to_pylist() if name in table.column_names else [""] * table.num_rows
        for name in ("path", "key")
    )
    return [str(PurePosixPath(path or key or "").parent) for path, key in zip(paths, keys, strict=True)]
