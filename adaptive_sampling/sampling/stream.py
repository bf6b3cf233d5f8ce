"""The global stream of draws: an engine, weights that wait for their place, and ids drawn but not yet consumed.

A stream knows positions over all ranks and nothing of ranks, loaders or loader epochs.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from adaptive_sampling._arrays import checked_ids
from adaptive_sampling._random import stable_hash
from adaptive_sampling.errors import StateMismatchError
from adaptive_sampling.sampling._ahead import DrawnAhead, Engine
from adaptive_sampling.sampling._checks import checked_weights
from adaptive_sampling.sampling._node_memory import NodeMemory
from adaptive_sampling.sampling._seen import SeenWindows
from adaptive_sampling.sampling._sources import SourceMap
from adaptive_sampling.sampling._whole_state import check_stream_state
from adaptive_sampling.sampling.mixture import Mixture, check_sources, draw_shares, mean_targets, weighed
from adaptive_sampling.sampling.shares import ShareSchedule
from adaptive_sampling.sampling.sum_tree import Allocate
from adaptive_sampling.sampling.tickets import Multinomial, Tickets

Draws = Literal["systematic", "multinomial"]
_ENGINES: dict[str, type[Tickets] | type[Multinomial]] = {"systematic": Tickets, "multinomial": Multinomial}
_STATE_VERSION = 2
_RING_LENGTH = 1 << 20  # ids kept for slower ranks of a node


class DrawStream:
    """One order of window ids for all ranks, drawn in blocks as far as somebody looks ahead.

    Small blocks are drawn several at once, more and more of them as long as no ticket changes; when one does, the draws
    of blocks that have not begun are taken back. So the order is a function of the weights and of the stream positions
    at which they changed, not of who looked ahead how far; weights that change no ticket leave it as it is.

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
        self.seed: int | None = None
        self.position = 0  # behind the last consumed draw
        self._sources = sources
        self._shares = self._first_shares = shares
        self._stratified = stratified
        self._ahead = DrawnAhead(self._new_engine, num_windows, block_size)
        self._seen: SeenWindows | None = None
        self._check_sources(self._ahead.weights)

    @property
    def block_size(self) -> int:
        """Draws made together."""
        return self._ahead.block_size

    def share(self, token: int) -> NodeMemory:
        """Keep weights, balances and tickets in memory that all processes of this node with the same `token` share.

        Raises:
            ValueError: if another rank's sampler is not like this one.
            OSError, RuntimeError: as `NodeMemory`.
        """
        memory = NodeMemory(
            token,
            _ENGINES[self.draws].array_bytes(self.num_windows),
            ring_length=max(_RING_LENGTH, 4 * self.block_size),
            largest_id=self.num_windows - 1,
        )
        agreed = (self.num_draws, self.block_size, self.draws, self._ahead.made, self._ahead.place.begun)
        self._ahead.share(memory, (stable_hash(*agreed) >> 66) + 1)
        return memory

    # --- weights ----------------------------------------------------------------------------------------------------

    @property
    def weights(self) -> NDArray[np.float32]:
        """The latest weights, seen by draws or not yet: read-only float32 `[N]`."""
        with self._ahead.exclusive():
            view = self._ahead.weights.view()
        view.flags.writeable = False
        return view

    def set_weights(self, weights: Any) -> None:
        """Replace all weights now; pending changes are forgotten. Raises as `checked_weights`."""
        values = self._checked_all(weights)
        with self._ahead.exclusive():
            self._ahead.schedule.clear()
            if not self._ahead.is_done():
                self._ahead.change_now(None, values)

    def update_weights(self, ids: Any, values: Any) -> None:
        """Change some weights now, after all pending changes. Raises as `checked_weights` and `checked_ids`."""
        checked = self._checked_some(ids, values)
        with self._ahead.exclusive():
            if not self._ahead.is_done():
                self._check_what_is_left(*checked)
                self._ahead.change_now(*checked)

    def schedule_weights(self, position: int, ids: Any, values: Any, cure: str) -> None:
        """Let weights count from the first block that starts at or behind `position`.

        Raises:
            RuntimeError: if such a block has been drawn already; `cure` is appended.
        """
        checked = (None, self._checked_all(values)) if ids is None else self._checked_some(ids, values)
        with self._ahead.exclusive():
            if self._ahead.is_done():
                return
            last = self._ahead.place.last_block_start
            if position <= last:
                raise RuntimeError(
                    f"weights for stream position {position} come too late: a block was drawn at {last}. {cure}"
                )
            if checked[0] is not None:
                self._check_what_is_left(*checked)
            self._ahead.change_from(position, *checked)

    def _checked_all(self, weights: Any) -> NDArray[np.float32]:
        values = checked_weights("weights", weights, self.num_windows)
        if not values.any():
            raise ValueError(
                "`weights` must not all be zero in float32. Give at least one window a weight of 1e-45 or more."
            )
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
        return id_array, value_array

    def _check_what_is_left(self, ids: NDArray[np.int64], values: NDArray[np.float32]) -> None:
        if not values.any():
            weights = self._ahead.weights
            if np.count_nonzero(weights) == np.count_nonzero(weights[ids]):
                raise ValueError("`values` would make all weights zero. Leave at least one window positive.")
        if self._sources is not None and not values.all():
            weights = self._ahead.weights.copy()
            weights[ids] = values
            self._check_sources(weights)

    @property
    def shares(self) -> ShareSchedule | None:
        """Shares of tokens per source; None without."""
        return self._shares

    def set_shares(self, shares: ShareSchedule) -> None:
        """Replace the shares; blocks drawn from now on see them. Raises as `check_sources`."""
        assert self._sources is not None
        check_sources(self._sources, shares, self.weights)
        self._ahead.take_back_from(self._ahead.place.begun)
        self._shares = shares
        if isinstance(self._ahead.engine, Mixture):
            self._ahead.engine.shares = shares

    def probabilities(self, ids: NDArray[np.int64] | None) -> NDArray[np.float64]:
        """Probability per draw of `ids` (None: all) under the latest weights and the shares at `position`."""
        weights = self.weights
        chosen = weights if ids is None else weights[ids]
        if self._sources is None or self._shares is None:
            whole: NDArray[np.float64] = chosen.astype(np.float64) / weights.sum(dtype=np.float64)
            return whole
        parts = [self._sources.gather(source, weights) for source in range(len(self._sources.names))]
        totals = np.array([part.sum(dtype=np.float64) for part in parts])
        targets = mean_targets(self._sources, *weighed(self._sources, parts))
        shares = draw_shares(self._shares, np.array([float(self.position)]), targets)[0]
        per_weight = shares / np.where(totals > 0, totals, 1)
        sources, _ = self._sources.locate(np.arange(self.num_windows) if ids is None else ids)
        inside: NDArray[np.float64] = chosen * per_weight[sources]
        return inside

    # --- draws ------------------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """Position behind the last draw that may be handed out."""
        return self._ahead.place.begun

    def ahead(self, start: int, step: int = 1) -> NDArray[np.int64]:
        """Ids drawn for positions start, start + step, …, up to `end`; `start` must not lie before `position`."""
        first = self._ahead.ids_from
        return self._ahead.ids[start - first : self.end - first : step]

    def _new_engine(
        self, weights: NDArray[np.float32], *, allocate: Allocate = np.zeros, filled: bool = False
    ) -> Engine:
        assert self.seed is not None
        engine = _ENGINES[self.draws]
        if self._sources is None or self._shares is None:
            return engine(weights, num_draws=self.num_draws, seed=self.seed, allocate=allocate, filled=filled)
        return Mixture(
            np.ones_like(weights) if filled else weights,
            sources=self._sources,
            shares=self._shares,
            stratified=self._stratified,
            num_draws=self.num_draws,
            seed=self.seed,
            engine=engine,
        )

    def fill(self, end: int) -> None:
        """Draw blocks until the one that holds position `end` - 1 has begun. Raises as `DrawnAhead.fill`."""
        self._ahead.fill(end, self.position)

    def advance(self, position: int) -> None:
        """Consume up to `position`, which must have been drawn."""
        if self._seen is not None:
            self._seen.add(self.ahead(self.position)[: position - self.position])
        self.position = position

    def jump(self, epoch: int) -> None:
        """Drop what is drawn; go on at the start of the engine's epoch `epoch`, or of its next one if that is later."""
        ahead = self._ahead
        with ahead.leap() as to_do:
            if to_do:
                ahead.take_back_from(ahead.place.begun)
                ahead.schedule.apply_all(ahead.apply)
                engine = ahead.started()
                engine.start_epoch(max(epoch, engine.epoch + 1))
                ahead.restart(max(epoch * self.num_draws, self.end))
                ahead.place.applied = max(ahead.place.applied, ahead.made)
            self.position = ahead.place.begun

    def track_seen(self) -> None:
        """From now on keep one bit per window: was it ever consumed?"""
        if self._seen is None:
            self._seen = SeenWindows(self.num_windows)

    @property
    def share_seen(self) -> float:
        """Share of the windows consumed at least once since `track_seen`; NaN without it."""
        return float("nan") if self._seen is None else self._seen.share

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
        ahead = self._ahead
        with ahead.exclusive():
            return {
                **self._identity(),
                "block_size": self.block_size,
                "seed": self.seed,
                "position": self.position,
                "last_block_start": ahead.place.last_block_start,
                "begun": ahead.place.begun,
                "together_from": ahead.place.together_from,
                "together": ahead.place.together,
                "buffer": torch.from_numpy(ahead.ids[self.position - ahead.ids_from :].copy()),
                "aside": torch.from_numpy(ahead.aside.copy()),
                "seen": None if self._seen is None else torch.from_numpy(self._seen.bits.copy()),
                "scheduled": ahead.schedule.state_list(),
                # Calls that a faster rank made before this one, whose weights are in the engine already.
                "carried_out_before": max(ahead.place.applied - ahead.made, 0),
                "shares_now": None if self._shares is None else self._shares.state(),
                # Saving starts nothing: until the first draw, weights are replaced and no ticket is exchanged.
                "started": ahead.engine is not None,
                "engine": _as_tensors(
                    {"weights": ahead.base_weights.copy()} if ahead.engine is None else ahead.engine.state_dict()
                ),
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Counterpart of `state_dict`; block size and seed are taken from the state.

        Raises:
            StateMismatchError: if version, number of windows or of draws, kind of draws, shares or sources differ, or
                something is missing or damaged.
            ValueError: if the saved weights leave nothing to draw.
        """
        for name, own in self._identity().items():
            if state.get(name) != own:
                raise StateMismatchError(
                    f"the saved sampler state has {name} {state.get(name)!r}, this sampler has {own!r}. "
                    "Build the sampler with the settings of the saved run, or start without its state."
                )
        state = _as_arrays(state)
        check_stream_state(state, self.num_windows, None if self._sources is None else self._sources.counts.tolist())
        saved = state["engine"]
        before = self.seed, self._shares
        self.seed = int(state["seed"])
        self._shares = ShareSchedule.from_state(state["shares_now"]) if state.get("shares_now") else None
        try:
            if "weights" in saved:
                self._checked_all(saved["weights"])
            with self._ahead.leap() as to_do:
                self._load(state, saved, to_do)
        except (ValueError, StateMismatchError):
            self.seed, self._shares = before
            raise
        self.position = int(state["position"])
        self._seen = None if state.get("seen") is None else SeenWindows(self.num_windows, state["seen"])

    def _load(self, state: dict[str, Any], saved: dict[str, Any], to_do: bool) -> None:
        """Take over the state; what is shared only where that is still `to_do`."""
        ahead, buffer = self._ahead, state["buffer"].copy()
        if state["started"]:
            engine = ahead.filled_engine()
            if to_do:
                engine.load_state_dict(saved)
            if isinstance(engine, Mixture):
                self._checked_all(engine.weights)
            ahead.adopt(engine)
        else:
            ahead.unstart(saved["weights"] if to_do else None)
        ahead.block_size = int(state["block_size"])
        ahead.schedule.load_state_list(state["scheduled"], ahead.made)
        if to_do:
            place = ahead.place
            place.begun, place.last_block_start = int(state["begun"]), int(state["last_block_start"])
            place.together_from, place.together = int(state["together_from"]), int(state["together"])
            place.applied = ahead.made + int(state["carried_out_before"])
        ahead.made += len(state["scheduled"])
        ahead.restart(int(state["position"]), buffer)
        ahead.aside = state["aside"].copy()


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
    return value.cpu().numpy() if isinstance(value, torch.Tensor) else value
