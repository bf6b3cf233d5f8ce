import pickle
import shutil

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import adaptive_sampling as ads
from adaptive_sampling import AdaptiveSampler, StateMismatchError


class Range(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.tensor(index)


def flat(loader):
    return [int(i) for batch in loader for i in batch]


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_epochs_are_permutations_and_differ(workers):
    data = Range(50)
    loader = DataLoader(data, batch_size=8, sampler=AdaptiveSampler(data, seed=0), num_workers=workers)
    first, second = flat(loader), flat(loader)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert len(loader) == 7


def test_draw_and_iteration_consume_one_stream():
    one, two = AdaptiveSampler(20, seed=1), AdaptiveSampler(20, seed=1)
    expected = one.draw(50).tolist()
    got = [*two.draw(5).tolist(), *two, *two, *two.draw(5).tolist()]
    assert got == expected[: len(got)]


@pytest.mark.parametrize(("world", "num_draws"), [(2, 20), (3, 20), (4, 21)])
def test_ranks_take_disjoint_shares_of_one_order(world, num_draws):
    whole = AdaptiveSampler(20, num_draws=num_draws, seed=1).draw(2 * num_draws)
    samplers = [AdaptiveSampler(20, num_draws=num_draws, seed=1, rank=r, world_size=world) for r in range(world)]
    per_rank = num_draws // world
    epochs = [np.array([list(sampler) for sampler in samplers]) for _ in range(2)]
    got = np.concatenate([epoch.T.ravel() for epoch in epochs])
    assert epochs[0].shape == (world, per_rank)
    # The remainder of an epoch opens the next one.
    np.testing.assert_array_equal(got, whole[: len(got)])


def test_iter_has_no_effect_before_next_and_silences_older_iterators():
    sampler = AdaptiveSampler(6, seed=0)
    reference = AdaptiveSampler(6, seed=0).draw(12).tolist()
    older = iter(sampler)
    iter(sampler)
    assert next(older) == reference[0]
    newer = iter(sampler)
    assert next(older) == reference[1]
    assert next(newer) == reference[2]
    assert list(older) == []
    assert list(newer) == reference[3:6]
    assert list(sampler) == reference[6:12]


def test_set_epoch_jumps_ahead_and_never_rewinds():
    sampler = AdaptiveSampler(10, seed=0)
    first = list(sampler)
    sampler.set_epoch(0)
    sampler.set_epoch(1)
    assert sampler.epoch == 0
    second = list(sampler)
    assert sampler.epoch == 1
    assert first + second == AdaptiveSampler(10, seed=0).draw(20).tolist()
    sampler.set_epoch(5)
    fifth = list(sampler)
    assert sampler.epoch == 5
    assert sorted(fifth) == list(range(10))
    other = AdaptiveSampler(10, seed=0)
    other.set_epoch(5)
    assert sorted(other) == list(range(10))


def test_weights_set_between_blocks_count_from_the_next_block():
    sampler = AdaptiveSampler(100, num_draws=100, block_size=10, seed=0)
    sampler.draw(5)
    heavy = np.zeros(100)
    heavy[7] = 1
    drawn_already = AdaptiveSampler(100, num_draws=100, block_size=10, seed=0).draw(10)[5:]
    sampler.set_weights(heavy)
    ids = sampler.draw(15)
    np.testing.assert_array_equal(ids[:5], drawn_already)
    assert (ids[5:] == 7).all()


def test_scheduled_weights_count_from_the_first_block_behind_their_position():
    sampler = AdaptiveSampler(100, num_draws=100, block_size=10, seed=0)
    sampler.draw(1)
    sampler.schedule_weights(25, np.arange(100), (np.arange(100) == 7).astype(float))
    assert sampler.weights[7] == 1
    assert sampler.weights[8] == 0
    ids = np.concatenate([[-1], sampler.draw(49)])
    assert (ids[30:] == 7).all()
    assert (ids[:30] != 7).sum() >= 28


def test_scheduled_weights_that_come_too_late_are_an_error():
    sampler = AdaptiveSampler(100, block_size=10, seed=0)
    sampler.draw(35)
    with pytest.raises(RuntimeError, match=r"position 30 come too late: a block was drawn at 30.*lag"):
        sampler.schedule_weights(30, None, np.ones(100))
    sampler.schedule_weights(31, None, np.ones(100))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([1, float("nan"), 1, 1], r"got nan for window 1"),
        ([1, 1, float("inf"), 1], r"inf.*window 2"),
        ([1, 1, 1, 1e39], r"1e\+39.*window 3"),
        ([-1, 1, 1, 1], r"-1.*window 0"),
        ([0, 0, 0, 0], "all be zero"),
        ([1e-50, 0, 0, 0], "all be zero in float32"),
        ([[1], [1, 2], [3], [4]], "rows of different lengths"),
        (None, "got None of shape"),
        (object.__new__(type("A" * 100, (), {})), "got A+ of shape"),
        (torch.ones(4).to_sparse(), "must be dense"),
        ([1, 1, 1], "length 4, got 3"),
        ([], "length 4, got 0"),
        ([[1, 1, 1, 1]], r"shape \(1, 4\)"),
        (["a", "b", "c", "d"], "dtype <U1"),
        ([1j, 1, 1, 1], "dtype complex128"),
        (torch.ones(4, device="meta"), "on meta"),
    ],
)
def test_bad_weights_are_refused_and_the_old_ones_stay(bad, message):
    sampler = AdaptiveSampler(4, seed=0)
    sampler.set_weights([4, 2, 1, 1])
    with pytest.raises((ValueError, TypeError), match=message):
        sampler.set_weights(bad)
    assert sampler.weights.tolist() == [4, 2, 1, 1]
    assert np.bincount(sampler.draw(8)).tolist() == [4, 2, 1, 1]


@pytest.mark.parametrize(
    ("ids", "values", "message"),
    [
        ([4], [1], r"\[0, 4\), got 4"),
        ([-1], [1], "got -1"),
        ([0.5], [1], "dtype float64"),
        ([10**20], [1], r"\[0, 4\), got 100000000000000000000"),
        ([1, -(10**20)], [1, 1], "got -100000000000000000000 at position 1"),
        ([None], [1], "dtype object, first None"),
        (2, [1], "got 2 of shape"),
        ([1, 1], [1, 2], "1 more than once"),
        ([2], [float("nan")], "nan.*window 2"),
        ([2, 3], [1], "length 2, got 1"),
        ([0, 1, 2, 3], [0, 0, 0, 0], "all weights zero"),
    ],
)
def test_bad_updates_are_refused_and_the_old_weights_stay(ids, values, message):
    sampler = AdaptiveSampler(4, seed=0)
    with pytest.raises((ValueError, TypeError), match=message):
        sampler.update_weights(ids, values)
    assert sampler.weights.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_weights_may_be_tensors_of_any_real_dtype_and_strided_views(dtype):
    sampler = AdaptiveSampler(4)
    sampler.set_weights(torch.tensor([4, 9, 2, 9, 1, 9, 1, 9], dtype=dtype)[::2])
    assert sampler.weights.tolist() == [4, 2, 1, 1]
    assert not sampler.weights.flags.writeable


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "at least 1, got 0"),
        ((-3,), "got -3"),
        ((True,), "True"),
        (([],), "at least one window"),
        (("abc",), "a dataset with a length, got str"),
        ((torch.rand(5),), r"For weights, write AdaptiveSampler\.from_weights"),
        ((np.ones(5),), r"For weights, write AdaptiveSampler\.from_weights"),
        (([0.5, 1.0],), r"For weights, write AdaptiveSampler\.from_weights"),
        ((1.5,), "float"),
    ],
)
def test_bad_sizes_are_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        AdaptiveSampler(*arguments)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_draws": 0}, "`num_draws`.*got 0"),
        ({"num_draws": 2.0}, "`num_draws`.*2.0"),
        ({"draws": "alias"}, "`draws`.*'alias'"),
        ({"block_size": 0}, "`block_size`.*got 0"),
        ({"seed": -1}, "`seed`.*got -1"),
        ({"rank": 0}, "together"),
        ({"rank": 2, "world_size": 2}, "below world_size 2, got 2"),
        ({"rank": 0, "world_size": 9}, "at least world_size 9, got 4"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        AdaptiveSampler(4, **settings)


def test_global_random_states_are_untouched_and_seed_the_default():
    torch.manual_seed(11)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    one = list(AdaptiveSampler(100))
    assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_array_equal(numpy_before, np.random.get_state()[1])  # noqa: NPY002
    assert one == list(AdaptiveSampler(100))
    torch.manual_seed(12)
    assert one != list(AdaptiveSampler(100))


@pytest.mark.parametrize("draws", ["systematic", "multinomial"])
@pytest.mark.parametrize("stop", [0, 1, 9, 10, 11, 20])
def test_state_resumes_the_order_at_any_point(draws, stop):
    def make():
        return AdaptiveSampler(10, draws=draws, block_size=4, seed=3)

    unbroken = make()
    unbroken.update_weights([3], [5])
    expected = unbroken.draw(40)
    first = make()
    first.update_weights([3], [5])
    head = first.draw(stop)
    state = pickle.loads(pickle.dumps(first.state_dict()))
    second = make()
    second.load_state_dict(state)
    np.testing.assert_array_equal(np.concatenate([head, second.draw(40 - stop)]), expected)


def test_state_holds_tensors_and_primitives_only(tmp_path):
    sampler = AdaptiveSampler(10, seed=0)
    sampler.draw(3)
    sampler.schedule_weights(50, [1], [2])
    torch.save(sampler.state_dict(), tmp_path / "state.pt")
    loaded = AdaptiveSampler(10)
    loaded.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    np.testing.assert_array_equal(loaded.draw(60), sampler.draw(60))


def test_state_is_translated_to_another_world_size():
    two = [AdaptiveSampler(24, seed=0, rank=r, world_size=2) for r in range(2)]
    iterators = [iter(s) for s in two]
    head = [next(it) for _ in range(3) for it in iterators]
    tail = []
    three = [AdaptiveSampler(24, rank=r, world_size=3) for r in range(3)]
    for sampler in three:
        sampler.load_state_dict(two[0].state_dict())
        tail.append(list(sampler))
    got = head + np.array(tail).T.ravel().tolist()
    assert got == AdaptiveSampler(24, seed=0).draw(24).tolist()
    assert len(three[0]) == 8


def test_settings_that_a_state_overrules_are_named():
    state = AdaptiveSampler(10, seed=0, block_size=2).state_dict()
    other = AdaptiveSampler(10, seed=7, block_size=2)
    other.lag = 5
    with pytest.warns(UserWarning, match=r"goes on with \{'seed': 0, 'lag': 32\} .* made with \{'seed': 7, 'lag': 5\}"):
        other.load_state_dict(state)
    assert other.draw(10).tolist() == AdaptiveSampler(10, seed=0, block_size=2).draw(10).tolist()
    AdaptiveSampler(10).load_state_dict(state)  # nothing was asked for


def test_a_state_of_other_windows_is_refused(tmp_path):
    def windows(name, token, seq_len):
        store = ads.TokenStore.write(tmp_path / name, [[token] * (10 * seq_len + 1)], vocab_size=9, eos_id=0)
        return ads.WindowDataset(store, ads.WindowConfig(seq_len, pack="concat"))

    one, tokens, settings = windows("one", 1, 4), windows("tokens", 2, 4), windows("settings", 1, 8)
    copied = ads.WindowDataset(ads.TokenStore.open(shutil.copytree(tmp_path / "one", tmp_path / "copy")), one.config)
    state = AdaptiveSampler(one, seed=0).state_dict()
    assert {len(one), len(tokens), len(settings)} == {len(one)}
    for other in (tokens, settings):
        sampler = AdaptiveSampler(other, seed=0)
        order = AdaptiveSampler(other, seed=0).draw(8).tolist()
        with pytest.raises(StateMismatchError, match=r"of store .*WindowConfig.*of store .*without its state"):
            sampler.load_state_dict(state)
        assert sampler.draw(8).tolist() == order
    AdaptiveSampler(copied, seed=0).load_state_dict(state)
    AdaptiveSampler(len(one), seed=0).load_state_dict(state)  # knows nothing of its windows


def test_state_of_another_sampler_is_refused_with_both_values():
    state = AdaptiveSampler(10, seed=0).state_dict()
    with pytest.raises(StateMismatchError, match=r"num_windows 10, this sampler has 11"):
        AdaptiveSampler(11).load_state_dict(state)
    with pytest.raises(StateMismatchError, match=r"draws 'systematic', this sampler has 'multinomial'"):
        AdaptiveSampler(10, draws="multinomial").load_state_dict(state)
    with pytest.raises(StateMismatchError, match="keys"):
        AdaptiveSampler(10).load_state_dict({"other": 1})


def without(state, *path):
    """A copy of nested mappings without the entry at `path`."""
    return {
        key: without(value, *path[1:]) if key == path[0] else value for key, value in state.items() if path != (key,)
    }


def entries(state):
    """Paths to all entries of nested mappings."""
    return [
        (key, *rest) for key, value in state.items() for rest in [(), *(entries(value) if type(value) is dict else [])]
    ]


SHARED = {"source_shares": {0: 1, 1: 2}, "sources": [0, 1] * 5}


@pytest.mark.parametrize("settings", [{}, {"draws": "multinomial"}, SHARED])
@pytest.mark.parametrize("drawn", [0, 7])
def test_a_state_that_lacks_an_entry_is_refused_and_nothing_changes(settings, drawn):
    saved = AdaptiveSampler(10, seed=1, **settings)
    saved.draw(drawn)
    saved.schedule_weights(100, [1], [3.0])
    state = saved.state_dict()
    expected = AdaptiveSampler(10, seed=0, **settings).draw(25).tolist()
    optional = {("stream", "seen"), ("stream", "source_shares"), ("stream", "source_windows")}
    if not settings.get("source_shares"):
        optional.add(("stream", "shares_now"))
    for path in entries(state):
        if path in optional:
            continue
        sampler = AdaptiveSampler(10, seed=0, **settings)
        got = sampler.draw(5).tolist()
        with pytest.raises(StateMismatchError, match=str(path[-1])):
            sampler.load_state_dict(without(state, *path))
        assert [*got, *sampler.draw(20).tolist()] == expected


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("balance", torch.full((10,), float("nan")), "`balance` must be finite.*got nan"),
        ("tickets", torch.full((10,), -1, dtype=torch.int32), "`tickets`.*got -1"),
        ("tickets", torch.zeros(9, dtype=torch.int32), "`tickets` must be of length 10, got 9"),
        ("weights", torch.zeros(10, dtype=torch.int64), "`weights` must be a tensor"),
        ("drawn", 2.5, "`drawn` must be an integer of at least 0, got 2.5"),
        ("block", True, "`block` must be an integer"),
        ("threshold", float("inf"), "`threshold` must be a finite number, got inf"),
    ],
)
def test_a_damaged_state_is_refused_naming_the_entry(name, value, message):
    saved = AdaptiveSampler(10, seed=1)
    saved.draw(7)
    state = saved.state_dict()
    state["stream"]["engine"][name] = value
    sampler = AdaptiveSampler(10, seed=0)
    before = sampler.draw(5).tolist()
    with pytest.raises(StateMismatchError, match=message):
        sampler.load_state_dict(state)
    assert [*before, *sampler.draw(5).tolist()] == AdaptiveSampler(10, seed=0).draw(10).tolist()


@pytest.mark.parametrize("state", [None, 5, [], {"managed": False}, {"stream": None}])
def test_what_is_no_state_is_refused(state):
    with pytest.raises(StateMismatchError, match="saved"):
        AdaptiveSampler(10).load_state_dict(state)


def test_set_epoch_refuses_numbers_that_no_position_follows():
    sampler = AdaptiveSampler(10, num_draws=2**31 - 1, seed=0)
    with pytest.raises(ValueError, match=r"`epoch` must be below 2\^32, got 4294967296"):
        sampler.set_epoch(2**32)
    assert sampler.epoch == 0


@pytest.mark.parametrize("settings", [{}, {"draws": "multinomial"}, SHARED])
def test_weights_scheduled_for_a_place_that_a_jump_passed_over_count_from_the_next_block(settings):
    sampler = AdaptiveSampler(10, seed=0, block_size=2, **settings)
    sampler.draw(1)
    sampler.set_epoch(2)
    weights = np.zeros(10)
    weights[[3, 4]] = 1
    sampler.schedule_weights(5, None, weights)
    resumed = AdaptiveSampler(10, **settings)
    resumed.load_state_dict(sampler.state_dict())
    got = sampler.draw(30).tolist()
    assert set(got) == {3, 4}
    assert resumed.draw(30).tolist() == got


def test_from_weights_takes_what_set_weights_takes_and_names_what_it_does_not():
    assert AdaptiveSampler.from_weights(torch.tensor([1.0, 2.0])).weights.tolist() == [1, 2]
    for bad in (None, (w for w in (1.0, 2.0)), 3):
        with pytest.raises(ValueError, match="`weights` must be one-dimensional, got"):
            AdaptiveSampler.from_weights(bad)


def test_managed_sampler_hands_out_again_what_was_not_trained_on():
    sampler = AdaptiveSampler(12, seed=0, block_size=4)
    sampler.manage()
    assert sampler.state_dict() == {"managed": True}
    order = AdaptiveSampler(12, seed=0, block_size=4).draw(24).tolist()
    iterator = iter(sampler)
    assert [next(iterator) for _ in range(8)] == order[:8]
    sampler.consume(3)
    resumed = AdaptiveSampler(12)
    resumed.manage()
    resumed.load_full_state(sampler.full_state())
    assert list(resumed) == order[3:12]
    assert list(iterator) == order[8:12]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_loop_of_ones_own_goes_on_exactly_with_workers(workers, drop_last):
    def trained(sampler, *, workers, count, stop=None):
        loader = DataLoader(Range(50), batch_size=8, sampler=sampler, num_workers=workers, drop_last=drop_last)
        ids = []
        sampler.manage()
        while len(ids) < count:
            for batch in loader:
                ids.append(batch.tolist())
                sampler.consume(len(batch))
                if len(ids) == stop:
                    return ids, sampler.full_state()
            sampler.finish_epoch()
        return ids, None

    length = 6 if drop_last else 7
    unbroken, _ = trained(AdaptiveSampler(50, seed=0), workers=0, count=3 * length)
    assert len(unbroken) == 3 * length
    assert len({window for batch in unbroken[:7] for window in batch}) >= 48
    for stop in (1, length, length + 2):
        first, state = trained(AdaptiveSampler(50, seed=0), workers=workers, count=3 * length, stop=stop)
        resumed = AdaptiveSampler(50)
        resumed.load_full_state(state)
        rest, _ = trained(resumed, workers=2 - workers, count=3 * length - stop)
        assert first + rest == unbroken


def test_finish_epoch_loses_no_draw():
    sampler = AdaptiveSampler(12, seed=0)
    sampler.manage()
    order = AdaptiveSampler(12, seed=0).draw(36).tolist()
    assert list(sampler) == order[:12]
    sampler.consume(5)
    sampler.finish_epoch()
    assert list(sampler) == order[5:17]
    assert sampler.epoch == 1


def test_consume_more_than_was_drawn_is_an_error():
    sampler = AdaptiveSampler(12, seed=0, block_size=4)
    sampler.manage()
    next(iter(sampler))
    with pytest.raises(RuntimeError, match="6 windows were trained on, but only 4 were drawn"):
        sampler.consume(6)


def test_share_seen_counts_windows_consumed():
    sampler = AdaptiveSampler(10, seed=0)
    assert np.isnan(sampler.share_seen)
    sampler.track_seen()
    sampler.draw(4)
    assert sampler.share_seen == 0.4
    sampler.draw(16)
    assert sampler.share_seen == 1.0


def test_share_seen_is_that_of_a_set_and_goes_on_from_a_state():
    sampler = AdaptiveSampler(50, seed=0, draws="multinomial", block_size=7)
    sampler.track_seen()
    seen = set()
    for number in (1, 3, 0, 40, 7, 60, 300):
        state = sampler.full_state()
        sampler = AdaptiveSampler(50, draws="multinomial")
        sampler.load_full_state(state)
        seen |= set(sampler.draw(number).tolist())
        assert sampler.share_seen == len(seen) / 50


def test_more_windows_than_2_to_24_are_drawn():
    size = 2**24 + 3
    sampler = AdaptiveSampler(size, seed=0)
    ids = sampler.draw(20_000)
    assert ids.max() < size
    # P(no id above 2^24 - 10^6) is (1 - 0.06)^20000, nil.
    assert ids.max() > 2**24 - 10**6
    weights = np.zeros(size, np.float32)
    weights[-1] = 1
    sampler.set_weights(weights)
    sampler.draw(8192)
    assert (sampler.draw(10) == size - 1).all()


def test_probabilities_sum_to_one_and_follow_the_weights():
    sampler = AdaptiveSampler(4, seed=0)
    sampler.set_weights([4, 2, 1, 1])
    assert sampler.probabilities().tolist() == [0.5, 0.25, 0.125, 0.125]
    assert sampler.probabilities([1, 3]).tolist() == [0.25, 0.125]


def test_default_device_does_not_matter():
    with torch.device("meta"):
        assert sorted(AdaptiveSampler(5, seed=0)) == [0, 1, 2, 3, 4]


def test_from_weights_takes_the_place_of_a_weighted_random_sampler():
    sampler = AdaptiveSampler.from_weights(torch.tensor([0.0, 3.0, 1.0]), num_draws=8, seed=0)
    assert np.bincount(list(sampler), minlength=3).tolist() == [0, 6, 2]
    with pytest.raises(ValueError, match="at least 1, got 0"):
        AdaptiveSampler.from_weights([])


def test_the_callers_array_is_not_kept():
    weights = np.ones(4, np.float32)
    sampler = AdaptiveSampler.from_weights(weights, seed=0)
    weights[:] = 0
    assert sampler.weights.tolist() == [1, 1, 1, 1]


def test_scheduled_weights_count_from_a_block_that_starts_exactly_at_their_position():
    sampler = AdaptiveSampler(100, num_draws=100, block_size=10, seed=0)
    sampler.draw(10)
    sampler.schedule_weights(30, None, (np.arange(100) == 7).astype(float))
    ids = sampler.draw(40)
    assert (ids[20:] == 7).all()
    assert (ids[:20] != 7).sum() >= 18


def test_shared_memory_changes_nothing_on_one_process():
    shared, own = (AdaptiveSampler(50, seed=0, shared_memory=value) for value in (True, False))
    for sampler in (shared, own):
        sampler.update_weights([3], [9.0])
    assert shared.draw(120).tolist() == own.draw(120).tolist()
    assert shared.state_dict()["epoch"] == 2


def test_shared_memory_of_ranks_that_nothing_connects_is_a_warning_and_no_more():
    sampler = AdaptiveSampler(50, seed=0, rank=1, world_size=2, shared_memory=True)
    with pytest.warns(UserWarning, match="no effect: torch.distributed does not connect"):
        ids = list(sampler)
    assert ids == list(AdaptiveSampler(50, seed=0, rank=1, world_size=2))


def test_shared_memory_and_source_shares_exclude_each_other():
    with pytest.raises(ValueError, match="`shared_memory` does not go with `source_shares`"):
        AdaptiveSampler(4, sources=[0, 0, 1, 1], source_shares={0: 1, 1: 1}, shared_memory=True)


@pytest.mark.parametrize("count", [2**31 + 1, 2**40])
def test_more_ids_than_memory_holds_are_refused_before_anything_is_drawn(count):
    sampler = AdaptiveSampler(10, seed=0)
    with pytest.raises(ValueError, match=f"`n` must be at most 2\\^31, got {count}"):
        sampler.draw(count)
    assert sampler.draw(4).tolist() == AdaptiveSampler(10, seed=0).draw(4).tolist()


@pytest.mark.parametrize("lag", [-1, "a", 1.5, None])
def test_a_lag_that_is_no_number_of_steps_is_refused_where_it_is_set(lag):
    sampler = AdaptiveSampler(10, seed=0)
    with pytest.raises((ValueError, TypeError), match="`lag` must be"):
        sampler.lag = lag
    assert sampler.lag == 32
