import numpy as np
import pytest

from adaptive_sampling.weights.drift import FIRST_WIDTH, MOST_GROUPS, NUM_BINS, Drift


def observe(drift, levels, groups=None, times=1):
    levels = np.atleast_1d(np.asarray(levels, float))
    groups = np.zeros(len(levels), np.int64) if groups is None else groups
    return [drift.observe(groups, levels, np.ones(len(levels))) for _ in range(times)]


def test_there_is_no_trend_before_there_are_two_stretches_of_time():
    drift = Drift(1)
    assert drift.trend(0.5, signed=False) is None
    assert observe(drift, np.full(FIRST_WIDTH, 3.0)) == [0.0]
    assert drift.trend(0.5, signed=False) is None
    observe(drift, [1.0])
    assert drift.trend(0.5, signed=False) is None  # one observation is no stretch
    observe(drift, np.full(FIRST_WIDTH, 1.0))
    trend = drift.trend(0.5, signed=True)
    assert trend.at(0, np.float32([0.0, FIRST_WIDTH + 1])).tolist() == [-2.0, 0.0]


@pytest.mark.parametrize("signed", [True, False])
def test_movement_is_the_level_now_against_then(signed):
    drift = Drift(1)
    for level in (5.0, 4.0, 2.0):
        observe(drift, np.full(FIRST_WIDTH, level))
    trend = drift.trend(0.0, signed=signed)
    moved = np.array([-3.0, -2.0, 0.0])
    expected = moved if signed else np.exp(moved)
    np.testing.assert_allclose(trend.at(0, np.float32([10, 40, 70])), expected, rtol=1e-6)


def test_what_noise_alone_explains_is_no_movement():
    rng = np.random.default_rng(0)
    drift = Drift(3)
    for _ in range(100):
        drift.observe(rng.integers(0, 3, 16), rng.normal(1, 0.3, 16), np.ones(16))
    trend = drift.trend(0.5, signed=False)
    # Bins of all groups: two standard errors are passed by chance in about one of twenty, and then by little.
    assert (trend.movement == 1).mean() > 0.8
    assert np.abs(np.log(trend.movement)).max() < 0.1
    assert trend.learnable.tolist() == [1, 1, 1]


def test_old_stretches_are_merged_and_keep_their_levels():
    drift = Drift(1)
    total = 5 * NUM_BINS * FIRST_WIDTH
    for now in range(0, total, 16):
        observe(drift, np.full(16, float(now >= total // 2)))
    assert drift.width == 8 * FIRST_WIDTH
    assert drift.sums[0].sum() == total
    trend = drift.trend(0.0, signed=True)
    assert trend.at(0, np.float32([0, total // 4])).tolist() == [1.0, 1.0]
    np.testing.assert_allclose(trend.at(0, np.float32([total - 1])), 0)


def test_a_large_update_lies_in_one_stretch():
    drift = Drift(1)
    assert observe(drift, np.full(50_000, 3.0)) == [0.0]
    assert observe(drift, np.full(50_000, 1.0)) == [50_000.0]
    assert drift.trend(0.0, signed=True).at(0, np.float32([0.0, 50_000.0])).tolist() == [-2.0, 0.0]


def test_each_group_has_its_own_movement_shrunk_to_that_of_all():
    drift = Drift(3)
    rng = np.random.default_rng(1)
    for step in range(64):
        groups = np.r_[np.zeros(8, int), np.ones(8, int)]
        levels = np.where(groups == 0, 2 - step / 64, 5.0) + rng.normal(0, 0.01, 16)
        drift.observe(groups, levels, np.ones(16))
    trend = drift.trend(0.5, signed=True)
    falling, steady, unseen = trend.movement[:, 0]
    assert -1.0 < falling < -0.6
    assert abs(steady) < 0.25
    assert unseen == pytest.approx((falling + steady) / 2, abs=0.15)
    assert trend.learnable[0] == 1
    assert trend.learnable[1] < 0.1
    assert trend.learnable[2] == 1


def test_a_group_too_seldom_seen_to_show_a_fall_counts_in_full():
    drift = Drift(2)
    for step in range(60):
        groups = np.r_[np.zeros(15, int), np.ones(int(step % 10 == 0), int)]
        drift.observe(groups, np.where(groups == 0, 2 - step / 60, 3.0), np.ones(len(groups)))
    assert drift.trend(0.5, signed=False).learnable.tolist() == [1, 1]


def test_weights_make_the_level_that_of_all_windows():
    drift = Drift(1)
    drift.observe(np.zeros(40, int), np.r_[np.full(30, 4.0), np.full(10, 2.0)], np.r_[np.full(30, 1 / 3), np.ones(10)])
    assert drift.sums[1, 0, 0] / drift.sums[0, 0, 0] == pytest.approx(3.0)


def test_many_groups_share_one_curve():
    drift = Drift(MOST_GROUPS + 1)
    assert drift.num_curves == 1
    drift.observe(np.arange(64), np.full(64, 3.0), np.ones(64))
    drift.observe(np.arange(64), np.full(64, 2.0), np.ones(64))
    trend = drift.trend(0.5, signed=True)
    assert trend.at(0, np.float32([0.0])).tolist() == [-1.0]
    assert trend.learnable.tolist() == [1.0]


def test_state_goes_on_where_it_was():
    one, other = Drift(2), Drift(2)
    for step in range(100):
        one.observe(np.array([0, 1]), np.array([step / 9, 1.0]), np.ones(2))
    other.load_state_dict(one.state_dict())
    one.observe(np.array([0, 1]), np.array([1.0, 1.0]), np.ones(2))
    other.observe(np.array([0, 1]), np.array([1.0, 1.0]), np.ones(2))
    np.testing.assert_array_equal(one.sums, other.sums)
    assert (one.time, one.width) == (other.time, other.width) == (202, 32)
