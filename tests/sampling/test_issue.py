import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_sampling.sampling import Tickets, _chunks, _issue


def slow_tickets(balances, drawable, total):
    """The shift found by trying: windows gain one ticket after the other, in order of what they lack to the next."""
    balances = np.asarray(balances, float)
    tickets = np.zeros(len(balances), int)
    steps = sorted(
        (-(balances[i] - k), i, k) for i in np.flatnonzero(drawable) for k in range(1, int(balances[i]) + total + 3)
    )
    for _, i, _ in steps[:total]:
        tickets[i] += 1
    return tickets


@given(
    st.lists(st.tuples(st.integers(-3, 4), st.integers(0, 63), st.booleans()), min_size=1, max_size=12),
    st.integers(0, 25),
)
def test_tickets_are_those_of_the_common_shift(windows, total):
    balances = np.array([whole + fraction / 64 for whole, fraction, _ in windows])
    drawable = np.array([flag for _, _, flag in windows])
    drawable[0] = True
    whole, fractions = _issue.split(balances, drawable)
    shift, tied = _issue.solve_shift(whole, fractions, total)
    tickets, rest = _issue.award(whole, fractions, shift)
    tickets[tied] += 1
    rest[tied] -= 1
    assert tickets.tolist() == slow_tickets(balances, drawable, total).tolist()
    np.testing.assert_array_equal((tickets + rest)[drawable], balances[drawable])
    # A window that cannot be drawn keeps its fraction and loses what it was owed.
    np.testing.assert_array_equal(rest[~drawable], balances[~drawable] % 1)


@given(
    st.lists(st.tuples(st.floats(-(2.0**29), 2.0**29), st.integers(-64, 64), st.booleans()), min_size=1, max_size=12),
    st.integers(-1000, 1000),
    st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]),
)
def test_few_windows_get_what_many_would(windows, whole_shift, threshold):
    balances = np.array([scale if abs(scale) > 100 else scale + part / 64 for scale, part, _ in windows])
    drawable = np.array([flag for _, _, flag in windows])
    shift = _issue.Shift(whole_shift, threshold)
    for few, many in zip(
        _issue.award_few(balances, drawable, shift),
        _issue.award(*_issue.split(balances, drawable), shift),
        strict=True,
    ):
        assert few.dtype == many.dtype
        np.testing.assert_array_equal(few, many)


def test_threads_and_chunks_change_nothing(monkeypatch):
    weights = np.random.default_rng(0).gamma(0.5, size=5000).astype(np.float32)
    weights[::7] = 0

    def run():
        engine = Tickets(weights, num_draws=7000, seed=0)
        first = engine.next_block(3000)
        engine.set_weights(weights[::-1].copy())
        return np.concatenate([first, engine.next_block(4000), engine.next_block(7000)])

    expected = run()
    monkeypatch.setattr(_chunks, "CHUNK", 64)
    monkeypatch.setattr(_chunks, "_THREADED_FROM", 1)
    np.testing.assert_array_equal(run(), expected)


@pytest.mark.parametrize("num_windows, num_draws", [(2, 20_000), (10, 10**6), (3, 2 * 10**9)])
def test_large_claims_do_not_drift(num_windows, num_draws):
    # Only the tickets are looked at: an epoch of that many draws would take long.
    weights = np.random.default_rng(1).gamma(2.0, size=num_windows).astype(np.float32) + np.float32(0.05)
    engine = Tickets(weights, num_draws=num_draws, seed=0)
    expected = weights.astype(float) / weights.sum(dtype=float) * num_draws
    counts = np.zeros(num_windows)
    for epoch in range(1, 300):
        counts += engine.tickets
        assert np.abs(counts - epoch * expected).max() < 1.5  # 1 plus the shift, which few windows make large
        engine._tickets.leaves[:] = 0
        engine._tickets.rebuild()
        engine.drawn = engine._since = num_draws
        engine.start_epoch(epoch)


def test_draws_taken_back_leave_no_trace():
    engine = Tickets(np.arange(1, 9, dtype=np.float32), num_draws=36, seed=0)
    engine.next_block(5)
    before = engine.state_dict()
    engine.take_back(engine.next_block(20))
    after = engine.state_dict()
    assert after.pop("block") == before.pop("block") + 1
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)
