"""Draws that hold shares of tokens per source, whatever the weights inside a source do.

Two levels: first how many draws each source gets, by largest remainder with what is left carried on, then which of its
windows, by an engine of its own. A share of tokens becomes a share of draws through the targets that a draw from the
source holds on average: with shares ½ : ½ over windows of 8 and of 2 targets, one draw in five is from the first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import keyed_generator, stable_hash
from adaptive_sampling.sampling._sources import SourceMap
from adaptive_sampling.sampling.shares import ShareSchedule, apportion
from adaptive_sampling.sampling.tickets import Multinomial, Tickets

_AS_BEFORE = 1e-6  # targets per draw that changed by less leave shares of tokens as they are
_PLAN_PIECES = 256  # of the rest of an epoch, over each of which a schedule's shares count as constant


class Mixture:
    """An engine over several sources with the surface of `Tickets` and `Multinomial`.

    At the start of an epoch, and when weights or shares change, the draws that remain are apportioned to the sources;
    what rounding leaves is carried to the next time, so that no source drifts from its share. Each block then takes
    what the sources are due up to its end. Inside a source everything holds that holds for its engine alone: with
    equal weights, a share that makes its draws equal its windows is a shuffle of the source.

    Args:
        weights: float32 `[N]`.
        sources: which window belongs to which source.
        shares: shares of tokens.
        stratified: spread the sources of a block evenly over it, so that each batch of it is apportioned too;
            otherwise their order in the block is drawn.
        num_draws: draws per epoch over all sources.
        seed: of the stream.
        engine: what draws inside a source.

    Cost:
        As the engine's, plus the runs of `SourceMap`; reading `weights` as a whole is O(N).

    Raises:
        ValueError: naming a source that has a share and no window of positive weight, or no targets.
    """

    def __init__(
        self,
        weights: NDArray[np.float32],
        *,
        sources: SourceMap,
        shares: ShareSchedule,
        stratified: bool,
        num_draws: int,
        seed: int,
        engine: type[Tickets] | type[Multinomial],
    ) -> None:
        self.num_windows = len(weights)
        self.num_draws = num_draws
        self.seed = seed
        self.epoch = 0
        self.block = 0
        self.drawn = 0  # in this epoch
        self._sources = sources
        self._shares = shares
        self._stratified = stratified
        self._engines: list[Tickets | Multinomial] = []
        for source, name in enumerate(sources.names):
            part = sources.gather(source, weights)
            self._engines.append(engine(part, num_draws=0, seed=stable_hash(seed, "source", str(name)) >> 65))
        self._carry = np.zeros(len(sources.names))  # draws due before the plan that rounding held back
        self._plan()
        self._issue()

    @property
    def weights(self) -> NDArray[np.float32]:
        """The weights that the next block will see, float32 `[N]`, put together in O(N)."""
        weights = np.empty(self.num_windows, np.float32)
        for source, engine in enumerate(self._engines):
            self._sources.scatter(source, engine.weights, weights)
        return weights

    def set_weights(self, weights: NDArray[np.float32]) -> None:
        """Replace all weights: each source's draws that remain are apportioned and claimed anew."""
        self._settle()
        parts = [self._sources.gather(source, weights) for source in range(len(self._engines))]
        self._plan(parts)
        for engine, part, quota in zip(self._engines, parts, self._quota.tolist(), strict=True):
            engine.num_draws = engine.drawn + quota
            engine.set_weights(part)

    def update_weights(self, ids: NDArray[np.int64], values: NDArray[np.float32]) -> None:
        """Change the weights of `ids` (each id once) inside their sources; shares of tokens are untouched."""
        sources, local = self._sources.locate(ids)
        order = np.argsort(sources, kind="stable")
        bounds = np.searchsorted(sources[order], np.arange(len(self._engines) + 1))
        for source in np.flatnonzero(np.diff(bounds)).tolist():
            part = order[bounds[source] : bounds[source + 1]]
            engine, own = self._engines[source], local[part]
            fewer = self._sources.fewer_targets(source, own)
            self._missing[source] += float(((values[part].astype(np.float64) - engine.weights[own]) * fewer).sum())
            engine.update_weights(own, values[part])
        totals = np.array([engine.total_weight for engine in self._engines])
        targets = mean_targets(self._sources, self._missing, totals)
        if not np.allclose(targets, self._targets, rtol=_AS_BEFORE, atol=0):
            # Draws now hold more or fewer tokens: what remains is apportioned anew, and an engine whose tickets are
            # too many or too few for it issues before its next draw.
            self._settle()
            self._apportion(targets)
            self._hand_out()

    @property
    def shares(self) -> ShareSchedule:
        """The shares of tokens in force."""
        return self._shares

    @shares.setter
    def shares(self, shares: ShareSchedule) -> None:
        self._settle()
        self._shares = shares
        self._plan()
        self._issue()

    def start_epoch(self, epoch: int) -> None:
        """Leave the current epoch as it stands and begin `epoch`."""
        self._settle()
        self.epoch, self.block, self.drawn = epoch, 0, 0
        self._plan()
        for engine, quota in zip(self._engines, self._quota.tolist(), strict=True):
            engine.num_draws = quota
            engine.start_epoch(epoch)

    def next_block(self, block_size: int) -> NDArray[np.int64]:
        """The next at most `block_size` ids of the stream, int64; a block never crosses the end of an epoch."""
        if self.drawn == self.num_draws:
            self.start_epoch(self.epoch + 1)
        size = min(block_size, self.num_draws - self.drawn)
        generator = keyed_generator(self.seed, "draws", self.epoch, self.block)
        counts = self._counts_of_block(size)
        drawn = np.flatnonzero(counts).tolist()
        ids = np.concatenate([self._sources.ids(s, self._engines[s].draw(int(counts[s]), generator)) for s in drawn])
        chance = generator.random(size)
        if self._stratified:
            # Draw k of n is due in the middle of its n-th part of the block; draws due together come in any order.
            due = np.concatenate([(np.arange(n) + 0.5) / n for n in counts[drawn]])
            ids = ids[np.lexsort((chance, np.round(due, 9)))]
        else:
            ids = ids[np.argsort(chance)]
        self._given += counts
        self.drawn += size
        self.block += 1
        return ids

    def _counts_of_block(self, size: int) -> NDArray[np.int64]:
        """Draws per source in the next block."""
        owed = self._due(self.drawn + size) - self._given
        last = self.drawn + size == self.num_draws
        if self._stratified and not last:
            # Each source gets its share of this block rounded down or up; what it is owed from before says which.
            here = self._due(self.drawn + size) - self._due(self.drawn)
            counts = np.floor(here + 1e-9).astype(np.int64)
            between = np.flatnonzero(here - counts > 1e-9)
            longest_owed = between[np.argsort(np.round(counts - owed, 9)[between], kind="stable")]
            counts[longest_owed[: size - int(counts.sum())]] += 1
            if counts.sum() == size and (counts <= self._quota - self._given).all():
                return counts
        return apportion(owed, size)

    # --- how many draws each source gets ----------------------------------------------------------------------------

    def _plan(self, weights: list[NDArray[np.float32]] | None = None) -> None:
        """Apportion the draws that remain in the epoch, at the shares of now and `weights` per source."""
        self._missing, totals = weighed(self._sources, weights or [engine.weights for engine in self._engines])
        self._apportion(mean_targets(self._sources, self._missing, totals))

    def _apportion(self, targets: NDArray[np.float64]) -> None:
        self._targets = targets
        self._plan_start = self.drawn
        self._given = np.zeros(len(self._engines), np.int64)
        self._build_due()
        # A source without a share from here on gets nothing more, whatever it was due before.
        live = self._due_shares[-1] > 0
        self._carry[~live] = 0.0
        self._quota = np.zeros(len(live), np.int64)
        due = self._carry[live] + self._due_shares[-1][live]
        self._quota[live] = apportion(due, self.num_draws - self.drawn)

    def _build_due(self) -> None:
        pieces = 1 if self._shares.constant else _PLAN_PIECES
        self._due_at = np.linspace(self._plan_start, self.num_draws, pieces + 1)
        middles = self.epoch * self.num_draws + (self._due_at[1:] + self._due_at[:-1]) / 2
        due = draw_shares(self._shares, middles, self._targets) * np.diff(self._due_at)[:, None]
        self._due_shares = np.concatenate([np.zeros((1, due.shape[1])), np.cumsum(due, 0)])

    def _due_by_share(self, drawn: int) -> NDArray[np.float64]:
        """Draws that the shares alone give each source from the plan until `drawn` of the epoch are made."""
        return np.array([np.interp(drawn, self._due_at, column) for column in self._due_shares.T])

    def _due(self, drawn: int) -> NDArray[np.float64]:
        """The same, stretched so that the end of the epoch meets the quotas."""
        whole = self._due_shares[-1]
        stretched: NDArray[np.float64] = self._due_by_share(drawn) / np.where(whole > 0, whole, 1) * self._quota
        return stretched

    def _settle(self) -> None:
        """Before a new plan: what a source was due and not given, or given and not due, is carried on."""
        self._carry += self._due_by_share(self.drawn) - self._given

    def _issue(self) -> None:
        self._hand_out()
        for engine in self._engines:
            engine.issue()

    def _hand_out(self) -> None:
        for engine, quota in zip(self._engines, self._quota.tolist(), strict=True):
            engine.num_draws = engine.drawn + quota

    # --- state ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that later blocks depend on but the shares."""
        return {
            "epoch": self.epoch,
            "block": self.block,
            "drawn": self.drawn,
            "carry": self._carry.copy(),
            "targets": self._targets.copy(),
            "missing": self._missing.copy(),
            "plan_start": self._plan_start,
            "given": self._given.copy(),
            "quota": self._quota.copy(),
            "engines": [engine.state_dict() for engine in self._engines],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Counterpart of `state_dict`."""
        self.epoch, self.block, self.drawn = int(state["epoch"]), int(state["block"]), int(state["drawn"])
        for name in ("carry", "targets", "missing", "given", "quota"):
            setattr(self, f"_{name}", np.array(state[name]))
        self._plan_start = int(state["plan_start"])
        self._build_due()
        rest = (self._quota - self._given).tolist()
        for engine, saved, left in zip(self._engines, state["engines"], rest, strict=True):
            engine.load_state_dict(saved)
            engine.num_draws = engine.drawn + left


def check_sources(sources: SourceMap, shares: ShareSchedule, weights: NDArray[np.float32]) -> None:
    """Refuse weights that leave a source with a share, now or later, nothing to draw.

    Raises:
        ValueError: naming the source.
    """
    for source in np.flatnonzero((shares.values > 0).any(0)):
        name = sources.names[source]
        if not sources.counts[source]:
            raise ValueError(f"`source_shares` gives a share to source {name!r}, which has no window. Give it 0.")
        if not sources.gather(int(source), weights).any():
            raise ValueError(
                f"weights must leave source {name!r} something to draw, all its {sources.counts[source]} windows have "
                "weight 0. Give the source the share 0, or one of its windows a weight."
            )
        if not sources.largest[source]:
            raise ValueError(f"source {name!r} has a share of tokens, but its windows hold no target. Give it 0.")


def weighed(sources: SourceMap, weights: list[NDArray[np.float32]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per source: Σ weight · targets that windows hold fewer than its largest, and Σ weight; float64 `[S]` each."""
    missing = [sources.missing_targets(source, part) for source, part in enumerate(weights)]
    return np.array(missing), np.array([float(part.sum(dtype=np.float64)) for part in weights])


def mean_targets(sources: SourceMap, missing: NDArray[np.float64], totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Targets that a draw holds on average per source, of what `weighed` gives; 1 where nothing can be drawn."""
    means = sources.largest - missing / np.where(totals > 0, totals, 1.0)
    return np.where((totals > 0) & (means > 0), means, 1.0)


def draw_shares(
    shares: ShareSchedule, positions: NDArray[np.float64], targets: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Shares of draws that give the shares of tokens at `positions`: float64 `[k, S]`, each row sums to 1."""
    unnormalised = shares.at(positions) / targets
    normalised: NDArray[np.float64] = unnormalised / unnormalised.sum(1, keepdims=True)
    return normalised
