"""The policy at ten million windows: an update and a full pass, against a shuffle and a sort of as many numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from adaptive_sampling import WeightPolicy
from experiments.benchmarks._row import Row, best_seconds

NUM_WINDOWS = 10**7
OBSERVATIONS = 4096
NUM_GROUPS = 64


def rows() -> Iterator[Row]:
    """All windows seen, a part of them twice, with groups and scarcity: every step of a pass has work to do."""
    rng = np.random.default_rng(0)
    policy = WeightPolicy(
        groups=rng.integers(0, NUM_GROUPS, NUM_WINDOWS),
        scarcity=rng.random(NUM_WINDOWS) + 0.5,
        warmup=0,
        cooldown=0,
        normalize_every=10**9,
    )
    policy.update(np.arange(NUM_WINDOWS), rng.lognormal(1.5, 0.5, NUM_WINDOWS))
    policy.update(np.arange(0, NUM_WINDOWS, 3), rng.lognormal(1.0, 0.5, len(range(0, NUM_WINDOWS, 3))))
    ids, values = rng.integers(0, NUM_WINDOWS, OBSERVATIONS), rng.lognormal(1.0, 0.5, OBSERVATIONS)
    ours = best_seconds(lambda: policy.update(ids, values), 20)
    theirs = best_seconds(lambda: rng.permutation(NUM_WINDOWS), 1)
    yield Row(
        f"{OBSERVATIONS:,} observations, N = {NUM_WINDOWS:.0e}",
        f"{ours * 1e3:.2f} ms",
        f"{theirs * 1e3:.0f} ms (numpy permutation of N, one epoch's shuffle)",
        ours / theirs,
    )
    ours = best_seconds(policy.initial_weights, 3)
    scores = policy.scores
    theirs = best_seconds(lambda: np.sort(scores.astype(np.float64)), 3)
    yield Row(
        f"full pass over all windows, N = {NUM_WINDOWS:.0e}",
        f"{ours * 1e3:.0f} ms",
        f"{theirs * 1e3:.0f} ms (numpy sort of N float64)",
        ours / theirs,
    )
