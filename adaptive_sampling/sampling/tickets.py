"""How weights become draws: tickets (systematic) or independent draws (multinomial).

Both engines produce one global stream of ids in blocks. The randomness of a block is a function of (seed, epoch,
block), so the stream is a function of the seed and of the history of weights alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import keyed_generator
from adaptive_sampling.sampling._checks import checked_weights
from adaptive_sampling.sampling._chunks import chunks, for_each_chunk
from adaptive_sampling.sampling._issue import MOST_TICKETS, Shift, award, award_few, solve_shift, split
from adaptive_sampling.sampling.sum_tree import Allocate, SumTree, level_lengths, padded_size

_PHASES = 1 << 20
# Changes of a few weights may leave this share of tickets too many or too few, at this many windows or more; at fewer,
# where issuing anew costs less, in proportion less.
_SLACK = 0.01
_LONG = 10**6
_FEW = 256  # draws for which the number of calls counts, not what they do
_CANCELLED = 0.1  # below this share of its largest value a running total is summed up afresh


class _Engine:
    """What both engines share: the weights with their sums, and the place in the stream.

    Args:
        weights: float32 `[N]`.
        num_draws: draws per epoch.
        seed: of the stream.
        allocate: makes the engine's arrays, always in the same order, the leaves of the weights first.
        filled: the arrays were filled by another engine, or `load_state_dict` will fill them: nothing is issued.
    """

    def __init__(
        self,
        weights: NDArray[np.float32],
        *,
        num_draws: int,
        seed: int,
        allocate: Allocate = np.zeros,
        filled: bool = False,
    ) -> None:
        self.num_windows = len(weights)
        self.num_draws = num_draws
        self.seed = seed
        self.epoch = 0
        self.block = 0
        self.drawn = 0  # in this epoch
        self._padded = allocate(padded_size(len(weights)), np.float32)
        if not filled:
            self.weights[:] = weights

    @property
    def weights(self) -> NDArray[np.float32]:
        """The weights that the next block will see, float32 `[N]`; a view, not to be written."""
        return self._padded[: self.num_windows]

    def issue(self) -> None:
        """Prepare the draws that remain in the epoch, after `num_draws` was changed."""

    def next_block(self, block_size: int) -> NDArray[np.int64]:
        """The next at most `block_size` ids of the stream, int64; a block never crosses the end of an epoch."""
        if self.drawn == self.num_draws:
            self.start_epoch(self.epoch + 1)
        size = min(block_size, self.num_draws - self.drawn)
        ids = self.draw(size, keyed_generator(self.seed, "draws", self.epoch, self.block))
        self.block += 1
        return ids

    def draw(self, size: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """`size` ids, int64, at most as many as the epoch still holds."""
        raise NotImplementedError

    def take_back(self, ids: NDArray[np.int64]) -> None:
        """Undo the latest draws, which were `ids`, because weights changed before anybody saw them."""
        self.drawn -= len(ids)

    def draw_again(self, ids: NDArray[np.int64]) -> None:
        """Counterpart of `take_back`: the change had no effect on them."""
        self.drawn += len(ids)

    def start_epoch(self, epoch: int) -> None:
        """Leave the current epoch as it stands and begin `epoch`."""
        self.epoch, self.block, self.drawn = epoch, 0, 0

    def place(self) -> dict[str, float]:
        """Every scalar that later blocks depend on; float64 holds each exactly."""
        return {"epoch": self.epoch, "block": self.block, "drawn": self.drawn}

    def set_place(self, place: Mapping[str, Any]) -> None:
        """Counterpart of `place`."""
        self.epoch, self.block, self.drawn = int(place["epoch"]), int(place["block"]), int(place["drawn"])

    def state_dict(self) -> dict[str, Any]:
        """Everything that later blocks depend on."""
        return {**self.place(), "weights": self.weights.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Counterpart of `state_dict`."""
        self.weights[:] = checked_weights("weights", state["weights"], self.num_windows)
        self.set_place(state)


class Multinomial(_Engine):
    """Independent draws with replacement, with probability weight/Σweight, as `torch.utils.data.WeightedRandomSampler`.

    Cost:
        O(block · log N) per block and O(k · log N) per change of k weights; 4 bytes per window.
    """

    def __init__(
        self,
        weights: NDArray[np.float32],
        *,
        num_draws: int,
        seed: int,
        allocate: Allocate = np.zeros,
        filled: bool = False,
    ) -> None:
        super().__init__(weights, num_draws=num_draws, seed=seed, allocate=allocate, filled=filled)
        self._sums = SumTree(self._padded, np.float64, allocate=allocate, filled=filled)

    @staticmethod
    def array_bytes(num_windows: int) -> list[int]:
        """Bytes of each array that `allocate` is asked for, in order."""
        leaves = padded_size(num_windows)
        return [4 * leaves, *(8 * length for length in level_lengths(leaves))]

    @property
    def total_weight(self) -> float:
        """Σ weights in float64."""
        return float(self._sums.total)

    def set_weights(self, weights: NDArray[np.float32]) -> None:
        """Replace all weights."""
        self.weights[:] = weights
        self._sums.rebuild()

    def update_weights(self, ids: NDArray[np.int64], values: NDArray[np.float32]) -> bool:
        """Change the weights of `ids` (each id once); gives whether draws come out otherwise now."""
        if np.array_equal(self.weights[ids], values):
            return False
        self.weights[ids] = values
        self._sums.refresh(ids)
        return True

    def draw(self, size: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """`size` ids, int64, at most as many as the epoch still holds."""
        ids = self._sums.find(generator.random(size) * self._sums.total)
        self.drawn += size
        return ids

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Counterpart of `state_dict`."""
        super().load_state_dict(state)
        self._sums.rebuild()


class Tickets(_Engine):
    """Systematic draws: what a window is owed becomes tickets, a draw removes one ticket.

    The *balance* of a window is a phase of its own, uniform in [0, 1), plus its claims so far, minus the tickets it
    got. Claims grow by weight/Σweight with each draw; with g = Σ over draws of 1/Σweight, a window whose weight is
    constant has claimed weight·g, so one scalar keeps the claims of all windows up to date. Tickets are issued ahead,
    for all draws that remain in the epoch: whole parts of the balances, with one common shift that makes them sum to
    exactly that number. With fixed weights the count of a window therefore stays within 1 (plus the shift) of its
    expectation over any number of epochs.

    When a few weights change, only these windows' tickets are exchanged: draws are uniform among tickets, so the
    proportions are right at once. The claims of the others, made ahead at the old Σweight, are put right at the next
    issue. That comes at the end of the epoch, at `set_weights`, and before a block when the changes have left too many
    or too few tickets: a draw from too many leaves counts to chance. A few are let pass where windows are many, since
    issuing takes O(N).

    Cost:
        O(block · log N) per block, O(k · log N) per change of k weights, O(N) per issue; 12.2 bytes per window.
    """

    def __init__(
        self,
        weights: NDArray[np.float32],
        *,
        num_draws: int,
        seed: int,
        allocate: Allocate = np.zeros,
        filled: bool = False,
    ) -> None:
        super().__init__(weights, num_draws=num_draws, seed=seed, allocate=allocate, filled=filled)
        self._balance = allocate(self.num_windows, np.float32)
        leaves = allocate(padded_size(self.num_windows), np.int32)
        self._tickets = SumTree(leaves, np.int64, allocate=allocate, filled=filled)
        self._claimed = 0.0  # g up to which claims are in the balances, counted from the last issue
        self._elapsed = 0.0  # g when the weights last changed
        self._since = 0  # draws since then
        self._shift = Shift(0, 2.0)
        self.total_weight = 0.0  # Σ weights, kept up to date by what changes
        self._largest_total = 0.0  # since it was last summed up
        if filled:
            return
        self._sum_weights()
        generator = keyed_generator(seed, "phases")
        for part in chunks(self.num_windows):
            # Odd multiples of 2^-21: never a whole number, and exact in float32 beside the rest of any balance.
            phases = generator.integers(0, _PHASES, part.stop - part.start, dtype=np.uint32)
            self._balance[part] = (phases.astype(np.float32) + np.float32(0.5)) / np.float32(_PHASES)
        self.issue()

    @staticmethod
    def array_bytes(num_windows: int) -> list[int]:
        """Bytes of each array that `allocate` is asked for, in order."""
        leaves = padded_size(num_windows)
        return [4 * leaves, 4 * num_windows, 4 * leaves, *(8 * length for length in level_lengths(leaves))]

    @property
    def tickets(self) -> NDArray[np.int32]:
        """Tickets left per window, int32 `[N]`; a view, not to be written."""
        return self._tickets.leaves[: self.num_windows]

    def start_epoch(self, epoch: int) -> None:
        """Claims of draws that were never made are taken back; tickets left return to the balances."""
        super().start_epoch(epoch)
        self.issue()

    def set_weights(self, weights: NDArray[np.float32]) -> None:
        """Replace all weights: the claims on the draws that remain change, tickets are issued anew."""
        self._split_balances(self._owed())
        self.weights[:] = weights
        self._issue_from(0.0)

    def update_weights(self, ids: NDArray[np.int64], values: NDArray[np.float32]) -> bool:
        """Change the weights of `ids` (each id once) and exchange their tickets; gives whether any were exchanged."""
        self._elapsed, self._since = self._now(), 0
        tickets, more = self.tickets.take(ids), values.astype(np.float64) - self.weights.take(ids)
        owed = self._balance.take(ids) + tickets + more * (self._claimed - self._elapsed)
        if len(owed) and np.abs(owed).max() >= MOST_TICKETS:
            # At the old Σweight these few claim more than tickets can count: all are issued anew at the new one.
            self._split_balances(self._owed())
            self.weights[ids] = values
            self._issue_from(0.0)
            return True
        issued, self._balance[ids] = award_few(owed, values > 0, self._shift)
        difference = issued - tickets
        exchanged = np.flatnonzero(difference)
        if len(exchanged):
            self._tickets.add(ids.take(exchanged), difference.take(exchanged))
        self.weights[ids] = values
        self.total_weight += float(more.sum())
        self._largest_total = max(self._largest_total, self.total_weight)
        if self.total_weight < _CANCELLED * self._largest_total:
            self._sum_weights()
        return len(exchanged) > 0

    def draw(self, size: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """`size` ids, int64, at most as many as the epoch still holds."""
        remaining, left = self.num_draws - self.drawn, int(self._tickets.total)
        if abs(left - remaining) > 1 + _SLACK * min(self.num_windows / _LONG, 1) * remaining:
            self.issue()
            left = int(self._tickets.total)
        parts = []
        missing = size
        while missing:
            if not left:
                self.issue()
                left = int(self._tickets.total)
            part = self._take(min(missing, left), left, generator)
            parts.append(part)
            missing -= len(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _take(self, size: int, left: int, generator: np.random.Generator) -> NDArray[np.int64]:
        points, place = _distinct_integers(generator, left, size)
        found = self._tickets.find(points)
        self._tickets.add(found, np.full(size, -1, np.int32))
        ids = np.empty_like(found)
        ids[place] = found
        self._since += size
        self.drawn += size
        return ids

    def take_back(self, ids: NDArray[np.int64]) -> None:
        """Undo the latest draws: their tickets return."""
        super().take_back(ids)
        self._tickets.add(ids, np.ones(len(ids), np.int32))
        self._since -= len(ids)

    def draw_again(self, ids: NDArray[np.int64]) -> None:
        """Counterpart of `take_back`: their tickets are there still."""
        super().draw_again(ids)
        self._tickets.add(ids, np.full(len(ids), -1, np.int32))
        self._since += len(ids)

    def issue(self) -> None:
        """Tickets for all draws that remain in the epoch: max(floor(balance + shift), 0), summing to them exactly."""
        self._issue_from(self._owed())

    def _now(self) -> float:
        """g at the present draw: Σ over the draws since the last issue of 1/Σweight."""
        return self._elapsed + self._since / self.total_weight if self._since else self._elapsed

    def _owed(self) -> float:
        """g of the draws made since the last issue less g claimed ahead: what each unit of weight is owed by now."""
        return self._now() - self._claimed

    def _sum_weights(self) -> None:
        def work(part: slice) -> float:
            return float(self.weights[part].sum(dtype=np.float64))

        self.total_weight = self._largest_total = float(np.sum(for_each_chunk(self.num_windows, work)))

    def _issue_from(self, owed: float) -> None:
        self._sum_weights()
        remaining = self.num_draws - self.drawn
        self._claimed = remaining / self.total_weight if remaining else 0.0
        self._elapsed, self._since = 0.0, 0
        self._split_balances(owed + self._claimed, undrawable_void=True)
        whole, fractions = self.tickets, self._balance
        self._shift, tied = solve_shift(whole, fractions, remaining)

        def finish(part: slice) -> None:
            whole[part], fractions[part] = award(whole[part], fractions[part], self._shift)

        for_each_chunk(self.num_windows, finish)
        self.tickets[tied] += 1
        self._balance[tied] -= 1
        self._tickets.rebuild()

    def _split_balances(self, g: float, *, undrawable_void: bool = False) -> None:
        """Return tickets, add claims of weight·g, and keep whole parts in place of tickets, fractions as balances.

        The sums are made in float64 and the parts are kept apart, so that no claim is too large for its fraction.
        """

        def work(part: slice) -> None:
            weights = self.weights[part]
            balance = np.multiply(weights, g, dtype=np.float64)
            balance += self._balance[part]
            balance += self.tickets[part]
            drawable = weights > 0 if undrawable_void else np.ones(len(weights), np.bool_)
            self.tickets[part], self._balance[part] = split(balance, drawable)

        for_each_chunk(self.num_windows, work)

    def place(self) -> dict[str, float]:
        """Every scalar that later blocks depend on; float64 holds each exactly."""
        return {
            **super().place(),
            "claimed": self._claimed,
            "elapsed": self._elapsed,
            "since": self._since,
            "whole_shift": self._shift.whole,
            "threshold": self._shift.threshold,
            "total_weight": self.total_weight,
            "largest_total": self._largest_total,
        }

    def set_place(self, place: Mapping[str, Any]) -> None:
        """Counterpart of `place`."""
        super().set_place(place)
        self._claimed, self._elapsed = float(place["claimed"]), float(place["elapsed"])
        self._since = int(place["since"])
        self._shift = Shift(int(place["whole_shift"]), float(place["threshold"]))
        self.total_weight, self._largest_total = float(place["total_weight"]), float(place["largest_total"])

    def state_dict(self) -> dict[str, Any]:
        """Everything that later blocks depend on."""
        return {**super().state_dict(), "balance": self._balance.copy(), "tickets": self.tickets.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Counterpart of `state_dict`."""
        super().load_state_dict(state)
        self._balance[:] = state["balance"]
        self.tickets[:] = state["tickets"]
        self._tickets.rebuild()


def _distinct_integers(
    generator: np.random.Generator, total: int, size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`size` different integers below `total`, sorted, and the place of each in an order drawn uniformly."""
    if size * 4 > total:
        points = generator.permutation(total)[:size]
        order = np.argsort(points)
        return points[order], order
    points = generator.integers(0, total, size)
    while True:
        values, first = _sorted_with_places(points)
        differs = values[1:] != values[:-1]
        if differs.all():
            # Points that came twice are gone; what is left keeps the order in which it came.
            return values, first
        new = np.concatenate([[True], differs])
        points = np.concatenate([points[np.sort(first[new])], generator.integers(0, total, size - int(new.sum()))])


def _sorted_with_places(points: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The points, below 2^31, in order, and where each stood; equal ones in the order in which they stood."""
    if len(points) <= _FEW:
        order = points.argsort(kind="stable")
        return points.take(order), order
    # Sorting points with their places in the low bits is several times faster than sorting many places by points.
    keys = np.sort(points << 32 | np.arange(len(points)))
    return keys >> 32, keys & 0xFFFFFFFF
