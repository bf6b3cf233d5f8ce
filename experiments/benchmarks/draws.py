"""Draws per second and the time until a changed weight counts, against `torch.utils.data.WeightedRandomSampler`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import WeightedRandomSampler

from adaptive_sampling import AdaptiveSampler
from experiments.benchmarks._row import Row, best_seconds

NUM_WINDOWS = 10**6
NUM_DRAWS = 10**6


def rows() -> Iterator[Row]:
    """Both samplers are iterated id by id, as a loader does."""
    weights = np.random.default_rng(0).gamma(2.0, 1.0, NUM_WINDOWS).astype(np.float32)
    sampler = AdaptiveSampler(NUM_WINDOWS, num_draws=NUM_DRAWS, seed=0)
    sampler.set_weights(weights)
    peer = WeightedRandomSampler(torch.from_numpy(weights), NUM_DRAWS)

    def iterate(ids: object) -> None:
        for _ in ids:  # type: ignore[attr-defined]
            pass

    ours, theirs = best_seconds(lambda: iterate(sampler), 3), best_seconds(lambda: iterate(peer), 3)
    yield Row(
        f"draws/s, one epoch id by id, N = {NUM_WINDOWS:.0e}",
        f"{NUM_DRAWS / ours / 1e6:.2f} M/s",
        f"{NUM_DRAWS / theirs / 1e6:.2f} M/s (WeightedRandomSampler)",
        theirs / ours,
    )
    ours = best_seconds(lambda: sampler.draw(8192), 20)
    tensor = torch.from_numpy(weights)
    theirs = best_seconds(lambda: torch.multinomial(tensor, 8192, True), 20)
    yield Row(
        f"draws/s in blocks of 8,192, N = {NUM_WINDOWS:.0e}",
        f"{8192 / ours / 1e6:.2f} M/s",
        f"{8192 / theirs / 1e6:.2f} M/s (torch.multinomial)",
        theirs / ours,
    )
    ids = np.random.default_rng(1).choice(NUM_WINDOWS, 1024, replace=False)
    fresh = AdaptiveSampler(NUM_WINDOWS, num_draws=NUM_DRAWS, block_size=32, seed=0)
    fresh.set_weights(weights)
    fresh.draw(32)
    values = weights[ids]

    def change_and_draw() -> None:
        fresh.update_weights(ids, values)
        fresh.draw(32)

    def peer_change_and_draw() -> None:
        peer.weights[ids] = torch.from_numpy(values).to(peer.weights.dtype)
        next(iter(WeightedRandomSampler(peer.weights, 32)))

    ours, theirs = best_seconds(change_and_draw, 20), best_seconds(peer_change_and_draw, 5)
    yield Row(
        f"from 1,024 changed weights to 32 draws that see them, N = {NUM_WINDOWS:.0e}",
        f"{ours * 1e3:.2f} ms",
        f"{theirs * 1e3:.1f} ms (WeightedRandomSampler)",
        ours / theirs,
    )
