"""Features in memory, or in a `.npy` file that grows block by block and goes on where it was interrupted."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from adaptive_sampling._arrays import open_array
from adaptive_sampling._files import make_parent, write_json

Float32 = NDArray[np.float32]
# stage, done, total
Progress = Callable[[str, int, "int | None"], None]
_SECONDS_BETWEEN_MARKS = 5.0


def fill_features(
    compute: Callable[[int, int], Float32],
    num_rows: int,
    dim: int,
    *,
    batch_size: int,
    settings: Mapping[str, Any],
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Float32:
    """Features of all rows, computed batch by batch.

    A file is first called `<out>.part`, with a note beside it of how far it is; it gets its name when it is whole.
    Called again after an interruption, it goes on behind the last noted row, if settings are the same and the first
    batch, computed anew, has not changed; else it starts over, with a warning.

    Args:
        compute: (first, last) → float32 `[last − first, dim]`, the features of these rows.
        num_rows: N.
        dim: columns.
        batch_size: rows at a time.
        settings: JSON values that tell one kind of features from another.
        out: path of the file, ending with .npy; None: an array in memory.
        progress: called with ("features", rows done, N).

    Returns:
        float32 `[N, dim]`, a read-only memory map where there is a file.

    Raises:
        ValueError: if `out` does not end with .npy.
        FileExistsError: if `out` exists.

    Cost:
        Beside the array: one batch.
    """
    report = progress or (lambda stage, done, total: None)
    if out is None:
        features = np.empty((num_rows, dim), dtype=np.float32)
        for first in range(0, num_rows, batch_size):
            last = min(first + batch_size, num_rows)
            features[first:last] = compute(first, last)
            report("features", last, num_rows)
        return features
    path = Path(out)
    check_new_features(path)
    make_parent(path)
    part, note = path.with_name(path.name + ".part"), path.with_name(path.name + ".part.json")
    wanted = {"num_rows": num_rows, "dim": dim, **settings}
    done = _resumable(part, note, wanted, compute, batch_size)
    mapped = open_memmap(part, "r+" if done else "w+", dtype=np.float32, shape=(num_rows, dim))
    noted = time.monotonic()
    for first in range(done, num_rows, batch_size):
        last = min(first + batch_size, num_rows)
        mapped[first:last] = compute(first, last)
        report("features", last, num_rows)
        if time.monotonic() - noted > _SECONDS_BETWEEN_MARKS:
            mapped.flush()  # the rows before the note that counts them
            write_json(note, {"done": last, **wanted})
            noted = time.monotonic()
    mapped.flush()
    del mapped
    os.replace(part, path)
    note.unlink(missing_ok=True)
    return open_features(path)


def check_new_features(path: Path, name: str = "out") -> None:
    """Refuse a path that `fill_features` cannot write to; `name` is the caller's argument.

    Raises:
        ValueError: if it does not end with .npy.
        FileExistsError: if it exists.
    """
    if path.suffix != ".npy":
        raise ValueError(f"`{name}` must end with .npy, got {str(path)!r}.")
    if path.exists():
        raise FileExistsError(
            f"`{name}` must be a new file, got {str(path)!r}, which exists. Load it, or remove it first."
        )


def open_features(path: str | Path) -> Float32:
    """The features in a `.npy` file, float32 `[N, dim]`, as a read-only memory map.

    Raises:
        ValueError: if the file holds something else.
    """
    features = open_array(path)
    if features.ndim != 2 or features.dtype != np.float32:
        raise ValueError(
            f"`{path}` must hold float32 [rows, dim], got {features.dtype} {features.shape}. Compute features again."
        )
    return features


def _resumable(
    part: Path, note: Path, wanted: Mapping[str, Any], compute: Callable[[int, int], Float32], batch_size: int
) -> int:
    """Rows of `part` that can be kept."""
    try:
        noted = json.loads(note.read_text(encoding="utf-8"))
        rows = np.load(part, mmap_mode="r", allow_pickle=False)
        done = int(noted.pop("done"))
    except (OSError, ValueError, KeyError):
        return 0
    if noted != wanted:
        warnings.warn(
            f"`{part}` was begun with {noted}, here it is {dict(wanted)}: features are computed from the start.",
            stacklevel=4,
        )
        return 0
    last = min(batch_size, done)
    if not np.allclose(rows[:last], compute(0, last), atol=1e-5):
        warnings.warn(f"`{part}` holds features of other data: they are computed from the start.", stacklevel=4)
        return 0
    return done
