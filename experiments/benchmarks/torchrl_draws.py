"""TorchRL's C++ segment tree and its prioritized sampler: `python -m experiments.benchmarks.torchrl_draws N`.

Runs in an environment of its own, because TorchRL 0.14.1 does not load beside torch 2.13, and prints one line of JSON:
peer → measure → seconds, or bytes per window.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from typing import Any

import numpy as np
import torch

from experiments.benchmarks._row import best_seconds
from experiments.benchmarks._workload import BLOCKS, BUDGET, REPEATS, changes, make_weights

Figures = dict[str, float]


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _best(run: Any) -> float:
    return best_seconds(run, REPEATS, BUDGET)


def tree_figures(size: int) -> Figures:
    """The bare tree: `scan_lower_bound` of uniform points, as a sampler on top of it would call it."""
    from torchrl._torchrl import SumSegmentTreeFp32

    weights, everything, generator = make_weights(size), np.arange(size), np.random.default_rng(2)
    changed = changes(weights)
    figures: Figures = {}
    gc.collect()
    before = _resident_bytes()
    tree = SumSegmentTreeFp32(size)

    def fill() -> None:
        tree[everything] = weights

    def change() -> None:
        ids, values = next(changed)
        tree[ids] = values

    def draw(count: int) -> Any:
        points = generator.random(count, dtype=np.float32) * np.float32(tree.query(0, size))
        return tree.scan_lower_bound(points)

    figures["start"] = figures["issue"] = best_seconds(fill, 1)
    figures["bytes"] = (_resident_bytes() - before) / size
    for block in BLOCKS:
        figures[f"draw {block}"] = _best(lambda block=block: draw(block))
    figures["change"] = _best(change)
    figures["change and draw"] = _best(lambda: [change(), draw(32)])
    figures["reissue"] = best_seconds(fill, 3, BUDGET)
    return figures


def sampler_figures(size: int) -> Figures:
    """`PrioritizedSampler` with priorities as weights (alpha 1), over a storage of one byte per window."""
    from torchrl.data import LazyTensorStorage, PrioritizedSampler

    storage = LazyTensorStorage(size)
    storage.set(range(size), torch.zeros(size, 1, dtype=torch.uint8))
    weights, everything = torch.from_numpy(make_weights(size)), torch.arange(size)
    changed = changes(weights.numpy())
    figures: Figures = {}
    gc.collect()
    before = _resident_bytes()
    sampler = PrioritizedSampler(size, alpha=1.0, beta=0.4, eps=0.0)

    def fill() -> None:
        sampler.update_priority(everything, weights, storage=storage)

    def change() -> None:
        ids, values = next(changed)
        sampler.update_priority(torch.from_numpy(ids), torch.from_numpy(values), storage=storage)

    figures["start"] = figures["issue"] = best_seconds(fill, 1)
    gc.collect()
    figures["bytes"] = (_resident_bytes() - before) / size
    for block in BLOCKS:
        figures[f"draw {block}"] = _best(lambda block=block: sampler.sample(storage, block))
    figures["change"] = _best(change)
    figures["change and draw"] = _best(lambda: [change(), sampler.sample(storage, 32)])
    figures["reissue"] = best_seconds(fill, 3, BUDGET)
    return figures


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    number = int(sys.argv[1])
    print(json.dumps({"TorchRL tree": tree_figures(number), "TorchRL PrioritizedSampler": sampler_figures(number)}))
