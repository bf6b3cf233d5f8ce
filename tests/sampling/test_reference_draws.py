"""Tickets against a slow reference: what is issued, after any history of draws and changed weights."""

from fractions import Fraction
from math import log2

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference_draws import ReferenceDraws

from adaptive_sampling.sampling import Multinomial, Tickets


def float32(values):
    return np.asarray(values, np.float32)


class Followed:
    """Tickets and the reference over one history."""

    def __init__(self, weights, num_draws, seed=0):
        self.engine = Tickets(float32(weights), num_draws=num_draws, seed=seed)
        state = self.engine.state_dict()
        claims = float32(weights).astype(np.float64) * (num_draws / self.engine.total_weight)
        phases = np.round((state["balance"] + state["tickets"] - claims) * 2**21) / 2**21
        assert ((phases > 0) & (phases < 1)).all()
        self.reference = ReferenceDraws(float32(weights), num_draws=num_draws, phases=phases)
        self.issued = 1
        self.largest_claim = max(self.reference.probabilities()) * num_draws
        self.largest_shift = Fraction(0)
        self.exact = False

    def error(self):
        """How far float32 may be off: some roundings of balances at each issue, each by 2^-24 of their size."""
        return 0 if self.exact else Fraction(self.issued, 2**21) * (2 + self.largest_claim)

    def draw(self, size, *, fresh):
        """A block; if tickets are `fresh`, issued for it, they must be those of the reference."""
        expected, shift = self.reference.issue()
        fewest, most = (self.reference.issue_at(shift + sign * self.error()) for sign in (-1, 1))
        starts_epoch = self.reference.drawn and self.reference.remaining() == self.reference.num_draws
        ids = self.engine.next_block(size)
        assert len(ids) == min(size, self.reference.remaining())
        if fresh or starts_epoch:
            self.issued += 1
            self.largest_shift = max(self.largest_shift, abs(shift))
            issued = (self.engine.tickets + np.bincount(ids, minlength=len(expected))).tolist()
            assert sum(issued) == self.reference.remaining()
            if self.exact:
                assert issued == expected
            else:
                assert all(low <= n <= high for low, n, high in zip(fewest, issued, most, strict=True))
        for window in ids:
            self.reference.draw(int(window))

    def change(self, ids, values, *, sparse):
        ids, values = np.asarray(ids, np.int64), float32(values)
        self.reference.change(dict(zip(ids.tolist(), values.tolist(), strict=True)))
        if sparse:
            others = np.setdiff1d(np.arange(self.engine.num_windows), ids)
            before = self.engine.tickets[others].copy()
            self.engine.update_weights(ids, values)
            np.testing.assert_array_equal(self.engine.tickets[others], before)
        else:
            weights = self.engine.weights.copy()
            weights[ids] = values
            self.engine.set_weights(weights)
        assert (self.engine.tickets >= 0).all()
        assert (self.engine.tickets[self.engine.weights == 0] == 0).all()
        self.issued += 1
        self.largest_claim = max(self.largest_claim, max(self.reference.probabilities()) * self.engine.num_draws)

    def finish_epoch(self, size):
        while self.reference.remaining() < self.engine.num_draws:
            self.draw(size, fresh=False)


weight = st.one_of(st.just(0.0), st.floats(0.0009765625, 400, width=32))


def some_weights(data, size):
    weights = data.draw(st.lists(weight, min_size=size, max_size=size))
    assume(any(weights))
    return weights


@settings(max_examples=25)
@given(st.data())
def test_tickets_and_counts_of_fixed_weights_are_those_of_the_reference(data):
    size = data.draw(st.integers(1, 30))
    followed = Followed(some_weights(data, size), data.draw(st.integers(1, 80)), data.draw(st.integers(0, 5)))
    block = data.draw(st.integers(1, 100))
    for epoch in range(1, 9):
        followed.draw(block, fresh=epoch == 1)
        followed.finish_epoch(block)
        assert followed.reference.drawn == epoch * followed.engine.num_draws
        # Each count is within 1, plus the shift, of its expectation.
        bound = 1 + followed.largest_shift + followed.error()
        differences = [
            abs(n - c) for n, c in zip(followed.reference.counts, followed.reference.expected(), strict=True)
        ]
        assert max(differences) <= bound
    assert followed.largest_shift < 1


@settings(max_examples=30)
@given(st.data())
def test_tickets_after_any_history_of_changed_weights_are_those_of_the_reference(data):
    size = data.draw(st.integers(1, 24))
    num_draws = data.draw(st.integers(1, 60))
    followed = Followed(some_weights(data, size), num_draws, data.draw(st.integers(0, 5)))
    fresh = True
    for _ in range(data.draw(st.integers(1, 12))):
        action = data.draw(st.sampled_from(["draw", "set", "update"]))
        if action == "draw":
            followed.draw(data.draw(st.integers(1, num_draws)), fresh=fresh)
            fresh = False
        elif action == "set":
            followed.change(range(size), some_weights(data, size), sparse=False)
            fresh = True
        else:
            ids = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=size, unique=True))
            values = data.draw(st.lists(weight, min_size=len(ids), max_size=len(ids)))
            left = followed.engine.weights.copy()
            left[ids] = values
            assume(left.any())
            # Only the tickets of these windows are exchanged: a block drawn now is not one of fresh tickets. What was
            # owed is kept all the same, and the next issue shows it.
            followed.change(ids, values, sparse=True)
            fresh = False
    followed.draw(1, fresh=fresh)
    followed.finish_epoch(7)
    followed.draw(num_draws, fresh=True)


@settings(max_examples=30)
@given(st.data())
def test_tickets_of_weights_without_rounding_are_exactly_those_of_the_reference(data):
    """Weights are small integers whose sum is a power of two: every claim is exact, ties included."""
    size, num_draws = data.draw(st.integers(2, 20)), data.draw(st.integers(1, 7))

    def weights():
        values = data.draw(st.lists(st.integers(0, 5), min_size=size - 1, max_size=size - 1))
        assume(any(values))
        return [*values, 2 ** int(np.ceil(log2(sum(values)))) - sum(values)]

    followed = Followed(weights(), num_draws, data.draw(st.integers(0, 5)))
    followed.exact = True
    for _ in range(data.draw(st.integers(1, 6))):
        followed.draw(data.draw(st.integers(1, num_draws)), fresh=True)
        followed.change(range(size), weights(), sparse=False)
    followed.draw(num_draws, fresh=True)
    followed.finish_epoch(num_draws)
    followed.draw(num_draws, fresh=True)


@pytest.mark.parametrize("engine_type", [Tickets, Multinomial])
@settings(max_examples=30)
@given(st.data())
def test_windows_of_weight_zero_are_never_drawn_whatever_happens(engine_type, data):
    size, num_draws = data.draw(st.integers(1, 80)), data.draw(st.integers(1, 200))
    engine = engine_type(float32(some_weights(data, size)), num_draws=num_draws, seed=0)
    for _ in range(6):
        ids = engine.next_block(data.draw(st.integers(1, num_draws)))
        assert (engine.weights[ids] > 0).all()
        weights = float32(some_weights(data, size))
        if data.draw(st.booleans()):
            engine.set_weights(weights)
        else:
            changed = np.flatnonzero(weights != engine.weights)
            engine.update_weights(changed, weights[changed])


@pytest.mark.parametrize("voided_by", ["set", "update"])
@pytest.mark.parametrize("restored_by", ["set", "update"])
def test_a_window_that_gets_weight_again_is_owed_its_phase_and_not_what_was_void(voided_by, restored_by):
    followed = Followed([7, 1, 1, 1], num_draws=400, seed=3)
    followed.draw(40, fresh=True)
    followed.change([0], [0], sparse=voided_by == "update")
    followed.draw(40, fresh=voided_by == "set")
    followed.change([0], [7], sparse=restored_by == "update")
    followed.finish_epoch(50)
    followed.draw(400, fresh=True)
