"""Cells on disk: an index of more rows than memory holds, filled shard by shard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from adaptive_sampling.neighbors._faiss import safe_threads
from adaptive_sampling.neighbors.rows import Rows

_CELLS = "cells.ivfdata"


def fill_on_disk(trained: Any, rows: Rows, folder: Path, *, rows_per_shard: int) -> Any:
    """Add all `rows` to the trained, empty index `trained`; its cells lie in `folder` and are read from there.

    Each shard is an index of its own on disk; then the cells of all shards are joined, one cell after the other. What
    the shards took on disk is freed.

    Args:
        trained: a Faiss IVF index without rows.
        rows: what is added; row i gets id i.
        folder: existing folder; the file made there must outlive the index.
        rows_per_shard: rows in memory at a time.

    Returns:
        The index, with its cells on disk.

    Cost:
        Memory: one shard. Disk: the rows twice while they are joined, once after that.
    """
    shards = []
    with safe_threads() as faiss:
        from faiss.contrib.ondisk import merge_ondisk

        for number, (first, last) in enumerate(rows.spans(rows_per_shard)):
            shard = faiss.clone_index(trained)
            for start in range(first, last, 1 << 16):
                block = rows.take(slice(start, min(start + (1 << 16), last)))
                shard.add_with_ids(block, np.arange(start, start + len(block), dtype=np.int64))
            path = folder / f"shard_{number:05d}.index"
            faiss.write_index(shard, str(path))
            shards.append(path)
            del shard
        merge_ondisk(trained, [str(path) for path in shards], str(folder / _CELLS))
    for path in shards:
        path.unlink()
    return trained
