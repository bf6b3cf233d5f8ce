"""The smallest and oddest sizes, bad input by every door, and memory."""

import copy
import pickle
import tracemalloc

import numpy as np
import pytest

from adaptive_sampling import AdaptiveSampler

both_kinds = pytest.mark.parametrize("draws", ["systematic", "multinomial"])


@both_kinds
@pytest.mark.parametrize("num_draws", [1, 2, 10_000])
def test_a_single_window_is_drawn_always(draws, num_draws):
    sampler = AdaptiveSampler(1, num_draws=num_draws, draws=draws, seed=0)
    assert list(sampler) == [0] * num_draws
    sampler.set_weights([1e-30])
    sampler.update_weights([0], [3e38])
    assert not sampler.draw(num_draws + 5).any()
    resumed = AdaptiveSampler(1, num_draws=num_draws, draws=draws)
    resumed.load_state_dict(sampler.state_dict())
    assert list(resumed) == [0] * len(list(sampler))
    with pytest.raises(ValueError, match="all weights zero"):
        sampler.update_weights([0], [0])
    assert sampler.weights.tolist() == [np.float32(3e38)]


@pytest.mark.parametrize("num_draws", [1, 2, 3, 20_000])
def test_two_windows_get_what_they_claim_to_within_one(num_draws):
    sampler = AdaptiveSampler(2, num_draws=num_draws, seed=1)
    sampler.set_weights([1, 3])
    counts = np.zeros(2)
    for epoch in range(1, 9):
        counts += np.bincount(list(sampler), minlength=2)
        # 1 plus the shift, which with two phases may be nearly another one.
        assert np.abs(counts - epoch * num_draws * np.array([0.25, 0.75])).max() < 2
    sampler.update_weights([1], [0])
    assert not sampler.draw(num_draws + 3)[num_draws:].any()


def test_draws_far_above_the_number_of_windows_are_exact_in_every_epoch():
    weights = np.arange(1, 11)
    sampler = AdaptiveSampler(10, num_draws=100_000, block_size=8192, seed=2)
    sampler.set_weights(weights)
    expected = np.zeros(10)
    counts = np.zeros(10)
    for _ in range(5):
        counts += np.bincount(sampler.draw(100_000), minlength=10)
        expected += weights / 55 * 100_000
        assert np.abs(counts - expected).max() < 2


@pytest.mark.parametrize("num_draws", [1, 7, 9_999])
def test_draws_below_the_number_of_windows_visit_all_before_any_comes_again(num_draws):
    size = 10_000
    sampler = AdaptiveSampler(size, num_draws=num_draws, seed=3)
    counts = np.bincount(sampler.draw(min(20 * num_draws, 3 * size)), minlength=size)
    # Equal claims: nobody is ahead of anybody by more than one draw, and one more for the shift.
    assert counts.max() - counts.min() <= 2
    assert counts.max() <= -(-counts.sum() // size) + 1


@both_kinds
def test_every_second_window_of_weight_zero_is_never_drawn_in_a_million(draws):
    sampler = AdaptiveSampler(100_000, num_draws=10**6, draws=draws, seed=0)
    sampler.set_weights(np.tile([0.0, 1.0], 50_000))
    assert (sampler.draw(10**6) % 2 == 1).all()


@both_kinds
@pytest.mark.parametrize("block_size", [1, 3, 64, 1000])
def test_the_last_window_has_nearly_all_weight_whatever_the_block(draws, block_size):
    weights = np.full(4097, 1e-4)
    weights[-1] = 1e4
    sampler = AdaptiveSampler(4097, draws=draws, block_size=block_size, seed=0)
    sampler.set_weights(weights)
    # Others: 4096e-4 of 1e4, 0.004 in 97 draws.
    assert (sampler.draw(97) == 4096).all()


@both_kinds
@pytest.mark.parametrize(
    ("value", "message"),
    [(np.nan, "nan for window 2"), (np.inf, "inf for window 2"), (-1.0, r"-1.0 for window 2"), (1e39, "window 2")],
)
def test_a_bad_weight_is_refused_by_every_door_naming_the_window(draws, value, message):
    bad = np.array([1.0, 2.0, value, 4.0])
    sampler = AdaptiveSampler(4, draws=draws, seed=0)
    sampler.set_weights([4, 2, 1, 1])
    expected = copy.deepcopy(sampler).draw(20).tolist()
    state = copy.deepcopy(sampler).state_dict()
    with pytest.raises(ValueError, match=message):
        AdaptiveSampler.from_weights(bad, draws=draws)
    with pytest.raises(ValueError, match=message):
        sampler.set_weights(bad)
    with pytest.raises(ValueError, match=message):
        sampler.update_weights([0, 2], bad[[0, 2]])
    with pytest.raises(ValueError, match=message):
        sampler.schedule_weights(100, None, bad)
    engine = state["stream"]["engine"]
    engine["weights"] = engine["weights"].double()
    engine["weights"][2] = value
    with pytest.raises(ValueError, match="window 2"):
        sampler.load_state_dict(state)
    assert sampler.weights.tolist() == [4, 2, 1, 1]
    assert sampler.draw(20).tolist() == expected


@both_kinds
def test_a_state_whose_weights_are_all_zero_or_too_few_is_refused_and_nothing_changes(draws):
    sampler = AdaptiveSampler(4, draws=draws, seed=0)
    expected = copy.deepcopy(sampler).draw(20).tolist()
    for damage in ("zero", "short"):
        state = AdaptiveSampler(4, draws=draws, seed=7).state_dict()
        engine = state["stream"]["engine"]
        engine["weights"] = engine["weights"] * 0 if damage == "zero" else engine["weights"][:3]
        with pytest.raises(ValueError, match=r"zero|length 4, got 3"):
            sampler.load_state_dict(state)
    assert sampler.draw(20).tolist() == expected


@both_kinds
def test_a_sampler_can_be_pickled_and_copied_in_mid_epoch(draws):
    sampler = AdaptiveSampler(30, draws=draws, block_size=7, seed=0)
    sampler.draw(10)
    sampler.update_weights([3], [9])
    copies = [pickle.loads(pickle.dumps(sampler)), copy.deepcopy(sampler)]
    expected = sampler.draw(60).tolist()
    assert [one.draw(60).tolist() for one in copies] == [expected, expected]


def test_memory_is_at_most_13_bytes_per_window_and_an_epoch_needs_no_list():
    size = 2_000_000
    weights = np.random.default_rng(0).random(size).astype(np.float32)
    tracemalloc.start()
    sampler = AdaptiveSampler.from_weights(weights, seed=0)
    iterator = iter(sampler)
    next(iterator)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    for _ in range(30_000):
        next(iterator)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert held / size < 13
    # A block of 8,192: its ids, its tickets' places, and a list of Python integers. Not 2 million of anything.
    assert peak - held < 6e6
