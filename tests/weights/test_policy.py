import copy
import math

import numpy as np
import pytest
import torch

from adaptive_sampling.weights import WeightPolicy
from adaptive_sampling.weights.transforms import floor_cap

STILL = {"warmup": 0, "cooldown": 0}


def make(num_windows=None, total_steps=..., **settings):
    policy = WeightPolicy(**{**STILL, **settings})
    if num_windows is not None:
        policy.bind(num_windows, total_steps)
    return policy


def test_scores_follow_the_running_mean_by_hand():
    policy = make(4)
    for value, expected in [(4.0, 4.0), (2.0, 3.0), (3.0, 3.0)]:
        policy.update([1], [value])
        assert policy.scores[1] == pytest.approx(expected, rel=1e-6)
    assert policy.visits.tolist() == [0, 3, 0, 0]
    assert policy.scores.dtype == np.float32
    assert np.isnan(policy.scores[[0, 2, 3]]).all()


def test_losses_one_per_cent_apart_stay_so_over_a_thousand_updates():
    policy = make(2)
    for _ in range(1000):
        policy.update([0, 1], np.array([8.0, 8.08], np.float32))
    assert policy.scores[1] / policy.scores[0] == pytest.approx(1.01, rel=1e-5)


def test_repeated_ids_are_averaged_first():
    policy = make(8)
    policy.update([7, 7, 3], [1.0, 3.0, 5.0])
    assert policy.visits[[3, 7]].tolist() == [1, 1]
    assert policy.scores[[3, 7]].tolist() == [5, 2]


def slow_weights(scores, visits, groups, q, r, *, kappa, clip, power, floor, cap, ramp, blend=None):
    """All six steps, window by window; scores of 0 visits do not count."""
    seen = [i for i in range(len(scores)) if visits[i]]
    overall = np.mean([scores[i] for i in seen])
    shrunk = []
    for i in range(len(scores)):
        mates = [scores[j] for j in seen if groups[j] == groups[i]]
        mean = np.mean(mates) if mates and kappa > 0 else overall
        shrunk.append((visits[i] * scores[i] + kappa * mean) / (visits[i] + kappa) if visits[i] else mean)
    low, high = np.quantile([shrunk[i] for i in seen], clip)
    s = np.array([min(max(x, low), high) ** power for x in shrunk])
    s = 1 + ramp * (s / s.mean() - 1)
    v = s * q * r if blend is None else ((1 - blend) * s + blend * q) * r
    return floor_cap(v, floor, cap)


@pytest.mark.parametrize("kappa", [0.0, 2.0])
@pytest.mark.parametrize("blend", [None, 0.3])
def test_a_full_pass_is_the_six_steps_window_by_window(kappa, blend):
    rng = np.random.default_rng(0)
    groups, q, r = rng.integers(0, 6, 200), rng.random(200) + 0.2, rng.random(200) + 0.2
    policy = WeightPolicy(
        groups=groups * 100,
        scarcity=7 * q,
        priors=3 * r,
        shrinkage=kappa,
        power=1.5,
        normalize_every=1,
        warmup=10,
        cooldown=0,
        floor=0.3,
        cap=2.0,
        blend=0.3,
        scarcity_measure="density" if blend is None else "distance",
    )
    q, r = q / q.mean(), r / r.mean()
    values, visits = np.zeros(200), np.zeros(200, int)
    for step in (3, 6):
        ids = rng.choice(np.flatnonzero(groups), 60, replace=False)
        observed = rng.lognormal(1, 0.5, 60)
        values[ids] = np.where(visits[ids] == 0, observed, (values[ids] + observed) / 2)
        visits[ids] += 1
        update = policy.update(ids, observed, step=step)
        expected = slow_weights(
            values, visits, groups, q, r, kappa=kappa, clip=(0.05, 0.9), power=1.5, floor=0.3, cap=2.0,
            ramp=step / 10, blend=blend,
        )  # fmt: skip
        assert update.ids is None
        np.testing.assert_allclose(update.values, expected, rtol=2e-6)
        np.testing.assert_array_equal(update.values, policy.weights)


@pytest.mark.parametrize("level", [0.01, 1.0, 50.0])
@pytest.mark.parametrize("groups", [None, "some"])
def test_unseen_windows_weigh_as_the_seen_ones_whatever_the_level_of_losses(level, groups):
    rng = np.random.default_rng(1)
    policy = make(1000, groups=None if groups is None else rng.integers(0, 30, 1000))
    for _ in range(45):
        ids = rng.integers(0, 500, 32)
        policy.update(ids, level * rng.lognormal(0, 0.5, 32))
    seen = policy.visits > 0
    ratio = policy.weights[~seen] / policy.weights[seen].mean()
    assert ((ratio > 0.3) & (ratio < 3)).all()


@pytest.mark.parametrize("groups", [None, 10, 250])
@pytest.mark.parametrize("visits", [1, 15])
def test_one_outlier_moves_nothing_else_by_more_than_twofold(groups, visits):
    rng = np.random.default_rng(2)
    settings = {"groups": None if groups is None else np.arange(1000) % groups, "normalize_every": 1}
    plain, struck = make(1000, **settings), make(1000, **settings)
    ids = np.arange(0, 1000, 2)
    for _ in range(visits):
        values = np.random.default_rng(3).lognormal(1, 0.4, 500) * rng.normal(1, 0.02, 500)
        plain.update(ids, values)
        struck.update(ids, values)
    plain.update([0], [3.0])
    struck.update([0], [1e6])
    ratio = struck.weights[1:] / plain.weights[1:]
    assert ratio.min() > 0.5
    assert ratio.max() < 2
    assert struck.weights[0] <= 4


def test_nothing_seen_is_what_is_known_beforehand():
    q, r = np.array([1.0, 1, 1 / 3, 1 / 3, 1 / 3]), np.array([2.0, 1, 1, 1, 0])
    policy = WeightPolicy(scarcity=q, priors=r)
    expected = np.r_[floor_cap((q * r)[:4], 0.1, 4.0), 0]
    np.testing.assert_allclose(policy.initial_weights(), expected, rtol=1e-6)
    np.testing.assert_array_equal(policy.initial_weights(), policy.weights)
    assert make(5).weights.tolist() == [1] * 5


def test_scarcity_and_priors_keep_their_effect_at_full_strength_before_the_ramp():
    policy = WeightPolicy(scarcity=[1.0, 3.0], warmup=10, cooldown=0)
    policy.update([0, 1], [9.0, 1.0], step=0)
    np.testing.assert_allclose(policy.weights, [0.5, 1.5], rtol=1e-6)


def test_initial_weights_stay_those_of_the_beginning():
    policy = make(priors=[1.0, 2.0, 3.0])
    before = policy.initial_weights()
    policy.update([0, 1, 2], [9.0, 1.0, 1.0])
    np.testing.assert_array_equal(policy.initial_weights(), before)
    assert (policy.weights != before).any()


def test_prior_zero_excludes_whatever_the_floor_and_the_loss():
    policy = make(priors=[1.0, 0.0, 1.0, 1.0], shrinkage=0, clip=(0, 1))
    policy.update([0, 1, 2, 3], [1.0, 1e5, 1.0, 1.0])
    np.testing.assert_allclose(policy.weights, [1, 0, 1, 1], rtol=1e-6)
    policy.update([1], [7.0])
    assert policy.weights[1] == 0
    assert policy.explain(1)["limit"] == "excluded"


def test_between_passes_only_observed_windows_move_in_the_terms_of_the_last_pass():
    rng = np.random.default_rng(4)
    policy = make(300, normalize_every=5)
    assert policy.update(np.arange(100), rng.lognormal(1, 0.5, 100)).ids is None
    before = policy.weights.copy()
    scale = policy.explain(0)["scale"]
    update = policy.update([250, 3, 120], [9.0, 0.2, 4.0])
    assert set(update.ids.tolist()) <= {3, 120, 250}
    assert update.ids.dtype == np.int64
    assert update.values.dtype == np.float32
    others = np.setdiff1d(np.arange(300), [3, 120, 250])
    np.testing.assert_array_equal(policy.weights[others], before[others])
    np.testing.assert_array_equal(policy.weights[update.ids], update.values)
    assert (update.values != before[update.ids]).all()
    assert policy.explain(3)["scale"] == scale


def test_an_update_reports_no_window_whose_weight_stayed():
    policy = make(20)
    policy.update(np.arange(20), np.arange(20.0))
    told = policy.update([19, 10], [19.0, 50.0]).ids
    assert told.tolist() == [10]  # 19 was beyond the upper quantile and still is


def test_an_update_keeps_its_values_when_the_policy_moves_on():
    policy = make(20)
    first = policy.update(np.arange(20), np.arange(20.0))
    values = first.values.copy()
    policy.update([3], [18.0])
    np.testing.assert_array_equal(first.values, values)


def test_excluded_windows_do_not_count_in_the_mean_of_what_was_learned():
    values = np.array([1.0, 3.0, 100.0])
    settings = {"scarcity_measure": "distance", "blend": 0.5, "shrinkage": 0, "clip": (0, 1), "scarcity": [1, 1, 7]}
    policy = make(priors=[1, 1, 0], **settings)
    policy.update([0, 1, 2], values)
    np.testing.assert_allclose(policy.weights, [0.75, 1.25, 0], rtol=1e-6)


def passes(policy, steps):
    return [step for step in steps if policy.update([0], [1.0], step=step).ids is None]


def test_full_passes_come_first_and_every_normalize_every_updates():
    assert passes(make(10, normalize_every=4), range(1, 12)) == [1, 5, 9]


def test_full_passes_come_after_each_hundredth_of_the_training():
    assert passes(make(10, 1000, normalize_every=10**6), range(5, 60, 5)) == [5, 15, 25, 35, 45, 55]


def test_full_passes_come_at_the_ends_of_ramps():
    policy = make(10, 10**6, normalize_every=10**6, warmup=7, cooldown=20)
    assert passes(policy, [1, 3, 6, 8, 9]) == [1, 8]
    assert passes(make(10, 10**6, normalize_every=10**6, warmup=7), [1, 6, 7, 8]) == [1, 7]
    policy = make(10, 100, normalize_every=10**6, warmup=0.07, cooldown=0.2)
    policy.update([0], [1.0], step=99)
    assert policy.update([0], [1.0], step=100).ids is None
    assert policy.explain(0)["ramp"] == 0


def test_full_pass_waits_for_no_interval_once_there_are_scores():
    policy = make(10, normalize_every=100)
    assert policy.update([], []).ids is None
    assert policy.update([0], [math.nan]).ids.tolist() == []
    update = policy.update([0, 1], [1.0, 3.0])
    assert update.ids is None
    assert policy.weights[1] > policy.weights[0]


def test_ramp_moves_what_was_learned_from_nothing_to_all_and_back():
    policy = make(4, 100, warmup=0.2, cooldown=0.1, normalize_every=1, clip=(0, 1), shrinkage=0)
    seen = {}
    for step in range(0, 101, 5):
        policy.update([0, 1, 2, 3], [1.0, 2.0, 3.0, 2.0], step=step)
        seen[step] = policy.weights.tolist()
    assert seen[0] == seen[100] == [1, 1, 1, 1]
    assert seen[10] == pytest.approx([0.75, 1, 1.25, 1])
    assert seen[20] == seen[50] == seen[90] == pytest.approx([0.5, 1, 1.5, 1])
    assert seen[95] == pytest.approx([0.75, 1, 1.25, 1])


def test_steps_count_updates_where_none_is_said():
    policy = make(2, 10, warmup=4, normalize_every=1)
    assert [policy.update([0], [1.0]) and policy.explain(0)["ramp"] for _ in range(5)] == [0.25, 0.5, 0.75, 1, 1]


def test_a_fraction_of_an_unknown_length_is_refused():
    policy = WeightPolicy()
    policy.bind(3)
    with pytest.raises(ValueError, match=r"`warmup` and `cooldown`.*0\.05 and 0\.1.*bind"):
        policy.update([0], [1.0])
    with pytest.raises(ValueError, match="numbers of steps"):
        policy.bind(3, None)
    assert not policy.visits.any()
    policy.bind(3, 100)
    policy.update([0], [1.0])


def test_a_cool_down_without_an_end_is_said_to_have_no_effect_once():
    with pytest.warns(UserWarning, match="`cooldown`=5 has no effect"):
        policy = make(3, None, cooldown=5)
    policy.update([0], [1.0])


def test_non_finite_values_are_counted_and_dropped():
    policy = make(5)
    policy.update([0, 1, 2, 2, 3], [1.0, math.nan, math.inf, 3.0, 1e39])
    assert policy.dropped == 3
    assert policy.visits.tolist() == [1, 0, 1, 0, 0]
    assert policy.scores[2] == 3
    assert np.isfinite(policy.weights).all()
    policy.update([0, 1], [math.nan, -math.inf])
    assert policy.dropped == 5
    assert policy.visits.tolist() == [1, 0, 1, 0, 0]


@pytest.mark.parametrize("values", [[0.0] * 6, [0.0] * 5 + [9.0], [1e-38] * 6, [3e38] * 6, [0, 0, 0, 0, 1e-30, 1e30]])
@pytest.mark.parametrize("power", [0.0, 1.0, 4.0])
def test_extreme_losses_leave_finite_weights_of_mean_one(values, power):
    policy = make(8, power=power)
    policy.update(np.arange(6), values)
    assert np.isfinite(policy.weights).all()
    assert policy.weights.mean() == pytest.approx(1, rel=1e-5)
    assert policy.weights.min() >= np.float32(0.1)


@pytest.mark.parametrize("kind", [np.float32, np.float16, torch.float32, torch.bfloat16])
def test_update_takes_arrays_and_tensors(kind):
    policy = make(3)
    if isinstance(kind, torch.dtype):
        policy.update(torch.tensor([2]), torch.tensor([1.5], dtype=kind, requires_grad=True))
    else:
        policy.update(np.array([2], np.int32), np.array([1.5], kind))
    assert policy.scores[2] == 1.5


@pytest.mark.parametrize(
    ("ids", "values", "error", "message"),
    [
        ([1, 5, 9], [1, 1, 1], ValueError, r"`ids` must be in \[0, 5\), got 5 at position 1"),
        ([1, -2], [1, 1], ValueError, r"got -2 at position 1"),
        ([1.0, 2.0], [1, 1], TypeError, r"`ids` must be integers, got dtype float64, first 1\.0"),
        ([True], [1], TypeError, "`ids` must be integers"),
        ([1, 2**70], [1, 1], ValueError, r"got 1180591620717411303424 at position 1"),
        ([[1]], [1], ValueError, r"`ids` must be one-dimensional"),
        ([1, 2], [1.0], ValueError, r"`values` must hold one value per id \(2\), got 1"),
        ([1], ["a"], TypeError, "`values` must be real numbers"),
        ([1, 3], [1.0, -2.5], ValueError, r"got -2\.5 for window 3"),
    ],
)
def test_update_refuses_what_cannot_be_an_observation_and_changes_nothing(ids, values, error, message):
    policy = make(5)
    policy.update([0], [2.0])
    before = policy.state_dict()
    with pytest.raises(error, match=message):
        policy.update(ids, values)
    assert_same_state(policy.state_dict(), before)


def test_a_loss_that_rounding_took_below_zero_is_zero():
    policy = make(2)
    policy.update([0], [-1e-7])
    assert policy.scores[0] == 0


def test_without_a_number_of_windows_there_are_as_many_as_the_largest_id_seen():
    policy = WeightPolicy(warmup=0, cooldown=0)
    with pytest.raises(ValueError, match=r"policy\.bind\(num_windows\)"):
        _ = policy.weights
    assert policy.update([2, 0], [3.0, 1.0]).ids is None
    assert np.isnan(policy.scores[1])
    assert policy.scores[[0, 2]].tolist() == [1.0, 3.0]
    grown = policy.update([4], [2.0])
    assert grown.ids is None
    assert len(grown.values) == 5
    assert policy.visits.tolist() == [1, 0, 1, 0, 1]
    policy.bind(6)
    assert policy.scores[[0, 2, 4]].tolist() == [1.0, 3.0, 2.0]
    with pytest.raises(ValueError, match=r"\[0, 6\), got 6"):
        policy.update([6], [1.0])
    with pytest.raises(ValueError, match="got -1"):
        WeightPolicy(warmup=0, cooldown=0).update([-1], [1.0])
    with pytest.raises(ValueError, match="got 10000000000"):
        WeightPolicy(warmup=0, cooldown=0).update([10**10], [1.0])
    policy = WeightPolicy(warmup=0, cooldown=0)
    policy.update([8], [1.0])
    with pytest.raises(ValueError, match=r"must be 9.*got 5"):
        policy.bind(5)


def test_weights_and_visits_are_read_only():
    policy = make(3)
    for array in (policy.weights, policy.visits):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5


def test_binding_to_another_number_of_windows_is_refused():
    policy = make(5)
    policy.bind(5)
    with pytest.raises(ValueError, match=r"must be 5.*got 6"):
        policy.bind(6)
    with pytest.raises(ValueError, match=r"must be 3.*got 4"):
        make(groups=[0, 1, 1]).bind(4)


@pytest.mark.parametrize(
    "settings",
    [
        {"signal": "lost"},
        {"decay": 1.0},
        {"decay": -0.1},
        {"power": -1},
        {"power": math.inf},
        {"clip": (0.9, 0.05)},
        {"clip": (0.5, 0.5)},
        {"clip": (0.0, 1.1)},
        {"clip": 0.5},
        {"shrinkage": -1},
        {"shrinkage": math.inf},
        {"blend": 1.1},
        {"blend": math.nan},
        {"floor": -0.1},
        {"floor": 1.1},
        {"floor": True},
        {"cap": 0.5},
        {"warmup": 1.5},
        {"warmup": -1},
        {"warmup": True},
        {"cooldown": -0.1},
        {"cooldown": "0.1"},
        {"normalize_every": 0},
        {"normalize_every": 2.5},
        {"importance": -0.1},
        {"scarcity_measure": "rarity"},
        {"scarcity": [1.0, math.nan]},
        {"scarcity": [1.0, -1.0]},
        {"priors": [0.0, 0.0]},
        {"priors": [1.0, math.inf]},
        {"groups": []},
    ],
)
def test_each_bad_setting_is_refused_by_name(settings):
    name = next(iter(settings))
    with pytest.raises(ValueError, match=f"`{name}` must "):
        WeightPolicy(**settings)


def test_settings_that_clash_are_refused():
    with pytest.raises(ValueError, match=r"`floor` must be below `cap`, got 1\.0 and 1\.0"):
        WeightPolicy(floor=1.0, cap=1.0)
    with pytest.raises(ValueError, match=r"`warmup` and `cooldown`.*0\.6 and 0\.5"):
        WeightPolicy(warmup=0.6, cooldown=0.5)
    with pytest.raises(ValueError, match=r"'groups': 3.*'priors': 2"):
        WeightPolicy(groups=[0, 1, 2], priors=[1, 2])
    with pytest.raises(ValueError, match=r"got -1\.0 for window 1"):
        WeightPolicy(priors=[1.0, -1.0])
    with pytest.raises(TypeError, match="`groups` must be integers"):
        WeightPolicy(groups=[0.5, 1.0])


def test_arrays_are_copied():
    q = np.array([1.0, 3.0])
    policy = make(scarcity=q)
    q[:] = 1
    np.testing.assert_allclose(policy.initial_weights(), [0.5, 1.5])


@pytest.mark.parametrize("measure", ["density", "distance"])
def test_explain_names_factors_that_multiply_out_to_the_weight(measure):
    rng = np.random.default_rng(5)
    policy = make(
        groups=rng.integers(0, 4, 100),
        scarcity=rng.random(100) + 0.1,
        priors=rng.random(100) + 0.1,
        scarcity_measure=measure,
        floor=0.5,
        cap=1.5,
    )
    for _ in range(3):
        policy.update(rng.integers(0, 50, 30), rng.lognormal(1, 1, 30))
    limits = set()
    for i in range(100):
        told = policy.explain(i)
        learned = told["learned"] * told["scarcity"] * told["prior"]
        if measure == "distance":
            learned = (0.7 * told["learned"] + 0.3 * told["scarcity"]) * told["prior"]
        assert learned == pytest.approx(told["combined"])
        assert told["combined"] * told["scale"] * told["limit_factor"] == pytest.approx(told["weight"], rel=1e-6)
        assert told["weight"] == policy.weights[i]
        assert told["probability"] == pytest.approx(policy.weights[i] / policy.weights.sum(), rel=1e-5)
        assert told["visits"] == policy.visits[i]
        np.testing.assert_equal(told["score"], float(policy.scores[i]))
        limits.add(told["limit"])
    assert limits == {None, "floor", "cap"}


def test_explain_refuses_ids_there_are_not():
    with pytest.raises(ValueError, match=r"got 5 at position 0"):
        make(5).explain(5)


def test_importance_weights_correct_towards_the_windows_not_excluded():
    policy = make(4, importance=1.0)
    np.testing.assert_array_equal(policy.importance_weights([0.5, 0.25, 0.125, 0.125]), [0.5, 1, 2, 2])
    excluded = make(priors=[1, 1, 0, 1, 1], importance=1.0)
    np.testing.assert_array_equal(excluded.importance_weights([0.5, 0.25]), [0.5, 1])
    np.testing.assert_array_equal(policy.importance_weights([0.1, 0.4], target=[0.1, 0.4]), 1)
    np.testing.assert_array_equal(make(4).importance_weights([0.5]), 1)
    with pytest.raises(ValueError, match=r"`probabilities`.*got 0\.0 at position 1"):
        policy.importance_weights([0.5, 0.0])
    for target, message in (
        ([0.1], r"shape \(2,\).*got shape \(1,\)"),
        ([0.1, -0.5], "got -0.5"),
        (float("nan"), "got nan"),
    ):
        with pytest.raises(ValueError, match=f"`target` .*{message}"):
            policy.importance_weights([0.5, 0.25], target)


def assert_same_state(one, other):
    assert one.keys() == other.keys()
    for key, value in one.items():
        if isinstance(value, dict):
            assert_same_state(value, other[key])
        elif isinstance(value, torch.Tensor):
            assert value.dtype == other[key].dtype
            assert torch.equal(value, other[key])
        else:
            assert value == other[key]


def test_a_copy_is_independent():
    policy = make(3)
    twin = copy.deepcopy(policy)
    policy.update([0], [1.0])
    assert not twin.visits.any()
