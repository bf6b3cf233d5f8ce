"""Where draws fall, and in which order: large N, weights of very different size, positions within an epoch.

Tolerances are 4.5 standard deviations, so a sound engine fails one such check in about 150,000 seeds; seeds are fixed.
"""

import numpy as np
import pytest

from adaptive_sampling.sampling import Multinomial, Tickets

SIGMAS = 4.5
MILLION = 10**6


def counts_of(engine, num_draws):
    ids = np.concatenate([engine.next_block(8192) for _ in range(-(-num_draws // 8192))])
    return np.bincount(ids, minlength=engine.num_windows)


def chi_square_limit(freedom):
    """Mean and standard deviation of chi-square are `freedom` and sqrt(2 freedom)."""
    return freedom + SIGMAS * np.sqrt(2 * freedom)


def weights_over_eight_orders(size):
    """Log-uniform from 1e-6 to 1e2, float32, in random places."""
    return np.exp(np.random.default_rng(0).uniform(np.log(1e-6), np.log(1e2), size)).astype(np.float32)


def cells_of(weights):
    """Cell per window: 8 decades of weight times 8 stretches of ids; both show sums that lost small weights."""
    decade = np.clip(np.floor(np.log10(weights)) + 6, 0, 7).astype(np.int64)
    return decade * 8 + np.arange(len(weights)) * 8 // len(weights)


@pytest.mark.parametrize(
    "num_draws", [MILLION // 2, pytest.param(8 * MILLION, marks=pytest.mark.soak)], ids=["half-a-million", "an-epoch"]
)
def test_eight_million_windows_over_eight_orders_are_drawn_by_weight(num_draws):
    size = 8 * MILLION
    weights = weights_over_eight_orders(size)
    cells = cells_of(weights)
    claims = weights * (num_draws / weights.sum(dtype=np.float64))
    engine = Tickets(weights, num_draws=num_draws, seed=0)
    counts = counts_of(engine, num_draws)
    assert counts.sum() == num_draws
    assert np.abs(counts - claims).max() < 1.01
    expected, got = (np.bincount(cells, values, 64) for values in (claims, counts))
    # A claim's whole part is certain, its fraction f is rounded up with probability f. The shift is a difference of two
    # means of `size` numbers uniform in [0, 1), phases and fractions, and moves as many counts of a cell as it has
    # windows times the shift.
    fraction = claims % 1
    spread = np.sqrt(np.bincount(cells, fraction * (1 - fraction), 64))
    shift = np.sqrt(2 / 12 / size)
    # One draw more: a cell of light windows expects 0.01.
    tolerance = SIGMAS * (spread + shift * np.bincount(cells, minlength=64)) + 1
    assert (np.abs(got - expected) <= tolerance).all()
    assert (tolerance[56:] < 0.02 * expected[56:]).all()


def test_eight_million_windows_over_eight_orders_are_drawn_independently_by_weight():
    weights = weights_over_eight_orders(8 * MILLION)
    num_draws = 300_000
    counts = np.bincount(cells_of(weights), counts_of(Multinomial(weights, num_draws=num_draws, seed=0), num_draws), 64)
    expected = (
        np.bincount(cells_of(weights), weights.astype(np.float64), 64) / weights.sum(dtype=np.float64) * num_draws
    )
    large = expected >= 5
    assert large.sum() >= 24
    assert ((counts - expected) ** 2 / expected)[large].sum() < chi_square_limit(large.sum())
    assert counts[~large].sum() < 5 * (~large).sum()


@pytest.mark.parametrize("engine_type", [Tickets, Multinomial])
def test_heavy_windows_at_the_very_end_past_2_to_24_get_their_share(engine_type):
    # Added up in float32, a sum of ones stops growing at 2^24, and what lies behind is never found.
    size, num_draws = 2**24 + 5, 40_000
    weights = np.ones(size, np.float32)
    weights[-3:] = 2.0**24
    engine = engine_type(weights, num_draws=num_draws, seed=0)
    half = counts_of(engine, 16_384)
    share = 2.0**24 / weights.sum(dtype=np.float64)
    # Binomial; tickets drawn half-way through an epoch spread less.
    spread = np.sqrt(16_384 * share * (1 - share))
    assert (np.abs(half[-3:] - 16_384 * share) < SIGMAS * spread).all()
    assert half[:-3].sum() > 3000
    engine.update_weights(np.arange(size - 3, size - 1), np.zeros(2, np.float32))
    rest = engine.next_block(8192)
    assert not np.isin(rest, [size - 3, size - 2]).any()
    assert (rest == size - 1).sum() > 8192 / 4


# Blocks much smaller than what is left, about as large, and the whole epoch take different ways to distinct tickets.
@pytest.mark.parametrize("block_size", [5, 30, 84])
def test_draws_of_a_heavy_window_are_spread_evenly_over_the_epoch(block_size):
    weights = np.ones(65, np.float32)
    weights[40] = 20
    engine = Tickets(weights, num_draws=84, seed=5)
    epochs = 120
    order = np.concatenate([engine.next_block(block_size) for _ in range(-(-84 // block_size) * epochs)])
    order = order.reshape(epochs, 84)
    counts = (order == 40).reshape(epochs, 12, 7).sum((0, 2))
    assert counts.sum() == pytest.approx(20 * epochs, rel=0.01)
    expected = counts.sum() / 12
    # Tickets are drawn without return, which spreads less than chi-square allows.
    assert ((counts - expected) ** 2 / expected).sum() < chi_square_limit(11)


@pytest.mark.parametrize("block_size", [5, 30, 100])
def test_every_window_falls_anywhere_in_the_epoch_whatever_its_neighbours(block_size):
    size, epochs = 100, 120
    engine = Tickets(np.ones(size, np.float32), num_draws=size, seed=6)
    order = np.concatenate([engine.next_block(block_size) for _ in range(-(-size // block_size) * epochs)])
    places = np.argsort(order.reshape(epochs, size), axis=1)  # [epoch, window] -> position
    # Windows by tenths of the ids, positions by tenths of the epoch.
    table = np.zeros((10, 10))
    np.add.at(table, (np.arange(size)[None, :] // 10, places // 10), 1)
    expected = epochs * 10 / 10
    assert ((table - expected) ** 2 / expected).sum() < chi_square_limit(81)
    # Neighbours: either one first with probability 1/2, side by side with 2/size; 99 pairs per epoch, which depend on
    # each other only through the windows that two pairs share.
    steps = np.diff(places, axis=1)
    trials = steps.size
    assert abs((steps > 0).sum() - trials / 2) < SIGMAS * np.sqrt(trials / 4)
    assert abs((np.abs(steps) == 1).sum() - trials * 2 / size) < SIGMAS * np.sqrt(trials * 2 / size)


@pytest.mark.parametrize("block_size", [7, 1000])
def test_multinomial_draws_depend_neither_on_position_nor_on_the_draw_before(block_size):
    weights = np.float32([1, 2, 3, 4, 0, 6])
    p = weights / weights.sum()
    engine = Multinomial(weights, num_draws=1000, seed=7)
    order = np.concatenate([engine.next_block(block_size) for _ in range(-(-1000 // block_size) * 30)])
    by_place = np.zeros((10, 6))
    np.add.at(by_place, (np.arange(len(order)) % 1000 // 100, order), 1)
    pairs = np.zeros((6, 6))
    np.add.at(pairs, (order[:-1], order[1:]), 1)
    for table, expected, freedom in (
        (by_place, np.outer(np.full(10, len(order) / 10), p), 10 * 4),
        (pairs, np.outer(p, p) * (len(order) - 1), 24),
    ):
        possible = expected > 0
        assert table[~possible].sum() == 0
        assert ((table - expected)[possible] ** 2 / expected[possible]).sum() < chi_square_limit(freedom)
