"""`AdaptiveSampler`: one global stream of window ids, shared out to ranks, with weights that change and exact resume.

The stream is drawn in blocks, identically on all ranks; rank r takes positions r, r + world, … A loader epoch is
⌊num_draws/world⌋ draws per rank. What was drawn but not consumed is part of the state, so that a resumed run hands
out the same order.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.utils.data import DistributedSampler

from adaptive_sampling._arrays import as_array, checked_ids, checked_integer
from adaptive_sampling._random import stable_hash
from adaptive_sampling.errors import StateMismatchError
from adaptive_sampling.sampling._checks import checked_length
from adaptive_sampling.sampling._collective import all_say, connected, from_rank_zero
from adaptive_sampling.sampling._iteration import RankShare
from adaptive_sampling.sampling._sources import source_map
from adaptive_sampling.sampling._whole_state import check_sampler_state
from adaptive_sampling.sampling.shares import ShareSchedule, SourceShares
from adaptive_sampling.sampling.stream import Draws, DrawStream

_MOST_AT_ONCE = 2**31
LAG = 32  # steps


class AdaptiveSampler(DistributedSampler[Any]):
    """Weighted draws of window ids whose weights may change at any time.

    With `draws="systematic"` an epoch of equal weights and `num_draws = N` is a shuffle, and with fixed weights the
    count of every window over any number of epochs stays within about one of its expectation. `draws="multinomial"`
    draws independently with replacement, as `torch.utils.data.WeightedRandomSampler`.

    To Lightning it is a `DistributedSampler`, so that it is neither wrapped nor replaced; it also has the surface of a
    `WeightedRandomSampler` (`weights`, `num_samples`, `replacement`, `generator`).

    Args:
        num_windows_or_dataset: number of windows N, or a sized dataset.
        num_draws: draws per epoch over all ranks; default N.
        draws: "systematic" or "multinomial".
        block_size: draws made together; all of them see one version of the weights. Default num_draws/100, within
            [64, 8192]. Stored in the state, so that the order does not depend on ranks or workers.
        seed: non-negative integer. Default: derived from `torch.initial_seed()` at the first draw, rank 0's for all.
        rank: this process's rank; default: from `torch.distributed` at the first draw, else 0.
        world_size: number of processes; default: from `torch.distributed` at the first draw, else 1.
        source_shares: shares of tokens (valid targets) per source, held whatever the weights inside a source do: name →
            share in any common unit, one for each source of the dataset; or a list of (stream position in draws over
            all ranks, shares), between which shares run linearly. Default: weights alone decide.
        stratified: with `source_shares`: spread the sources evenly over the draws, so that each batch is apportioned by
            largest remainder; otherwise their order inside a block is drawn. Over an epoch the numbers are the same.
        sources: the source of each window, `[N]` integers or strings; default: what the dataset says.
        shared_memory: let the ranks that `torch.distributed` connects hold weights, balances and tickets once per node,
            in memory without a name (/dev/shm, else the temporary folder) that goes with its last process. They draw
            what separate copies would draw. All of them must make the same calls, each at its own pace; `set_epoch`
            ahead and `load_state_dict` wait for all. `weights` may then show what a faster rank has set already. A
            rank that falls a million draws behind is refused. Without effect on a single process.

    Determinism:
        The stream is a function of seed and weight history, equal on every rank and platform. No global random state
        is read after the first draw, and none is ever changed.

    Cost:
        12.3 bytes per window (multinomial: 4.1) and rank, or node with `shared_memory`; a draw and a changed weight
        cost O(log N), a full `set_weights` O(N).

    Raises:
        ValueError: on a setting out of its range, naming it.

    Example:
        >>> sampler = AdaptiveSampler(4, seed=0)
        >>> sampler.set_weights([4, 2, 1, 1])
        >>> sorted(sampler.draw(8).tolist())
        [0, 0, 0, 0, 1, 1, 2, 3]
    """

    replacement = True
    generator = None
    shuffle = True
    drop_last = True

    def __init__(
        self,
        num_windows_or_dataset: Any,
        *,
        num_draws: int | None = None,
        draws: Draws = "systematic",
        block_size: int | None = None,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        source_shares: SourceShares | None = None,
        stratified: bool = False,
        sources: Any = None,
        shared_memory: bool = False,
    ) -> None:
        # DistributedSampler.__init__ is not called: it wants ranks to exist, while scripts build samplers first.
        self.dataset = num_windows_or_dataset
        self._num_windows = checked_length(num_windows_or_dataset)
        self._num_draws = self._num_windows if num_draws is None else checked_integer("num_draws", num_draws, 1)
        if self._num_draws >= 2**31:
            raise ValueError(f"`num_draws` must be below 2^31, got {self._num_draws}. Use several epochs.")
        default_block = min(max(self._num_draws // 100, 64), 8192)
        block = default_block if block_size is None else checked_integer("block_size", block_size, 1)
        self._sources, shares = None, None
        if source_shares is not None:
            self._sources = source_map(num_windows_or_dataset, self._num_windows, sources)
            shares = ShareSchedule(source_shares, self._sources.names)
        elif stratified or sources is not None:
            raise ValueError("`stratified` and `sources` need `source_shares`. Say which share each source shall have.")
        if shared_memory and source_shares is not None:
            raise ValueError("`shared_memory` does not go with `source_shares`. Leave one of them out.")
        self._to_share = bool(shared_memory)  # until it is done
        self._shared = False
        self._stream = DrawStream(
            self._num_windows, self._num_draws, draws, block, self._sources, shares, bool(stratified)
        )
        self._seed = None if seed is None else checked_integer("seed", seed, 0)
        self._given = {
            name: value for name, value in (("seed", self._seed), ("block_size", block_size)) if value is not None
        }
        identity = getattr(num_windows_or_dataset, "identity", None)
        self._windows = identity if isinstance(identity, str) else None
        self._weights_error = getattr(num_windows_or_dataset, "adaptive_weights_error", None)
        if (rank is None) != (world_size is None):
            raise ValueError(f"`rank` and `world_size` must be given together, got {rank!r} and {world_size!r}.")
        self._rank: int | None = None
        self._world: int | None = None
        if rank is not None and world_size is not None:
            self.bind(rank, world_size)
        self._lag = LAG
        self._managed = False
        self._touched = False  # weights were set, and no trainer has looked at them yet
        self._factors: NDArray[np.float32] | None = None
        self._newest = 0  # generation of the iterator that may draw
        self._epoch = 0  # loader epoch
        self._epoch_start = 0  # stream position at which it starts
        self._finished = False  # the loader epoch was closed before its last draw

    @classmethod
    def from_weights(cls, weights: Any, **settings: Any) -> AdaptiveSampler:
        """A sampler with one window per weight, in place of `torch.utils.data.WeightedRandomSampler(weights, …)`.

        Args:
            weights: `[N]`, finite, not negative, not all zero.
            settings: keyword arguments of the constructor.

        Example:
            >>> sampler = AdaptiveSampler.from_weights([0.0, 3.0, 1.0], num_draws=4, seed=0)
            >>> sorted(sampler)
            [1, 1, 1, 2]
        """
        sampler = cls(len(as_array("weights", weights)), **settings)
        sampler.set_weights(weights)
        return sampler

    # --- ranks ------------------------------------------------------------------------------------------------------

    def bind(self, rank: int, world_size: int) -> None:
        """Say which share of the stream this process takes: positions rank, rank + world_size, …"""
        world = checked_integer("world_size", world_size, 1)
        own = checked_integer("rank", rank, 0)
        if own >= world:
            raise ValueError(f"`rank` must be below world_size {world}, got {own}.")
        if self._num_draws < world:
            raise ValueError(
                f"`num_draws` must be at least world_size {world}, got {self._num_draws}. Draw more or use fewer ranks."
            )
        self._rank, self._world = own, world

    def _bound_world(self) -> int:
        if self._world is None:
            if dist.is_available() and dist.is_initialized():
                self.bind(dist.get_rank(), dist.get_world_size())
            else:
                return 1
        assert self._world is not None
        return self._world

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Rank of this process, 0 as long as nothing else is known."""
        return self._rank or 0

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """Number of ranks that share the stream."""
        return self._bound_world()

    @property
    def num_windows(self) -> int:
        """Number of windows N."""
        return self._num_windows

    @property
    def num_draws(self) -> int:
        """Draws per epoch over all ranks."""
        return self._num_draws

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """Draws per epoch on this rank: ⌊num_draws / world_size⌋."""
        return self._num_draws // self._bound_world()

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """Draws per epoch that the ranks make together."""
        return self.num_samples * self._bound_world()

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """Current loader epoch, zero-based."""
        return self._epoch

    @property
    def lag(self) -> int:
        """Steps from an update to the draws that see its weights; room for what data workers prefetch. May be set.

        Raises:
            ValueError, TypeError: when set to what is no integer of 0 or more.
        """
        return self._lag

    @lag.setter
    def lag(self, steps: int) -> None:
        self._lag = checked_integer("lag", steps, 0)

    @property
    def block_size(self) -> int:
        """Draws made together."""
        return self._stream.block_size

    @property
    def seed(self) -> int:  # type: ignore[override]
        """The seed of the stream; chosen now if it was not given. With ranks, all must ask for it, or none."""
        if self._seed is None:
            seed = stable_hash(torch.initial_seed(), "sampler") & 0x7FFFFFFFFFFFFFFF
            self._seed = from_rank_zero(seed) if self._bound_world() > 1 and connected() else seed
        if self._to_share:
            self._share()
        return self._seed

    def _share(self) -> None:
        """Meet the other ranks of this node in one memory."""
        world = self._bound_world()
        if not connected():
            if world > 1:
                self._to_share = False
                warnings.warn(
                    "`shared_memory` has no effect: torch.distributed does not connect these ranks.", stacklevel=4
                )
            return
        self._to_share = False
        if self._stream.seed is None:
            self._stream.seed = self._seed
        memory, refused = None, None
        token = from_rank_zero(secrets.randbits(63))
        try:
            memory = self._stream.share(token)
        except (OSError, RuntimeError, ValueError) as error:
            refused = error
        all_done = all_say(refused is None)
        if memory is not None:
            memory.forget_name()
        if refused is not None:
            raise refused
        if not all_done:
            raise RuntimeError("another rank could not share its memory, and says why. See its error.")
        self._shared = True

    def _meet(self) -> None:
        """Where memory is shared, nobody may change the place in the stream before all are here."""
        if self._shared and connected():
            all_say(True)

    # --- weights ----------------------------------------------------------------------------------------------------

    @property
    def weights(self) -> NDArray[np.float32]:
        """The latest weights, seen by draws or not yet: read-only float32 `[N]`."""
        return self._stream.weights

    def set_weights(self, weights: Any) -> None:
        """Replace all weights; blocks drawn from now on see them.

        Args:
            weights: `[N]`, finite, not negative, not all zero; stored in float32 as given, never normalised.

        Raises:
            ValueError, TypeError: naming the first offending window; the old weights stay. Also if the dataset moves
                text between window ids.
        """
        self._check_windows_stay()
        self._stream.set_weights(weights)
        self._touched = True

    def update_weights(self, ids: Any, values: Any) -> None:
        """Change the weights of some windows; blocks drawn from now on see them.

        Args:
            ids: integers `[k]`, each at most once.
            values: `[k]`, finite, not negative.

        Raises:
            ValueError, TypeError: naming the first offending id and value; the old weights stay.
        """
        self._check_windows_stay()
        self._stream.update_weights(ids, values)
        self._touched = True

    def _check_windows_stay(self) -> None:
        if self._weights_error is not None:
            raise ValueError(self._weights_error)

    def schedule_weights(self, position: int, ids: Any, values: Any) -> None:
        """Let new weights count from the first block that starts at or behind stream `position`.

        Args:
            position: stream position over all ranks, not before what has been drawn already.
            ids: integers `[k]`, or None for all windows.
            values: `[k]` or `[N]`.

        Raises:
            RuntimeError: if a block at or behind `position` has been drawn already.
            ValueError, TypeError: as `update_weights`.
        """
        cure = f"Set `sampler.lag` (now {self.lag} steps) to num_workers x prefetch_factor + 2 or more before training."
        self._stream.schedule_weights(position, ids, values, cure)
        self._touched = False

    def probabilities(self, ids: Any = None) -> NDArray[np.float64]:
        """Probability per draw of `ids` (default: all windows), float64.

        Weight / Σ weight; with shares, the source's share of draws × weight / Σ weight of the source. O(N).
        """
        return self._stream.probabilities(None if ids is None else checked_ids("ids", ids, self._num_windows))

    @property
    def source_shares(self) -> dict[Any, float] | None:
        """Shares of tokens per source at the present stream position, in sum 1; None without shares."""
        if self._sources is None or self._stream.shares is None:
            return None
        shares = self._stream.shares.at(np.array([float(self._stream.position)]))[0]
        return dict(zip(self._sources.names, shares.tolist(), strict=True))

    def set_source_shares(self, source_shares: SourceShares) -> None:
        """Replace the shares of tokens per source; blocks drawn from now on see them.

        Args:
            source_shares: as in the constructor.

        Raises:
            RuntimeError: if the sampler was built without shares.
            ValueError, TypeError: naming the source; the old shares stay.
        """
        if self._sources is None:
            raise RuntimeError("this sampler has no shares. Give `source_shares` when it is built.")
        self._stream.set_shares(ShareSchedule(source_shares, self._sources.names))

    # --- the stream -------------------------------------------------------------------------------------------------

    def _be_ready(self) -> None:
        if self._stream.seed is None or self._to_share:
            self._stream.seed = self.seed

    def _fill(self, end: int) -> None:
        self._be_ready()
        self._stream.fill(end)

    def _epoch_end(self) -> int:
        return self._epoch_start + self.total_size

    def _epoch_is_over(self) -> bool:
        return self._finished or self._stream.position + self._bound_world() > self._epoch_end()

    def _next_epoch(self) -> None:
        self._epoch_start = min(self._stream.position, self._epoch_end())
        self._epoch += 1
        self._finished = False

    def draw(self, n: int) -> NDArray[np.int64]:
        """The next `n` ids of the global stream, int64 `[n]`; runs on into the next epoch.

        It consumes the same stream as iteration, over all ranks: after `draw`, iterators go on behind it.

        Raises:
            ValueError, TypeError: if `n` is no integer from 0 to 2^31.
        """
        count = checked_integer("n", n, 0)
        if count > _MOST_AT_ONCE:
            raise ValueError(f"`n` must be at most 2^31, got {count}: ids take 8 bytes each. Draw in parts.")
        if self._finished:
            self._next_epoch()
        end = self._stream.position + count
        self._fill(end)
        ids = self._stream.ahead(self._stream.position)[:count].copy()
        self._stream.advance(end)
        while self._stream.position > self._epoch_end():
            self._next_epoch()
        self._newest += 1
        return ids

    def __iter__(self) -> Iterator[int]:
        return RankShare(self)

    def __len__(self) -> int:
        """Draws per epoch on this rank: always the full epoch, also when the epoch was resumed in its middle."""
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Jump ahead to the start of a later epoch. Never rewinds: an earlier or the current number has no effect.

        Raises:
            ValueError, TypeError: if `epoch` is no integer from 0 to 2^32 - 1.
        """
        target = checked_integer("epoch", epoch, 0)
        if target >= 2**32:
            raise ValueError(f"`epoch` must be below 2^32, got {target}. Epochs are counted from 0.")
        if target <= self._epoch + self._epoch_is_over():
            return
        self._be_ready()
        self._meet()
        self._stream.jump(target)
        self._epoch_start = self._stream.position
        self._epoch, self._finished = target, False
        self._newest += 1

    # --- under a callback -------------------------------------------------------------------------------------------

    def manage(self) -> bool:
        """Let a trainer decide what is consumed: from now on ids count when `consume` says they were trained on.

        Save `full_state`, give it to `load_full_state`, and call `finish_epoch` where a loader epoch ends.

        Weights that were set since it was last called, if they differ, become `factors`; equal ones leave none.

        Returns:
            Whether any were set.
        """
        self._managed = True
        if not self._touched:
            return False
        self._touched, self._factors = False, None
        if self.weights.min() != self.weights.max():
            self._factors = self.weights.copy()
            self._factors.flags.writeable = False
        return True

    def deal(self, weights: NDArray[np.float32]) -> None:
        """As `set_weights`, by the trainer."""
        self._stream.set_weights(weights)
        self._touched = False

    @property
    def factors(self) -> NDArray[np.float32] | None:
        """float32 `[N]`: weights that the user had set when a trainer took over; it multiplies its own by them."""
        return self._factors

    def waiting(self) -> NDArray[np.int64]:
        """int64 `[k]`: this rank's ids that are drawn and not yet consumed, in their order."""
        return self._stream.ahead(self._stream.position + self.rank, self._bound_world())

    def consume(self, num_local: int) -> None:
        """Count `num_local` further ids of this rank as trained on."""
        world = self._bound_world()
        end = min(self._stream.position + num_local * world, self._epoch_end())
        if end > self._stream.end:
            drawn = (self._stream.end - self._stream.position) // world
            raise RuntimeError(
                f"{num_local} windows were trained on, but only {drawn} were drawn. "
                "Use this sampler for one loader, and one callback for this sampler."
            )
        self._stream.advance(end)

    def finish_epoch(self) -> None:
        """Close the current loader epoch, whatever of it was trained on.

        The next iterator starts the next epoch, with the draws that were not trained on at its head: none is lost.
        """
        self._finished = True
        self._newest += 1

    @property
    def position(self) -> int:
        """Stream position behind the last consumed draw, over all ranks."""
        return self._stream.position

    def track_seen(self) -> None:
        """Keep one bit per window: was it ever consumed? Needed by `share_seen`."""
        self._stream.track_seen()

    @property
    def share_seen(self) -> float:
        """Share of the windows consumed at least once since `track_seen`; NaN without it."""
        return self._stream.share_seen

    # --- state ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Complete state: tensors and Python primitives. Under a callback, which owns the state, a tiny inert one.

        Every id that a loader has asked for counts as drawn, batches that its workers hold ready included; see `manage`
        where these must not be lost.
        """
        return {"managed": True} if self._managed else self.full_state()

    def full_state(self) -> dict[str, Any]:
        """The stream's state and the place in the loader epoch."""
        self._be_ready()
        return {
            "lag": self.lag,
            "epoch": self._epoch,
            "epoch_start": self._epoch_start,
            "finished": self._finished,
            "windows": self._windows,
            "stream": self._stream.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken; another world size or number of workers is fine.

        Seed, block size and lag are those of the state; where others were given, a warning says so.

        Raises:
            StateMismatchError: if the state is of another version, number of windows or of draws, kind of draws, other
                tokens or window settings, or damaged; nothing is changed then.
        """
        if not (isinstance(state, Mapping) and state.get("managed")):
            self.load_full_state(state)
            self._touched = True

    def load_full_state(self, state: dict[str, Any]) -> None:
        """Counterpart of `full_state`."""
        check_sampler_state(state)
        saved = state.get("windows")
        if None not in (saved, self._windows) and saved != self._windows:
            raise StateMismatchError(
                f"the saved state is of windows {saved}, this sampler of windows {self._windows}: other tokens, or "
                "another WindowConfig. Open the store and the settings of the saved run, or start without its state."
            )
        if self._to_share:
            self._share()
        self._meet()
        self._stream.load_state_dict(state["stream"])
        given = self._given if self.lag == LAG else {**self._given, "lag": self.lag}
        self._seed, self.lag = self._stream.seed, state["lag"]
        self._epoch, self._epoch_start, self._finished = state["epoch"], state["epoch_start"], state["finished"]
        self._newest += 1
        self._say_what_is_adopted(given)

    def _say_what_is_adopted(self, given: dict[str, int]) -> None:
        """Warn of settings that were asked for and are those of a loaded state now."""
        saved = {"seed": self._stream.seed, "block_size": self._stream.block_size, "lag": self.lag}
        other = {name: value for name, value in given.items() if saved[name] != value}
        if other:
            theirs = {name: saved[name] for name in other}
            warnings.warn(
                f"the sampler goes on with {theirs} of the saved state, it was made with {other}. Start without the "
                "state for an order of its own.",
                stacklevel=4,
            )
