"""A learner with known truth: which kinds of windows does each signal prefer?

Each kind of window has a number of sets of its own; each set is a skill. A set's loss falls from `start` to `end` as it
is practised, `loss = end + (start − end)·exp(−practice/patience)`, and every window has a fixed factor of its own
besides. Practice is the number of windows of the set drawn so far, where copies count together, since they are one
text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling import AdaptiveSampler, WeightPolicy
from adaptive_sampling._random import keyed_generator


@dataclass(frozen=True)
class Kind:
    """Attributes:
    name: what the table calls it.
    share: of all windows.
    sets: clusters of equal size that the windows form, each learned by itself.
    start: loss before any practice, in nats.
    end: loss after endless practice.
    patience: share of the windows of a set to be drawn until the gap has shrunk to 1/e; infinite: it never does.
    """

    name: str
    share: float
    sets: int
    start: float
    end: float
    patience: float


KINDS = (
    Kind("easy", 0.48, 12, 8.0, 1.0, 0.05),
    Kind("learnable", 0.24, 6, 8.0, 2.0, 0.5),
    Kind("rare", 0.04, 2, 8.0, 1.5, 0.8),
    Kind("noise", 0.12, 3, 8.0, 7.0, 0.05),
    Kind("copied", 0.12, 1, 8.0, 0.5, 0.02),
)
"""Noise falls a little at first: a model soon learns which tokens there are, and then no more."""
COPIES = 40
"""Windows that are near-copies of one another in the copied kind."""
BATCH, UPDATE_EVERY, LAG = 16, 20, 32
_SPREAD = 0.15


class SimulatedLearner:
    """Windows, their truth, and a training by a sampler.

    Args:
        num_windows: N.
        seed: key of all that is random.

    Attributes:
        kind: int64 `[N]`, index into `KINDS`.
        cluster: int64 `[N]`, the set of each window.
        scarcity: float64 `[N]`, one over the number of near-copies.
    """

    def __init__(self, num_windows: int, seed: int = 0) -> None:
        rng = keyed_generator(seed, "simulated learner")
        counts = np.floor(np.array([kind.share for kind in KINDS]) * num_windows).astype(np.int64)
        counts[0] += num_windows - counts.sum()
        kind = np.repeat(np.arange(len(KINDS)), counts)
        first_set = np.cumsum([0] + [k.sets for k in KINDS])[:-1]
        place = np.arange(num_windows) - np.repeat(np.cumsum(counts) - counts, counts)
        cluster = first_set[kind] + place % np.array([k.sets for k in KINDS])[kind]
        order = rng.permutation(num_windows)
        self.kind, self.cluster = kind[order], cluster[order]
        self.scarcity = np.where(self.kind == len(KINDS) - 1, 1.0 / COPIES, 1.0)
        self.factor = rng.lognormal(-(_SPREAD**2) / 2, _SPREAD, num_windows)
        self._of_set = np.bincount(self.cluster)
        self._kind_of_set = np.array([self.kind[self.cluster == c][0] for c in range(len(self._of_set))])
        self.practice = np.zeros(len(self._of_set))

    def losses(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Loss of windows now, float64, in nats."""
        start, end, patience = (self._of_each_set(name) for name in ("start", "end", "patience"))
        level = end + (start - end) * np.exp(-self.practice / (patience * self._of_set))
        return np.asarray(level[self.cluster[ids]] * self.factor[ids])

    def final_losses(self) -> NDArray[np.float64]:
        """Loss of each window after endless practice: what a perfect reference model would say, float64 `[N]`."""
        return np.asarray(self._of_each_set("end")[self.cluster] * self.factor)

    def _of_each_set(self, name: str) -> NDArray[np.float64]:
        return np.array([getattr(kind, name) for kind in KINDS])[self._kind_of_set]

    def train(self, policy: WeightPolicy, passes: float, seed: int = 0) -> NDArray[np.float64]:
        """Draw as many windows as `passes` times N, with updates as a callback makes them.

        Returns:
            float64 `[kinds]`: draws of each kind over those of uniform draws.
        """
        num_windows = len(self.kind)
        steps = max(int(passes * num_windows) // BATCH, 1)
        policy.bind(num_windows, steps)
        sampler = AdaptiveSampler(num_windows, block_size=BATCH, seed=seed)
        sampler.set_weights(policy.initial_weights())
        drawn: list[NDArray[np.int64]] = []
        seen: list[NDArray[np.float64]] = []
        waiting: list[tuple[int, NDArray[np.float32]]] = []
        counts = np.zeros(len(KINDS))
        for step in range(1, steps + 1):
            while waiting and waiting[0][0] <= step:
                sampler.set_weights(waiting.pop(0)[1])
            ids = sampler.draw(BATCH)
            drawn.append(ids)
            seen.append(self.losses(ids))
            np.add.at(self.practice, self.cluster[ids], 1.0)
            counts += np.bincount(self.kind[ids], minlength=len(KINDS))
            if step % UPDATE_EVERY == 0:
                self._update(policy, np.concatenate(drawn), np.concatenate(seen), step)
                waiting.append((step + LAG, policy.weights.copy()))
                drawn, seen = [], []
        return np.asarray(counts / counts.sum() / (np.bincount(self.kind) / num_windows))

    def _update(self, policy: WeightPolicy, ids: NDArray[np.int64], losses: NDArray[np.float64], step: int) -> None:
        # A model's entropy is near its loss where it is calibrated.
        values = {"loss": losses, "entropy": losses}
        policy.update(ids, {name: values[name] for name in policy.needs}, step=step)


def share_of_each_kind(
    make_policy: Callable[[SimulatedLearner], WeightPolicy], passes: float, num_windows: int, seeds: int = 1
) -> NDArray[np.float64]:
    """Mean over seeds of `SimulatedLearner.train`."""
    rows = []
    for seed in range(seeds):
        learner = SimulatedLearner(num_windows, seed)
        rows.append(learner.train(make_policy(learner), passes, seed))
    return np.asarray(np.mean(rows, axis=0))
