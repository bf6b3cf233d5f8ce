"""How weights become draws: tickets (systematic) or independent draws (multinomial).

Both engines produce one global stream of ids in blocks. The randomness of a block is a function of (seed, epoch,
block), so the stream is a function of the seed and of the history of weights alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import keyed_generator
from adaptive_sampling.sampling.sum_tree import SumTree, padded_size

_CHUNK = 1 << 20
_FRACTION_BINS = 1 << 16
_PHASES = 1 << 20
_FLOOR_REACH = 256
_NO_TICKETS = -(1 << 24)  # a shift below every balance


class _Engine:
    """What both engines share: the weights with their sums, and the place in the stream."""

    def __init__(self, weights: NDArray[np.float32], *, num_draws: int, seed: int) -> None:
        self.num_windows = len(weights)
        self.num_draws = num_draws
        self.seed = seed
        self.epoch = 0
        self.block = 0
        self.drawn = 0  # in this epoch
        padded = np.zeros(padded_size(len(weights)), np.float32)
        padded[: len(weights)] = weights
        self._weight_sums = SumTree(padded, np.float64)

    @property
    def weights(self) -> NDArray[np.float32]:
        """The weights that the next block will see, float32 `[N]`; a view, not to be written."""
        return self._weight_sums.leaves[: self.num_windows]

    @property
    def total_weight(self) -> float:
        """Σ weights in float64."""
        return float(self._weight_sums.total)

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

    def start_epoch(self, epoch: int) -> None:
        """Leave the current epoch as it stands and begin `epoch`."""
        self.epoch, self.block, self.drawn = epoch, 0, 0

    def state_dict(self) -> dict[str, Any]:
        """Place in the stream; the arrays are added by the caller and by subclasses."""
        return {"epoch": self.epoch, "block": self.block, "drawn": self.drawn, "weights": self.weights.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Counterpart of `state_dict`."""
        self.epoch, self.block, self.drawn = int(state["epoch"]), int(state["block"]), int(state["drawn"])
        self._weight_sums.leaves[: self.num_windows] = state["weights"]
        self._weight_sums.rebuild()


class Multinomial(_Engine):
    """Independent draws with replacement, with probability weight/Σweight, as `torch.utils.data.WeightedRandomSampler`.

    Cost:
        O(block · log N) per block and O(k · log N) per change of k weights; 4 bytes per window.
    """

    def set_weights(self, weights: NDArray[np.float32]) -> None:
        """Replace all weights."""
        self._weight_sums.leaves[: self.num_windows] = weights
        self._weight_sums.rebuild()

    def update_weights(self, ids: NDArray[np.int64], values: NDArray[np.float32]) -> None:
        """Change the weights of `ids` (each id once)."""
        self._weight_sums.leaves[ids] = values
        self._weight_sums.refresh(ids)

    def draw(self, size: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """`size` ids, int64, at most as many as the epoch still holds."""
        ids = self._weight_sums.find(generator.random(size) * self._weight_sums.total)
        self.drawn += size
        return ids


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
    issue, which happens at the end of the epoch, at `set_weights`, or when tickets run out.

    Cost:
        O(block · log N) per block, O(k · log N) per change of k weights, O(N) per issue; 12.3 bytes per window.
    """

    def __init__(self, weights: NDArray[np.float32], *, num_draws: int, seed: int) -> None:
        super().__init__(weights, num_draws=num_draws, seed=seed)
        # Phases are odd multiples of 2^-21: never a whole number, and exact in float32 beside claims of up to 8.
        phases = keyed_generator(seed, "phases").integers(0, _PHASES, self.num_windows, dtype=np.uint32)
        self._balance = (phases.astype(np.float32) + np.float32(0.5)) / np.float32(_PHASES)
        self._tickets = SumTree(np.zeros(padded_size(self.num_windows), np.int32), np.int64)
        self._claimed = 0.0  # g up to which claims are in the balances
        self._elapsed = 0.0  # g at the present draw; both start at 0 with each issue
        self._shift = (0, 2.0)  # see `_solve_shift`
        self.issue()

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
        self._settle()
        self._weight_sums.leaves[: self.num_windows] = weights
        self._weight_sums.rebuild()
        self._void_unreachable()
        self.issue()

    def update_weights(self, ids: NDArray[np.int64], values: NDArray[np.float32]) -> None:
        """Change the weights of `ids` (each id once) and exchange their tickets."""
        leaves = self._weight_sums.leaves
        ahead = self._claimed - self._elapsed
        balance = self._balance[ids] + self.tickets[ids] + (values - leaves[ids]) * ahead
        balance = np.where(values > 0, balance, balance % 1.0).astype(np.float32)
        tickets = self._whole_parts(balance, values)
        self._balance[ids] = balance - tickets
        self._tickets.leaves[ids] = tickets
        leaves[ids] = values
        self._weight_sums.refresh(ids)
        self._tickets.refresh(ids)

    def draw(self, size: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """`size` ids, int64, at most as many as the epoch still holds."""
        parts = []
        missing = size
        while missing:
            left = int(self._tickets.total)
            if not left:
                self.issue()
                left = int(self._tickets.total)
            part = self._take(min(missing, left), left, generator)
            parts.append(part)
            missing -= len(part)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _take(self, size: int, left: int, generator: np.random.Generator) -> NDArray[np.int64]:
        points, place = _distinct_integers(generator, left, size)
        found = self._tickets.find(points)
        first = np.flatnonzero(np.concatenate([[True], found[1:] != found[:-1]]))
        times = np.diff(first, append=size)
        self._tickets.leaves[found[first]] -= times.astype(np.int32)
        self._tickets.refresh(found[first])
        ids = np.empty_like(found)
        ids[place] = found
        self._elapsed += size / self.total_weight
        self.drawn += size
        return ids

    def _settle(self) -> None:
        """Return tickets, and leave in the balances the claims of the draws made so far, and no others."""
        surplus = self._elapsed - self._claimed
        for start in range(0, self.num_windows, _CHUNK):
            part = slice(start, min(start + _CHUNK, self.num_windows))
            self._balance[part] += self.tickets[part] + self.weights[part] * surplus
        self._tickets.leaves[:] = 0
        self._claimed = self._elapsed = 0.0

    def _void_unreachable(self) -> None:
        """A window of weight 0 keeps its phase and loses what it was owed."""
        for start in range(0, self.num_windows, _CHUNK):
            part = slice(start, min(start + _CHUNK, self.num_windows))
            np.copyto(self._balance[part], self._balance[part] % 1.0, where=self.weights[part] == 0)

    def issue(self) -> None:
        """Tickets for all draws that remain in the epoch: max(floor(balance + shift), 0), summing to them exactly."""
        self._settle()
        remaining = self.num_draws - self.drawn
        self._claimed = remaining / self.total_weight if remaining else 0.0
        for start in range(0, self.num_windows, _CHUNK):
            part = slice(start, min(start + _CHUNK, self.num_windows))
            self._balance[part] += self.weights[part] * self._claimed
        whole_shift, threshold, ties = self._solve_shift(remaining)
        self._shift = (whole_shift, threshold)
        for start in range(0, self.num_windows, _CHUNK):
            part = slice(start, min(start + _CHUNK, self.num_windows))
            balance = self._balance[part]
            tickets = self._whole_parts(balance, self.weights[part])
            if ties:
                floors = np.floor(balance)
                at_threshold = (balance - floors == np.float32(threshold)) & (floors + whole_shift >= 0)
                tied = np.flatnonzero(at_threshold & (self.weights[part] > 0))[:ties]
                tickets[tied] += 1
                ties -= len(tied)
            self.tickets[part] = tickets
            balance -= tickets
        self._tickets.rebuild()

    def _whole_parts(self, balance: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.int32]:
        """max(floor(balance + shift), 0), none at weight 0."""
        whole_shift, threshold = self._shift
        floors = np.floor(balance)
        gains = balance - floors > np.float32(threshold)
        floors += whole_shift
        tickets: NDArray[np.int32] = np.where(weights > 0, np.maximum(floors + gains, 0), 0).astype(np.int32)
        return tickets

    def _solve_shift(self, remaining: int) -> tuple[int, float, int]:
        """The common shift: an integer, a fraction above which a window gains one more, and how many at it do.

        A histogram of the fractions finds the bin of the threshold, so only that bin is ever sorted: O(N), and small
        beside the arrays themselves.
        """
        if not remaining:
            return _NO_TICKETS, 2.0, 0
        whole = self._whole_tickets()
        low, high = -1, 1
        while whole(low) > remaining:
            low *= 2
        while whole(high) <= remaining:
            high *= 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if whole(middle) <= remaining else (low, middle)
        missing = remaining - whole(low)
        if not missing:
            return low, 2.0, 0
        counts = np.zeros(_FRACTION_BINS, np.int64)
        for fractions in self._gaining_fractions(low):
            counts += np.bincount(_fraction_bin(fractions), minlength=_FRACTION_BINS)
        from_top = counts[::-1].cumsum()[::-1]
        edge = int(np.flatnonzero(from_top >= missing)[-1])
        above = int(from_top[edge] - counts[edge])
        inside = np.sort(np.concatenate([part[_fraction_bin(part) == edge] for part in self._gaining_fractions(low)]))
        threshold = inside[len(inside) - (missing - above)]
        larger = int((inside > threshold).sum())
        return low, float(threshold), missing - above - larger

    def _whole_tickets(self) -> Callable[[int], int]:
        """Function of an integer shift: Σ max(floor(balance) + shift, 0) over the windows that can be drawn.

        One pass over all windows counts the floors; floors beyond the table are kept one by one.
        """
        counts = np.zeros(2 * _FLOOR_REACH, np.int64)
        beyond = []
        for start in range(0, self.num_windows, _CHUNK):
            part = slice(start, min(start + _CHUNK, self.num_windows))
            floors = np.floor(self._balance[part][self.weights[part] > 0]).astype(np.int64) + _FLOOR_REACH
            inside = (floors >= 0) & (floors < len(counts))
            if inside.all():
                counts += np.bincount(floors, minlength=len(counts))
            else:
                counts += np.bincount(floors[inside], minlength=len(counts))
                beyond.append(floors[~inside] - _FLOOR_REACH)
        values = np.arange(-_FLOOR_REACH, _FLOOR_REACH)
        rare = np.concatenate(beyond) if beyond else np.empty(0, np.int64)

        def total(shift: int) -> int:
            return int((np.maximum(values + shift, 0) * counts).sum() + np.maximum(rare + shift, 0).sum())

        return total

    def _gaining_fractions(self, whole_shift: int) -> Iterator[NDArray[np.float32]]:
        """Fractions of the windows for which one more would be a ticket, chunk by chunk."""
        for start in range(0, self.num_windows, _CHUNK):
            part = slice(start, min(start + _CHUNK, self.num_windows))
            balance = self._balance[part][self.weights[part] > 0]
            floors = np.floor(balance)
            yield (balance - floors)[floors + whole_shift >= 0]

    def state_dict(self) -> dict[str, Any]:
        """Everything that later blocks depend on."""
        return {
            **super().state_dict(),
            "balance": self._balance.copy(),
            "tickets": self.tickets.copy(),
            "claimed": self._claimed,
            "elapsed": self._elapsed,
            "whole_shift": self._shift[0],
            "threshold": self._shift[1],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Counterpart of `state_dict`."""
        super().load_state_dict(state)
        self._balance[:] = state["balance"]
        self.tickets[:] = state["tickets"]
        self._tickets.rebuild()
        self._claimed, self._elapsed = float(state["claimed"]), float(state["elapsed"])
        self._shift = (int(state["whole_shift"]), float(state["threshold"]))


def _fraction_bin(fractions: NDArray[np.float32]) -> NDArray[np.int64]:
    # A fraction just below 1 may have been rounded up to 1.
    return np.minimum((fractions * _FRACTION_BINS).astype(np.int64), _FRACTION_BINS - 1)


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
        values, first = np.unique(points, return_index=True)
        if len(first) == size:
            # Points that came twice are gone; what is left keeps the order in which it came.
            return values, np.argsort(np.argsort(first)) if len(points) > size else first
        points = np.concatenate([points[np.sort(first)], generator.integers(0, total, size - len(first))])
