"""An engine, and the ids drawn from it ahead of what was consumed; on request one for all ranks of a node.

Ranks that share make the same calls in the same order, each at its own pace. Each numbers the calls that change
weights; the first rank that comes to a call carries it out, and the others, who see by its number that this is done,
pass over it. Draws go the same way: who first needs a block draws it, the others copy its ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.sampling._node_memory import NodeMemory
from adaptive_sampling.sampling._schedule import Change, WeightSchedule
from adaptive_sampling.sampling.mixture import Mixture
from adaptive_sampling.sampling.sum_tree import Allocate
from adaptive_sampling.sampling.tickets import Multinomial, Tickets

Engine = Tickets | Multinomial | Mixture
_MOST_TOGETHER = 2048  # draws of small blocks that are made at once


class NewEngine(Protocol):
    """Makes the engine of a stream."""

    def __call__(self, weights: NDArray[np.float32], *, allocate: Allocate = ..., filled: bool = ...) -> Engine:
        """As the constructor of `Tickets`."""


@dataclass
class Place:
    """Where the stream stands, for all who share it."""

    applied: int = 0  # numbered calls that were carried out
    begun: int = 0  # behind the last block of which somebody saw a draw; what is drawn beyond may be taken back
    end: int = 0  # behind the last draw
    aside: int = 0  # behind the draws that were taken back and come again if weights change without effect
    together_from: int = 0  # where the blocks drawn last at once start
    together: int = 1  # blocks to draw at once next
    last_block_start: int = -1
    leaps: int = 0  # jumps and loads
    leapt_to: int = 0  # `begun` after the latest of them
    kept_from: int = 0  # the first id that is still kept for slower ranks
    kept_to: int = 0  # behind the last id that was ever kept
    started: bool = False  # whether there is an engine
    settings: int = 0  # hash of what must agree; 0 as long as nobody has written anything


_PLACE_SIZE = len(fields(Place))


class DrawnAhead:
    """Draws blocks as far as somebody looks ahead, and takes back those that nobody saw when weights change.

    Args:
        new_engine: makes the engine, when the first block is drawn.
        num_windows: N.
        block_size: draws made together; all of them see one version of the weights.
    """

    def __init__(self, new_engine: NewEngine, num_windows: int, block_size: int) -> None:
        self.block_size = block_size
        self.place = Place()
        self.engine: Engine | None = None
        self.schedule = WeightSchedule()
        self.made = 0  # numbered calls that were made here
        self._leaps = 0  # jumps and loads that were made here
        self.ids = np.empty(0, np.int64)  # from position `ids_from` on; the first may be consumed
        self.ids_from = 0
        self.aside = np.empty(0, np.int64)  # ids behind `ids` that were taken back
        self._new_engine = new_engine
        self._num_windows = num_windows
        self._weights_before_start = np.ones(num_windows, np.float32)
        self._memory: NodeMemory | None = None
        self._published_to = 0

    @property
    def base_weights(self) -> NDArray[np.float32]:
        """The weights that the next block would see now, float32 `[N]`; a view, not to be written."""
        return self._weights_before_start if self.engine is None else self.engine.weights

    @property
    def weights(self) -> NDArray[np.float32]:
        """The latest weights, counting yet or not, float32 `[N]`; a view, not to be written."""
        return self.schedule.latest(self.base_weights)

    def started(self) -> Engine:
        """The engine, made now if nothing was drawn yet."""
        if self.engine is None:
            self._begin_change()
            self.adopt(self._new_engine(self._weights_before_start, allocate=self._allocator()))
        assert self.engine is not None
        return self.engine

    def adopt(self, engine: Engine) -> None:
        """Go on with `engine` in place of the present one."""
        self.engine, self._weights_before_start = engine, np.empty(0, np.float32)
        self.place.started = True

    def unstart(self, weights: NDArray[np.float32] | None) -> None:
        """Go back to before the first draw, with `weights`; None: with those that another rank has put down."""
        self.engine, self.place.started = None, False
        if self._memory is not None and weights is not None:
            self._memory.clear_arrays()
        self._weights_before_start = self._allocator()(self._num_windows, np.float32)
        if weights is not None:
            self._weights_before_start[:] = weights

    def filled_engine(self) -> Engine:
        """An engine, to be kept in place of the present one, whose arrays are full or to be filled from a state."""
        return self._new_engine(np.empty(self._num_windows, np.float32), allocate=self._allocator(), filled=True)

    def _allocator(self) -> Allocate:
        return np.zeros if self._memory is None else self._memory.allocator()

    # --- changes ----------------------------------------------------------------------------------------------------

    def is_done(self) -> bool:
        """Whether another rank has carried out the call that comes next here; if so, it counts as made."""
        done = self.made < self.place.applied
        self.made += done
        return done

    def change_now(self, ids: NDArray[np.int64] | None, values: NDArray[np.float32]) -> None:
        """Let weights count from the next block on, after all pending ones."""
        self.take_back_from(self.place.begun)
        self.schedule.apply_all(self.apply)
        self.apply(Change(self.made, self.place.begun, ids, values))
        self.made += 1

    def change_from(self, position: int, ids: NDArray[np.int64] | None, values: NDArray[np.float32]) -> None:
        """Let weights count from the first block that starts at or behind `position`; none of these has begun."""
        self.schedule.add(Change(self.made, position, ids, values))
        self.made += 1
        # A place that a jump passed over lies before all that was drawn: the change counts from the next block.
        self.take_back_from(max(self._block_start(position), self.place.begun))

    def apply(self, change: Change) -> None:
        """Hand a change over to the engine."""
        self._begin_change()
        self.place.applied = change.number + 1
        if self.engine is None:
            # Before the first block weights are only replaced: nothing is issued, so nothing is issued twice.
            self._weights_before_start[slice(None) if change.ids is None else change.ids] = change.values
            return
        if isinstance(self.engine, Mixture) or self._most_together == 1:
            counts = False  # blocks are drawn one by one, and nothing is kept aside
            self._hand_over(self.engine, change)
        elif change.ids is None:
            owed = self._owed(self.engine)
            before = owed.copy()
            self._hand_over(self.engine, change)
            counts = not np.array_equal(before, owed)
        else:
            counts = self.engine.update_weights(change.ids, change.values)
        if counts:
            self.place.together = 1
            self.aside = self.aside[:0]

    @staticmethod
    def _hand_over(engine: Engine, change: Change) -> None:
        if change.ids is None:
            engine.set_weights(change.values)
        else:
            engine.update_weights(change.ids, change.values)

    @property
    def _most_together(self) -> int:
        """Blocks that may be drawn at once."""
        return max(_MOST_TOGETHER // self.block_size, 1)

    @staticmethod
    def _owed(engine: Tickets | Multinomial) -> NDArray[Any]:
        """What draws depend on; a view."""
        return engine.tickets if isinstance(engine, Tickets) else engine.weights

    # --- draws ------------------------------------------------------------------------------------------------------

    def fill(self, end: int, consumed: int) -> None:
        """Draw blocks until the one that holds position `end` - 1 has begun; forget ids before `consumed`.

        Raises:
            RuntimeError: if another rank saw draws for which a change that is pending here came too late.
        """
        if end <= self.place.begun:
            return
        with self.exclusive():
            if end > self.place.begun:
                self._take_back_before_change()
                self._draw_until(end)
            self.ids, self.ids_from = self.ids[consumed - self.ids_from :], consumed

    def _take_back_before_change(self) -> None:
        """A rank that did not know of the next change may have drawn beyond its place."""
        change = self.schedule.next_position
        if change is None or self._memory is None:
            return
        from_block = max(self._block_start(change), self.place.leapt_to)
        if from_block < self.place.begun:
            raise RuntimeError(
                f"weights for stream position {change} come too late: another rank has looked ahead to "
                f"{self.place.begun}. Let all ranks prefetch equally far, and less far than `sampler.lag` steps."
            )
        self.take_back_from(from_block)

    def _draw_until(self, end: int) -> None:
        reached = self.ids_from + len(self.ids)
        parts = [self.ids]
        while reached < end:
            self.schedule.apply_until(reached, self.apply)
            parts.append(self._draw_together(reached))
            reached += len(parts[-1])
        self.ids = np.concatenate(parts) if len(parts) > 1 else self.ids
        self.place.begun = min(self._block_start(end), reached)
        self.place.last_block_start = self._block_start(end) - self.block_size

    def _draw_together(self, start: int) -> NDArray[np.int64]:
        """Draw some blocks from `start` on, none of them beyond the place of the next change of weights."""
        engine = self.started()
        self._begin_change()
        if isinstance(engine, Mixture):
            self.place.together_from = start
            return engine.next_block(self.block_size)  # each block is apportioned by itself
        if len(self.aside):
            # No change since has changed what these draws depend on.
            ids, self.aside = self.aside, self.aside[:0]
            engine.draw_again(ids)
        else:
            self.place.together_from = start
            ids = engine.next_block(self.place.together * self.block_size)
            self.place.together = min(2 * self.place.together, self._most_together)
        change = self.schedule.next_position
        if change is not None and self._block_start(change) < start + len(ids):
            # Not drawn in fewer blocks at once, since the change might have become known later than now.
            kept = self._block_start(change) - start
            engine.take_back(ids[kept:])
            ids, self.aside = ids[:kept], ids[kept:]
        return ids

    def _block_start(self, position: int) -> int:
        """The first start of a block at or behind `position`, as long as no epoch ends before."""
        return position + (self.place.together_from - position) % self.block_size

    def take_back_from(self, position: int) -> None:
        """Return to the engine what is drawn from the block start `position` on and was seen by nobody.

        It is set aside: a change that leaves every ticket as it is leaves the order as it is too.
        """
        kept = position - self.ids_from
        if kept < len(self.ids):
            assert isinstance(self.engine, (Tickets, Multinomial))
            self._begin_change()
            self.engine.take_back(self.ids[kept:])
            self.aside = np.concatenate([self.ids[kept:], self.aside])
            self.ids = self.ids[:kept]
            self._published_to = min(self._published_to, position)

    def restart(self, position: int, ids: NDArray[np.int64] | None = None) -> None:
        """Go on at `position`, of which `ids` are drawn already."""
        self.ids = np.empty(0, np.int64) if ids is None else ids
        self.ids_from = position
        self.aside = np.empty(0, np.int64)
        if ids is None:
            self.place.begun = position

    # --- one for all ranks of a node --------------------------------------------------------------------------------

    def share(self, memory: NodeMemory, settings: int) -> None:
        """From now on keep everything in `memory`; the first rank brings what it holds.

        Raises:
            ValueError: if another rank brought other `settings`, not 0.
        """
        with memory.lock():
            self._memory = memory
            first = not self._shared_place().settings
            if not first and self._shared_place().settings != settings:
                raise ValueError("`shared_memory` needs equal samplers on all ranks. Build them with equal settings.")
            if self.engine is None:
                leaves = memory.allocator()(self._num_windows, np.float32)
                if first:
                    leaves[:] = self._weights_before_start
                self._weights_before_start = leaves
            else:
                own, self.engine = self.engine, self.filled_engine()
                if first:
                    self.engine.load_state_dict(own.state_dict())
            if first:
                self.place.settings = settings
                self.place.kept_from = self._published_to = self.ids_from
                self._publish()
            else:
                self._catch_up()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Where draws are shared: keep the other ranks out, learn what they did, and tell them what is done inside."""
        if self._memory is None:
            yield
            return
        with self._memory.lock():
            self._catch_up()
            yield
            self._publish()

    @contextmanager
    def leap(self) -> Iterator[bool]:
        """For a change of place, before which all ranks must meet; gives whether this rank has to carry it out."""
        self._leaps += 1
        if self._memory is None:
            yield True
            return
        with self._memory.lock():
            if self._shared_place().leaps >= self._leaps:
                self.place = self._shared_place()
                self.schedule.clear()
                self.restart(self.place.leapt_to)
                yield False
                self._catch_up()
            else:
                self._catch_up()
                self._begin_change()
                yield True
                self.place.leaps, self.place.leapt_to = self._leaps, self.place.begun
                self.place.kept_from = self.place.kept_to = self._published_to = self.ids_from
                self._publish()

    def _begin_change(self) -> None:
        if self._memory is not None:
            self._memory.begin_change()

    def _shared_place(self) -> Place:
        assert self._memory is not None
        return Place(*self._memory.integers[:_PLACE_SIZE].tolist())

    def _catch_up(self) -> None:
        """Take over what other ranks drew and changed since."""
        assert self._memory is not None
        known_to, self.place = self.place.begun, self._shared_place()
        if self.place.started:
            if self.engine is None:
                self.adopt(self.filled_engine())
            assert self.engine is not None
            assert not isinstance(self.engine, Mixture)
            names = self.engine.place()
            self.engine.set_place(dict(zip(names, self._memory.floats.tolist(), strict=False)))
        self.schedule.drop_applied(self.place.applied)
        if known_to < self.place.kept_from:
            self.place.begun = known_to
            raise RuntimeError(
                f"this rank is at draw {known_to}, but another one of its node at {self.place.end}, and only the last "
                f"{self._memory.ring_length} draws are kept. Let ranks wait for each other more often, draw fewer ids "
                "at once, or leave `shared_memory` out."
            )
        # What lay beyond `begun` may have been taken back since.
        new = self._memory.read_ids(known_to, self.place.aside)
        self.ids = np.concatenate([self.ids[: known_to - self.ids_from], new[: self.place.end - known_to]])
        self.aside = new[self.place.end - known_to :]
        self._published_to = self.place.end

    def _publish(self) -> None:
        """Tell the other ranks."""
        assert self._memory is not None
        self.place.end = self.ids_from + len(self.ids)
        self.place.aside = self.place.end + len(self.aside)
        new = np.concatenate([self.ids[self._published_to - self.ids_from :], self.aside])
        self._memory.write_ids(self.place.aside, new)
        self.place.kept_to = max(self.place.kept_to, self.place.aside)
        self.place.kept_from = max(self.place.kept_from, self.place.kept_to - self._memory.ring_length)
        self._memory.integers[:_PLACE_SIZE] = astuple(self.place)
        if self.engine is not None:
            assert not isinstance(self.engine, Mixture)
            scalars = list(self.engine.place().values())
            self._memory.floats[: len(scalars)] = scalars
