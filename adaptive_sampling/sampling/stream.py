"""The global stream of draws: an engine, weights that wait for their place, and ids drawn but not yet consumed.

A stream knows positions over all ranks and nothing of ranks, loaders or loader epochs.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from adaptive_sampling._arrays import as_array, checked_ids
from adaptive_sampling.errors import StateMismatchError
from adaptive_sampling.sampling._checks import checked_weights
from adaptive_sampling.sampling._schedule import WeightSchedule
from adaptive_sampling.sampling._sources import SourceMap
from adaptive_sampling.sampling.mixture import Mixture, check_sources, draw_shares, mean_targets
from adaptive_sampling.sampling.shares import ShareSchedule
from adaptive_sampling.sampling.tickets import Multinomial, Tickets

Draws = Literal["systematic", "multinomial"]
_ENGINES: dict[str, type[Tickets] | type[Multinomial]] = {"systematic": Tickets, "multinomial": Multinomial}
_STATE_VERSION = 2
_MOST_TOGETHER = 2048  # draws of small blocks that are made at once


class DrawStream:
    """One order of window ids for all ranks, drawn in blocks as far as somebody looks ahead.

    Small blocks are drawn several at once, more and more of them as long as no weight changes; when one does, the draws
    of blocks that have not begun are taken back. So the order is a function of the weights and of the stream positions
    at which they changed, not of who looked ahead how far.

    Args:
        num_windows: N.
        num_draws: draws per epoch of the engine.
        draws: "systematic" or "multinomial".
        block_size: draws made together; all of them see one version of the weights.
        sources: which window belongs to which source; None: no shares.
        shares: shares of tokens per source.
        stratified: spread the sources evenly over each block.

    Raises:
        ValueError: on an unknown kind of draws.
    """

    def __init__(
        self,
        num_windows: int,
        num_draws: int,
        draws: Draws,
        block_size: int,
        sources: SourceMap | None = None,
        shares: ShareSchedule | None = None,
        stratified: bool = False,
    ) -> None:
        if draws not in _ENGINES:
            raise ValueError(f"`draws` must be one of {sorted(_ENGINES)}, got {draws!r}.")
        self.num_windows = num_windows
        self.num_draws = num_draws
        self.draws = draws
        self.block_size = block_size
        self.seed: int | None = None
        self.position = 0  # behind the last consumed draw
        self._drawn = np.empty(0, np.int64)  # from position _drawn_from on; the first may be consumed
        self._drawn_from = 0
        self._begun = 0  # behind the last block of which somebody saw a draw; what is drawn beyond may be taken back
        self._together_from = 0  # where the blocks drawn last at once start
        self._together = 1  # blocks to draw at once next
        self._weights_before_start = np.ones(num_windows, np.float32)
        self._sources = sources
        self._shares = self._first_shares = shares
        self._stratified = stratified
        self._engine: Tickets | Multinomial | Mixture | None = None
        self._schedule = WeightSchedule()
        self._last_block_start = -1
        self._seen: NDArray[np.uint8] | None = None
        self._check_sources(self._weights_before_start)

    # --- weights ----------------------------------------------------------------------------------------------------

    @property
    def weights(self) -> NDArray[np.float32]:
        """The latest weights, seen by draws or not yet: read-only float32 `[N]`."""
        base = self._weights_before_start if self._engine is None else self._engine.weights
        view = self._schedule.latest(base).view()
        view.flags.writeable = False
        return view

    def set_weights(self, weights: Any) -> None:
        """Replace all weights now; pending changes are forgotten. Raises as `checked_weights`."""
        values = self._checked_all(weights)
        self._schedule.clear()
        self._take_back_from(self._begun)
        self._apply(None, values)

    def update_weights(self, ids: Any, values: Any) -> None:
        """Change some weights now, after all pending changes. Raises as `checked_weights` and `checked_ids`."""
        checked = self._checked_some(ids, values)
        self._take_back_from(self._begun)
        self._schedule.apply_all(self._apply)
        self._apply(*checked)

    def schedule_weights(self, position: int, ids: Any, values: Any, cure: str) -> None:
        """Let weights count from the first block that starts at or behind `position`.

        Raises:
            RuntimeError: if such a block has been drawn already; `cure` is appended.
        """
        if position <= self._last_block_start:
            raise RuntimeError(
                f"weights for stream position {position} come too late: a block was drawn at {self._last_block_start}. "
                + cure
            )
        checked = (None, self._checked_all(values)) if ids is None else self._checked_some(ids, values)
        self._schedule.add(position, *checked)
        self._take_back_from(self._block_start(position))

    def _checked_all(self, weights: Any) -> NDArray[np.float32]:
        values = checked_weights("weights", weights, self.num_windows)
        if not values.any():
            raise ValueError("`weights` must not all be zero. Give at least one window a positive weight.")
        self._check_sources(values)
        return values

    def _check_sources(self, weights: NDArray[np.float32]) -> None:
        if self._sources is not None and self._shares is not None:
            check_sources(self._sources, self._shares, weights)

    def _checked_some(self, ids: Any, values: Any) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        id_array = checked_ids("ids", ids, self.num_windows)
        value_array = checked_weights("values", values, len(id_array), id_array)
        if not (id_array[1:] > id_array[:-1]).all():
            ordered = np.sort(id_array)
            repeated = ordered[:-1][np.diff(ordered) == 0]
        else:
            repeated = id_array[:0]
        if len(repeated):
            raise ValueError(f"`ids` must not repeat, got {repeated[0]} more than once. Give one value per window.")
        if not value_array.any():
            weights = self.weights
            if np.count_nonzero(weights) == np.count_nonzero(weights[id_array]):
                raise ValueError("`values` would make all weights zero. Leave at least one window positive.")
        if self._sources is not None and not value_array.all():
            weights = self.weights.copy()
            weights[id_array] = value_array
            self._check_sources(weights)
        return id_array, value_array

    def _apply(self, ids: NDArray[np.int64] | None, values: NDArray[np.float32]) -> None:
        self._together = 1
        if self._engine is None:
            # Before the first block weights are only replaced: nothing is issued, so nothing is issued twice.
            self._weights_before_start[slice(None) if ids is None else ids] = values
        elif ids is None:
            self._engine.set_weights(values)
        else:
            self._engine.update_weights(ids, values)

    @property
    def shares(self) -> ShareSchedule | None:
        """Shares of tokens per source; None without."""
        return self._shares

    def set_shares(self, shares: ShareSchedule) -> None:
        """Replace the shares; blocks drawn from now on see them. Raises as `check_sources`."""
        assert self._sources is not None
        check_sources(self._sources, shares, self.weights)
        self._take_back_from(self._begun)
        self._shares = shares
        if isinstance(self._engine, Mixture):
            self._engine.shares = shares

    def probabilities(self, ids: NDArray[np.int64] | None) -> NDArray[np.float64]:
        """Probability per draw of `ids` (None: all) under the latest weights and the shares at `position`."""
        weights = self.weights
        chosen = weights if ids is None else weights[ids]
        if self._sources is None or self._shares is None:
            whole: NDArray[np.float64] = chosen.astype(np.float64) / weights.sum(dtype=np.float64)
            return whole
        parts = [self._sources.gather(source, weights) for source in range(len(self._sources.names))]
        totals = np.array([part.sum(dtype=np.float64) for part in parts])
        targets = mean_targets(self._sources, parts)
        shares = draw_shares(self._shares, np.array([float(self.position)]), targets)[0]
        per_weight = shares / np.where(totals > 0, totals, 1)
        sources, _ = self._sources.locate(np.arange(self.num_windows) if ids is None else ids)
        inside: NDArray[np.float64] = chosen * per_weight[sources]
        return inside

    # --- draws ------------------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """Position behind the last draw that may be handed out."""
        return self._begun

    def ahead(self, start: int, step: int = 1) -> NDArray[np.int64]:
        """Ids drawn for positions start, start + step, …, up to `end`; `start` must not lie before `position`."""
        return self._drawn[start - self._drawn_from : self._begun - self._drawn_from : step]

    def _started(self) -> Tickets | Multinomial | Mixture:
        if self._engine is None:
            self._engine = self._new_engine(self._weights_before_start)
            self._weights_before_start = np.empty(0, np.float32)
        return self._engine

    def _new_engine(self, weights: NDArray[np.float32]) -> Tickets | Multinomial | Mixture:
        assert self.seed is not None
        engine = _ENGINES[self.draws]
        if self._sources is None or self._shares is None:
            return engine(weights, num_draws=self.num_draws, seed=self.seed)
        return Mixture(
            weights,
            sources=self._sources,
            shares=self._shares,
            stratified=self._stratified,
            num_draws=self.num_draws,
            seed=self.seed,
            engine=engine,
        )

    def fill(self, end: int) -> None:
        """Draw blocks until the one that holds position `end` - 1 has begun."""
        if end <= self._begun:
            return
        reached = self._drawn_from + len(self._drawn)
        if reached < end:
            parts = [self._drawn[self.position - self._drawn_from :]]
            while reached < end:
                self._schedule.apply_until(reached, self._apply)
                parts.append(self._draw_together(reached))
                reached += len(parts[-1])
            self._drawn, self._drawn_from = np.concatenate(parts), self.position
        self._begun = min(self._block_start(end), reached)
        self._last_block_start = self._block_start(end) - self.block_size

    def _draw_together(self, start: int) -> NDArray[np.int64]:
        """Draw some blocks from `start` on, none of them beyond the place of the next change of weights."""
        engine = self._started()
        self._together_from = start
        if isinstance(engine, Mixture):
            return engine.next_block(self.block_size)  # each block is apportioned by itself
        ids = engine.next_block(self._together * self.block_size)
        self._together = min(2 * self._together, max(_MOST_TOGETHER // self.block_size, 1))
        change = self._schedule.next_position
        if change is not None and self._block_start(change) < start + len(ids):
            # Not drawn in fewer blocks at once, since the change might have become known later than now.
            kept = self._block_start(change) - start
            engine.take_back(ids[kept:])
            ids = ids[:kept]
        return ids

    def _block_start(self, position: int) -> int:
        """The first start of a block at or behind `position`, as long as no epoch ends before."""
        return position + (self._together_from - position) % self.block_size

    def _take_back_from(self, position: int) -> None:
        """Return to the engine what is drawn from the block start `position` on and was seen by nobody."""
        kept = position - self._drawn_from
        if kept < len(self._drawn):
            assert isinstance(self._engine, (Tickets, Multinomial))
            self._engine.take_back(self._drawn[kept:])
            self._drawn = self._drawn[:kept]

    def advance(self, position: int) -> None:
        """Consume up to `position`, which must have been drawn."""
        if self._seen is not None:
            ids = self.ahead(self.position)[: position - self.position]
            np.bitwise_or.at(self._seen, ids >> 3, np.uint8(1) << (ids & 7).astype(np.uint8))
        self.position = position

    def jump(self, epoch: int) -> None:
        """Drop what is drawn; go on at the start of the engine's epoch `epoch`, or of its next one if that is later."""
        self._take_back_from(self._begun)
        self._schedule.apply_all(self._apply)
        engine = self._started()
        engine.start_epoch(max(epoch, engine.epoch + 1))
        self.position = self._drawn_from = self._begun = max(epoch * self.num_draws, self.end)
        self._drawn = self._drawn[:0]

    def track_seen(self) -> None:
        """From now on keep one bit per window: was it ever consumed?"""
        if self._seen is None:
            self._seen = np.zeros(-(-self.num_windows // 8), np.uint8)

    @property
    def share_seen(self) -> float:
        """Share of the windows consumed at least once since `track_seen`; NaN without it."""
        if self._seen is None:
            return float("nan")
        return float(np.bitwise_count(self._seen).sum(dtype=np.int64)) / self.num_windows

    # --- state ------------------------------------------------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        """What a saved state and this stream must have in common."""
        return {
            "version": _STATE_VERSION,
            "num_windows": self.num_windows,
            "num_draws": self.num_draws,
            "draws": self.draws,
            "source_shares": None if self._first_shares is None else self._first_shares.state(),
            "source_windows": None if self._sources is None else self._sources.counts.tolist(),
            "stratified": self._stratified,
        }

    def state_dict(self) -> dict[str, Any]:
        """Settings, weights, what every window is owed, place in the stream, ids drawn but not consumed."""
        return {
            **self._identity(),
            "block_size": self.block_size,
            "seed": self.seed,
            "position": self.position,
            "last_block_start": self._last_block_start,
            "begun": self._begun,
            "together_from": self._together_from,
            "together": self._together,
            "buffer": torch.from_numpy(self._drawn[self.position - self._drawn_from :].copy()),
            "seen": None if self._seen is None else torch.from_numpy(self._seen.copy()),
            "scheduled": self._schedule.state_list(),
            "shares_now": None if self._shares is None else self._shares.state(),
            # Saving starts nothing: until the first draw, weights are replaced and no ticket is exchanged.
            "started": self._engine is not None,
            "engine": _as_tensors(
                {"weights": self._weights_before_start.copy()} if self._engine is None else self._engine.state_dict()
            ),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Counterpart of `state_dict`; block size and seed are taken from the state.

        Raises:
            StateMismatchError: if version, number of windows or of draws, kind of draws, shares or sources differ.
            ValueError: if the saved weights are damaged.
        """
        for name, own in self._identity().items():
            if state.get(name) != own:
                raise StateMismatchError(
                    f"the saved sampler state has {name} {state.get(name)!r}, this sampler has {own!r}. "
                    "Build the sampler with the settings of the saved run, or start without its state."
                )
        saved = _as_arrays(state["engine"])
        before = self.seed, self._shares, self._engine, self._weights_before_start
        self.seed = int(state["seed"])
        self._shares = None if state["shares_now"] is None else ShareSchedule.from_state(state["shares_now"])
        try:
            if state["started"]:
                engine = self._new_engine(np.ones(self.num_windows, np.float32))
                engine.load_state_dict(saved)
                self._checked_all(engine.weights)
                self._engine, self._weights_before_start = engine, np.empty(0, np.float32)
            else:
                self._weights_before_start, self._engine = self._checked_all(saved["weights"]), None
        except (ValueError, StateMismatchError):
            self.seed, self._shares, self._engine, self._weights_before_start = before
            raise
        self.block_size = int(state["block_size"])
        self._schedule.load_state_list(state["scheduled"])
        self.position, self._last_block_start = int(state["position"]), int(state["last_block_start"])
        self._begun, self._together_from = int(state["begun"]), int(state["together_from"])
        self._together = int(state["together"])
        self._drawn, self._drawn_from = as_array("buffer", state["buffer"]).copy(), self.position
        self._seen = None if state["seen"] is None else as_array("seen", state["seen"]).copy()


def _as_tensors(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_tensors(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_as_tensors(entry) for entry in value]
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _as_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_arrays(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_as_arrays(entry) for entry in value]
    return value.numpy() if isinstance(value, torch.Tensor) else value
