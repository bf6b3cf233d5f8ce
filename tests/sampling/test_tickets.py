import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_sampling.sampling import Multinomial, Tickets


def float32(values):
    return np.asarray(values, np.float32)


def draw_epoch(engine, block_size=64):
    parts, epoch_draws = [], 0
    while epoch_draws < engine.num_draws:
        parts.append(engine.next_block(block_size))
        epoch_draws += len(parts[-1])
    return np.concatenate(parts)


def counts_of(engine, block_size=64):
    return np.bincount(draw_epoch(engine, block_size), minlength=engine.num_windows)


def test_whole_claims_give_exactly_these_counts_in_every_epoch():
    engine = Tickets(float32([4, 2, 1, 1]), num_draws=8, seed=0)
    for _ in range(5):
        assert counts_of(engine).tolist() == [4, 2, 1, 1]


@pytest.mark.parametrize("seed", range(10))
def test_half_an_epoch_per_epoch_meets_the_counts_after_two(seed):
    engine = Tickets(float32([4, 2, 1, 1]), num_draws=4, seed=seed)
    first = counts_of(engine)
    assert first.sum() == 4
    assert np.abs(first - [2, 1, 0.5, 0.5]).max() <= 1.5
    assert (first + counts_of(engine)).tolist() == [4, 2, 1, 1]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("sparse", [False, True])
def test_weights_changed_in_mid_epoch_change_the_claims_on_the_draws_that_remain(seed, sparse):
    engine = Tickets(float32([4, 2, 1, 1]), num_draws=8, seed=seed)
    first = engine.next_block(4)
    if sparse:
        engine.update_weights(np.arange(4), float32([1, 1, 1, 5]))
    else:
        engine.set_weights(float32([1, 1, 1, 5]))
    counts = np.bincount(np.concatenate([first, engine.next_block(4)]), minlength=4)
    assert counts.sum() == 8
    assert np.abs(counts - [2.5, 1.5, 1, 3]).max() <= 2


def test_zero_weight_is_never_drawn_and_its_tickets_are_void():
    engine = Tickets(float32([0, 2, 0, 2]), num_draws=4, seed=1)
    for _ in range(20):
        assert set(draw_epoch(engine).tolist()) == {1, 3}
    engine = Tickets(float32([5, 1, 1, 1]), num_draws=800, seed=1)
    engine.next_block(100)
    engine.update_weights(np.array([0]), float32([0]))
    assert 0 not in np.concatenate([engine.next_block(100) for _ in range(7)])
    assert 0 not in draw_epoch(engine)


@pytest.mark.parametrize("size", [1, 5, 63, 1000])
@pytest.mark.parametrize("weight", [1.0, 0.3, 1e-8, 3e8])
def test_equal_weights_make_every_epoch_a_permutation(size, weight):
    engine = Tickets(np.full(size, weight, np.float32), num_draws=size, seed=2)
    orders = [draw_epoch(engine) for _ in range(20)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(size))
    assert size < 5 or len({tuple(order) for order in orders}) > 1


def test_fewer_draws_than_windows_visit_all_in_turn():
    engine = Tickets(np.ones(5, np.float32), num_draws=3, seed=3)
    assert sum(counts_of(engine) for _ in range(5)).tolist() == [3] * 5


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.0009765625, 400, width=32), min_size=1, max_size=60),
    st.integers(1, 200),
    st.integers(0, 10),
)
def test_counts_of_fixed_weights_stay_within_one_and_the_shift_of_expectation(weights, num_draws, seed):
    engine = Tickets(float32(weights), num_draws=num_draws, seed=seed)
    expected = float32(weights) / float32(weights).sum(dtype=np.float64) * num_draws
    counts = np.zeros(len(weights))
    for epoch in range(1, 21):
        counts += counts_of(engine)
        assert counts.sum() == epoch * num_draws
        # 1, plus a shift: half a ticket where few windows cannot balance their phases.
        assert np.abs(counts - epoch * expected).max() <= 1.5


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 80), st.integers(0, 1000), st.booleans())
def test_counts_follow_weights_that_keep_changing(size, seed, sparse):
    rng = np.random.default_rng(seed)
    weights = float32(rng.gamma(2, 1, size) + 0.05)
    engine = Tickets(weights, num_draws=4 * size, seed=seed)
    counts, expected = np.zeros(size), np.zeros(size)
    for _ in range(24):
        ids = engine.next_block(size)
        counts += np.bincount(ids, minlength=size)
        expected += len(ids) * weights / weights.sum(dtype=np.float64)
        changed = rng.choice(size, max(1, size // 10), replace=False) if sparse else np.arange(size)
        weights = weights.copy()
        weights[changed] = rng.gamma(2, 1, len(changed)) + 0.05
        if sparse:
            engine.update_weights(changed, weights[changed])
        else:
            engine.set_weights(weights)
    assert counts.sum() == expected.sum().round()
    # Draws that happened cannot be undone, so a window whose weight fell may be ahead by what it drew early.
    assert np.abs(counts - expected).max() < 6
    assert size < 20 or (counts - expected).std() < 1.3


def test_order_within_an_epoch_has_no_position_bias():
    # 64 windows, 400 epochs: the mean position of each window is 31.5 with standard deviation 18.5 / 20 = 0.92.
    engine = Tickets(np.ones(64, np.float32), num_draws=64, seed=4)
    positions = np.array([np.argsort(draw_epoch(engine, 16)) for _ in range(400)])
    assert np.abs(positions.mean(0) - 31.5).max() < 4.5 * 0.92


@pytest.mark.parametrize("engine_type", [Tickets, Multinomial])
def test_draws_depend_on_seed_epoch_and_block_alone(engine_type):
    weights = float32(np.random.default_rng(0).random(500))
    one, two, other = (engine_type(weights, num_draws=300, seed=s) for s in (5, 5, 6))
    a, b, c = draw_epoch(one), draw_epoch(two), draw_epoch(other)
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()
    assert (draw_epoch(one) != a).any()


@pytest.mark.parametrize("engine_type", [Tickets, Multinomial])
def test_state_goes_on_bit_for_bit_after_changes(engine_type):
    weights = float32(np.random.default_rng(0).random(200))
    one = engine_type(weights, num_draws=150, seed=5)
    one.next_block(40)
    one.update_weights(np.array([3, 190]), float32([9, 0]))
    one.next_block(40)
    two = engine_type(np.ones(200, np.float32), num_draws=150, seed=5)
    two.load_state_dict(one.state_dict())
    for _ in range(8):
        np.testing.assert_array_equal(one.next_block(40), two.next_block(40))


def test_multinomial_draws_have_the_binomial_spread():
    weights = float32([1, 2, 3, 4, 0])
    engine = Multinomial(weights, num_draws=100_000, seed=0)
    counts = counts_of(engine, 8192)
    p = weights / weights.sum()
    assert counts[4] == 0
    # 4.5 binomial standard deviations
    assert (np.abs(counts - 1e5 * p) <= 4.5 * np.sqrt(1e5 * p * (1 - p))).all()


def test_heavy_weight_at_the_very_end_is_found():
    weights = np.full(300_000, 1e-6, np.float32)
    weights[-1] = 1e6
    assert (Tickets(weights, num_draws=100, seed=0).next_block(100) == 299_999).all()
    assert (Multinomial(weights, num_draws=100, seed=0).next_block(100) == 299_999).all()


@pytest.mark.parametrize("engine_type", [Tickets, Multinomial])
def test_weights_are_summed_in_float64(engine_type):
    weights = np.full(200_000, 0.1, np.float32)
    weights[0] = 1e6
    engine = engine_type(weights, num_draws=10, seed=0)
    # In float32 the sum would be off by about 1e-8 of itself at every addition.
    assert engine.total_weight == pytest.approx(1e6 + 199_999 * float(np.float32(0.1)), rel=1e-13)


@pytest.mark.parametrize("sparse", [False, True])
def test_changes_that_move_the_total_leave_no_count_to_chance(sparse):
    # Sixteen of 64 windows become eight times as heavy early in the epoch: the others' claims shrink to a third.
    for seed in range(20):
        engine = Tickets(np.ones(64, np.float32), num_draws=64 * 40, seed=seed)
        counts = np.bincount(engine.next_block(320), minlength=64)
        weights = np.ones(64, np.float32)
        weights[:16] = 8
        if sparse:
            engine.update_weights(np.arange(16), weights[:16])
        else:
            engine.set_weights(weights)
        expected = 5 + 64 * 35 * weights / weights.sum()
        while engine.drawn < engine.num_draws:
            counts += np.bincount(engine.next_block(64), minlength=64)
        # A block is drawn at random from the tickets, so the first adds its own spread; the rest is exact.
        assert np.abs(counts - expected).max() < 3.5


def test_few_tickets_too_many_are_let_pass_where_windows_are_many(monkeypatch):
    monkeypatch.setattr("adaptive_sampling.sampling.tickets._LONG", 1000)
    engine = Tickets(np.ones(1000, np.float32), num_draws=1000, seed=0)
    engine.next_block(100)
    issues = []
    monkeypatch.setattr(engine, "issue", lambda: issues.append(engine.drawn))
    engine.update_weights(np.arange(5), np.full(5, 2, np.float32))
    engine.next_block(100)
    assert not issues
    engine.update_weights(np.arange(30), np.full(30, 4, np.float32))
    engine.next_block(100)
    assert issues == [200]


def test_the_running_sum_of_weights_follows_changes_and_survives_cancellation():
    rng = np.random.default_rng(0)
    weights = rng.gamma(0.5, size=500).astype(np.float32)
    weights[7] = 1e30
    engine = Tickets(weights, num_draws=1000, seed=0)
    engine.update_weights(np.array([7]), float32([0.5]))
    for _ in range(200):
        ids = rng.choice(500, 20, replace=False)
        engine.update_weights(ids, rng.gamma(0.5, size=20).astype(np.float32))
        assert engine.total_weight == pytest.approx(engine.weights.sum(dtype=np.float64), rel=1e-12)


@pytest.mark.parametrize(
    ("size", "num_draws", "before", "after"),
    [(100, 10**6, 1, 1e6), (1000, 1000, 1, 1e10), (1000, 10**5, 1, 1e8), (4, 4000, 1, 1e7), (1000, 5000, 1e-8, 100.0)],
)
def test_a_window_that_becomes_heavier_than_all_others_is_drawn_as_often_as_that(size, num_draws, before, after):
    engine = Tickets(np.full(size, before, np.float32), num_draws=num_draws, seed=0)
    engine.next_block(num_draws // 100)
    heavy = np.array([size - 1])
    engine.update_weights(heavy, np.array([after], np.float32))
    share = after / (after + before * (size - 1))
    drawn = np.count_nonzero(engine.next_block(num_draws // 2) == heavy)
    assert drawn == pytest.approx(share * (num_draws // 2), abs=3 * np.sqrt(num_draws * share * (1 - share)) + 2)
    # Nor is it held back once it is light again.
    engine.set_weights(np.ones(size, np.float32))
    engine.start_epoch(1)
    counts = sum(np.bincount(engine.next_block(num_draws), minlength=size) for _ in range(4))
    assert counts[heavy[0]] == pytest.approx(4 * num_draws / size, abs=2.5)
