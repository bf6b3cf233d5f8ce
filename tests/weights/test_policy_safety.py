"""Schedules, uniform share, bound and alarm, the gate, old scores, slow passes: how the policy keeps within bounds."""

import warnings

import numpy as np
import pytest

from adaptive_sampling.weights import Constant, Cosine, Linear, Piecewise, WeightPolicy, _blocks

STILL = {"warmup": 0, "cooldown": 0}


def make(num_windows=None, total_steps=..., **settings):
    policy = WeightPolicy(**{**STILL, **settings})
    if num_windows is not None:
        policy.bind(num_windows, total_steps)
    return policy


def plainly(policy, values, step):
    return policy.update(np.arange(len(values)), values, step=step).values


# --- schedules -----------------------------------------------------------------------------------------------------


def test_each_schedule_gives_the_weights_of_its_value_at_that_step():
    values = np.random.default_rng(0).lognormal(0, 1, 40)
    scarcity = np.random.default_rng(1).random(40) + 0.5
    moving = {
        "power": Linear(0.5, 2.0, begin=10, end=20),
        "cap": Piecewise(((0, 4.0), (15, 1.5))),
        "blend": Cosine(0.0, 1.0, begin=0.1, end=0.2),
        "uniform": Linear(0.0, 1.0, end=40),
    }
    common = {
        "scarcity": scarcity,
        "scarcity_measure": "distance",
        "clip": (0, 1),
        "shrinkage": 0,
        "normalize_every": 1,
    }
    for name, schedule in moving.items():
        policy = make(40, 100, **common, **{name: schedule})
        for step in (5, 10, 13, 15, 20, 40, 99):
            still = make(40, 100, **common, **{name: schedule.at(step, 100)})
            np.testing.assert_array_equal(plainly(policy, values, step), plainly(still, values, step), err_msg=name)


def test_full_passes_come_where_a_schedule_turns():
    policy = make(
        10, 10**6, normalize_every=10**6, power=Linear(1.0, 2.0, begin=7, end=30), cap=Piecewise(((0, 4), (12, 2)))
    )
    passes = [step for step in (1, 6, 7, 8, 11, 13, 29, 31, 32) if policy.update([0], [1.0], step=step).ids is None]
    assert passes == [1, 7, 13, 31]


def test_importance_follows_its_schedule():
    policy = make(4, 100, importance=Linear(0.0, 1.0, begin=10, end=20))
    for step, gamma in [(10, 0.0), (15, 0.5), (20, 1.0)]:
        policy.update([0], [1.0], step=step)
        np.testing.assert_allclose(policy.importance_weights([0.5, 0.125]), np.array([0.5, 2]) ** gamma)


@pytest.mark.parametrize("name", ["power", "blend", "cap", "uniform", "importance"])
def test_a_schedule_by_fractions_of_an_unknown_length_is_refused_by_name(name):
    policy = make(3, **{name: Linear(1.0, 1.0)})
    with pytest.raises(ValueError, match=rf"`{name}` must have positions in steps .*Linear.*policy\.bind"):
        policy.update([0], [1.0])
    with pytest.raises(ValueError, match=f"`{name}`"):
        policy.bind(3, None)
    assert not policy.visits.any()
    make(3, None, **{name: Linear(1.0, 1.0, end=10)}).update([0], [1.0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"power": Linear(1.0, 5.0)}, r"`power` must be in \[0, 4\], got 5\.0"),
        ({"blend": Linear(0.0, 1.5)}, r"`blend` must be in \[0, 1\], got 1\.5"),
        ({"cap": Linear(0.5, 2.0)}, r"`cap` must be at least 1.*got 0\.5"),
        ({"cap": Linear(4.0, 1.0), "floor": 1.0}, r"`floor` must be below `cap`, got 1\.0 and 1\.0"),
        ({"uniform": 1.5}, r"`uniform` must be a share in \[0, 1\], got 1\.5"),
        ({"uniform": "0.5"}, r"`uniform` must be .*or a schedule.*got '0\.5'"),
        ({"gate": 2.0}, r"`gate` must be in \[0, 1\].*got 2\.0"),
        ({"min_effective_size": 1.5}, r"`min_effective_size` must be a share.*got 1\.5"),
        ({"auto_off": 1}, "`auto_off` must be True or False, got 1"),
        ({"importance": Constant(float("nan"))}, "`importance` must be a finite number.*got nan"),
    ],
)
def test_bad_schedules_and_bounds_are_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=message):
        WeightPolicy(**settings)


# --- concentration ---------------------------------------------------------------------------------------------------


def test_uniform_share_mixes_in_uniform_draws_but_no_excluded_window():
    settings = {"priors": [1, 1, 1, 0], "clip": (0, 1), "shrinkage": 0}
    plain, mixed = make(**settings), make(**settings, uniform=0.25)
    for policy in (plain, mixed):
        policy.update([0, 1, 2], [1.0, 2.0, 6.0])
    np.testing.assert_allclose(mixed.weights[:3], 0.75 * plain.weights[:3] + 0.25, rtol=1e-6)
    assert mixed.weights[3] == 0
    assert mixed.explain(0)["uniform"] == 0.25


def test_under_a_bound_uniform_draws_are_mixed_in_until_it_holds_and_it_is_said_once():
    values = np.random.default_rng(0).lognormal(0, 2, 500)
    settings = {"clip": (0, 1), "shrinkage": 0, "cap": 50, "normalize_every": 1, "floor": 0.0}
    free = make(500, 10**4, **settings)
    plainly(free, values, 5000)
    assert free.concentration().effective_sample_size < 0.3
    policy = make(500, 10**4, **settings, min_effective_size=0.6, uniform=0.05)
    with pytest.warns(UserWarning, match=r"`min_effective_size`=0\.6 holds from step 5000.*% uniform draws"):
        plainly(policy, values, 5000)
    plainly(policy, values, 5001)
    assert policy.concentration().effective_sample_size == pytest.approx(0.6, rel=1e-5)
    assert policy.weights.mean() == pytest.approx(1, rel=1e-5)
    told = policy.explain(int(values.argmax()))
    share = told["uniform"]
    assert share > 0.05
    product = told["combined"] * told["scale"] * told["limit_factor"]
    assert (1 - share) * product + share == pytest.approx(told["weight"], rel=1e-6)


def test_a_bound_that_holds_by_itself_changes_nothing():
    values = np.random.default_rng(0).lognormal(0, 0.2, 500)
    one, other = make(500), make(500, min_effective_size=0.5)
    np.testing.assert_array_equal(plainly(one, values, 1), plainly(other, values, 1))


def test_early_concentration_is_an_alarm_and_late_is_none():
    values = np.r_[np.full(5, 1e4), np.full(995, 1.0)]
    settings = {"clip": (0, 1), "shrinkage": 0, "cap": 500.0, "normalize_every": 1}
    policy = make(1000, 1000, **settings)
    with pytest.warns(UserWarning, match=r"early concentration: at step 50 .* 1% of the windows.*min_effective_size"):
        plainly(policy, values, 50)
    plainly(policy, values, 51)
    plainly(make(1000, 1000, **settings), values, 500)
    with pytest.warns(UserWarning, match="early concentration"):
        plainly(make(1000, **settings), values, 1)


def test_concentration_counts_windows_at_the_cap():
    policy = make(400, clip=(0, 1), shrinkage=0, cap=2.0, priors=np.r_[0, np.ones(399)])
    policy.update(np.arange(400), np.r_[np.full(100, 50.0), np.full(300, 1.0)])
    told = policy.concentration()
    assert told.num_at_cap == 99
    assert told.top_percent_mass == pytest.approx(4 * 2 / 399, rel=1e-5)
    assert told.effective_sample_size == pytest.approx(1 / np.square(policy.weights[1:].astype(float)).mean())


# --- variance gain
# -----------------------------------------------------------------------------------------------------


def slow_gain(values, power):
    """Second moment of uniform draws over that of corrected draws by s, for gradients of the size of `values`."""
    s = values**power / (values**power).mean()
    return (values**2).mean() / (values**2 / s).mean()


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_variance_gain_is_that_of_corrected_draws(power):
    values = np.random.default_rng(0).lognormal(1, 0.6, 300)
    policy = make(300, power=power, clip=(0, 1), shrinkage=0)
    policy.update(np.arange(300), values)
    assert policy.variance_gain == pytest.approx(slow_gain(values, power), rel=1e-5)


def test_auto_off_leaves_out_what_gains_nothing_and_comes_back():
    rng = np.random.default_rng(0)
    policy = make(
        300, auto_off=True, normalize_every=1, scarcity=rng.random(300) + 0.5, clip=(0, 1), shrinkage=0, decay=0.0
    )
    before = policy.initial_weights()
    policy.update(np.arange(300), rng.normal(5, 0.1, 300))
    assert policy.variance_gain < 1.05
    np.testing.assert_array_equal(policy.weights, before)
    policy.update(np.arange(300), rng.lognormal(1, 1, 300))
    assert policy.variance_gain > 1.05
    assert policy.explain(0)["ramp"] == 1.0
    assert (policy.weights != before).any()


# --- levels
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.01, 1.0, 50.0])
def test_old_high_losses_do_not_rule_and_group_means_forget(level):
    groups = np.arange(1000) % 4
    policy = make(groups=groups, normalize_every=1, gate=0.0)
    rng = np.random.default_rng(0)
    for step in range(60):
        ids = np.arange(step * 15, step * 15 + 15)
        policy.update(ids, level * (8.0 if step < 20 else 2.0) * rng.lognormal(0, 0.1, 15))
    early, late, unseen = policy.weights[:300], policy.weights[300:900], policy.weights[900:]
    assert early.mean() == pytest.approx(late.mean(), rel=0.25)
    assert unseen.mean() == pytest.approx(late.mean(), rel=0.25)
    assert policy.explain(950)["group_mean"] == pytest.approx(2 * level, rel=0.25)
    assert policy.scores[0] > 5 * level  # kept as observed
    assert policy.explain(0)["brought_forward"] < 3 * level


def test_without_shrinkage_every_window_speaks_for_itself():
    policy = make(groups=np.arange(400) % 4, normalize_every=1, shrinkage=0, clip=(0, 1), cap=100.0)
    for step in range(40):
        policy.update(np.arange(step * 10, step * 10 + 10), np.full(10, 8.0 if step < 20 else 2.0))
    np.testing.assert_allclose(policy.weights, np.where(np.arange(400) < 200, 1.6, 0.4), rtol=1e-5)


def test_a_group_that_never_falls_counts_less_than_its_loss_says():
    groups = np.arange(600) % 3
    weights = {}
    for gate in (0.0, 0.5):
        policy = make(groups=groups, normalize_every=1, gate=gate)
        for step in range(40):
            ids = np.random.default_rng(step).choice(600, 24, replace=False)
            level = np.where(groups[ids] == 0, 6.0, 6.0 * np.exp(-step / 15))
            policy.update(ids, level * np.random.default_rng(step).lognormal(0, 0.1, 24))
        weights[gate] = policy.weights[groups == 0].mean()
        told = policy.explain(0)
        assert told["reducible"] == pytest.approx(told["shrunk"] * told["learnable"], rel=1e-6)
        assert (told["learnable"] == 1) == (gate == 0)
    assert weights[0.0] > 1.5
    assert weights[0.5] < 1.0


def test_a_window_that_never_falls_counts_less_than_its_mates():
    policy = make(groups=np.zeros(100, int), normalize_every=1, clip=(0, 1))
    for visit in range(6):
        policy.update(np.arange(100), np.r_[np.full(10, 5.0), np.full(90, 5.0 * 0.8**visit)])
    assert policy.explain(0)["learnable"] < 0.5 * policy.explain(50)["learnable"]
    assert policy.weights[:10].mean() < policy.weights[10:].mean()


# --- threads, slow passes
# ----------------------------------------------------------------------------------------------


def test_weights_do_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(_blocks, "BLOCK", 500)
    rng = np.random.default_rng(0)
    ids, values = rng.integers(0, 4000, 3000), rng.lognormal(1, 0.7, 3000)
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(_blocks, "_available", lambda threads=threads: threads)
        policy = make(groups=np.arange(4000) % 7, scarcity=1.0 + np.arange(4000) % 3, priors=np.arange(4000) % 5)
        for first in range(0, 3000, 300):
            policy.update(ids[first : first + 300], values[first : first + 300])
        found.append(policy.weights.copy())
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_an_update_gives_what_a_full_pass_would_in_the_same_terms():
    rng = np.random.default_rng(0)
    policy = make(groups=np.arange(500) % 7, normalize_every=1)
    for _ in range(30):
        policy.update(rng.integers(0, 500, 64), rng.lognormal(1, 0.7, 64))
    before = policy.weights.copy()
    from adaptive_sampling.weights import _full_pass

    np.testing.assert_array_equal(_full_pass.evaluate(policy._frozen, policy._parts, np.arange(500)), before)


def test_slow_passes_come_less_often_once_the_step_time_is_told_and_so_after_a_resume(monkeypatch):
    policy = make(10, 10**4, normalize_every=2)
    policy.update([0], [1.0], step=1)
    monkeypatch.setattr(policy, "_pass_seconds", 0.3)
    # 0.3 s are half a per cent of 600 steps of 0.1 s; rounded up to 1,024.
    policy.update([0], [1.0], step=2, seconds_per_step=0.1)

    def passes(policy, steps):
        return [s for s in steps if policy.update([0], [1.0], step=s, seconds_per_step=1e-6).ids is None]

    assert policy.state_dict()["clock"]["least_steps"] == 1024
    other = make(10, 10**4, normalize_every=2)
    other.load_state_dict(policy.state_dict())
    steps = [*range(3, 1030, 3), 2060, 2090]
    assert passes(policy, steps) == passes(other, steps) == [1026, 2060]


def test_fast_passes_stay_as_often_as_they_were():
    policy = make(10, normalize_every=2)
    seen = [policy.update([0], [1.0], seconds_per_step=3600.0).ids is None for _ in range(6)]
    assert seen == [True, False, True, False, True, False]
    with pytest.raises(ValueError, match=r"`seconds_per_step` must be a positive number of seconds, got 0"):
        policy.update([0], [1.0], seconds_per_step=0)


def test_passes_over_many_windows_wait_until_enough_was_observed_and_so_after_a_resume():
    length, total = 1 << 18, 20_000
    policy = make(length, total, normalize_every=1)
    ids = np.arange(300)

    def passes(policy, steps):
        return [s for s in steps if policy.update(ids, np.ones(300), step=s).ids is None]

    # The first scores make a pass at once; then 2^18 / 256 = 1,024 observations are four updates of 300, and
    # 2^18 / 1,024 = 256 steps must have been made.
    assert passes(policy, range(1, 700, 100)) == [1, 401]
    other = make(length, total, normalize_every=1)
    other.load_state_dict(policy.state_dict())
    assert passes(policy, range(701, 1600, 100)) == passes(other, range(701, 1600, 100)) == [801, 1201]
    assert passes(policy, range(1601, 2000, 10)) == [1601, 1861]
    few = make(length - 1, total, normalize_every=1)
    assert passes(few, range(1, 5)) == [1, 2, 3, 4]


def test_passes_over_many_windows_come_where_a_ramp_turns_all_the_same():
    policy = make(1 << 18, 200, normalize_every=100, warmup=7)
    assert [s for s in range(1, 10) if policy.update([0], [1.0], step=s).ids is None] == [1, 7]


def test_the_default_policy_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy = WeightPolicy(groups=np.arange(200) % 3)
        policy.bind(200, 400)
        rng = np.random.default_rng(0)
        for step in range(1, 401):
            policy.update(rng.integers(0, 200, 16), rng.lognormal(1, 1, 16), step=step)
