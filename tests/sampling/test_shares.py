import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_sampling.sampling.shares import ShareSchedule, apportion


@pytest.mark.parametrize(
    "shares, total, expected",
    [
        ([0.5, 0.3, 0.2], 7, [4, 2, 1]),
        ([0.6, 0.28, 0.12], 10, [6, 3, 1]),
        ([0.9996, 0.0004], 2048, [2047, 1]),
        ([0.29, 0.71], 100, [29, 71]),  # 0.29 * 100 is a little less than 29 in floating point
        ([1 / 3, 1 / 3, 1 / 3], 4, [2, 1, 1]),
        ([1.0, 0.0], 5, [5, 0]),
        ([0.5, 0.5], 0, [0, 0]),
    ],
)
def test_apportion_rounds_the_largest_remainders_up(shares, total, expected):
    assert apportion(np.array(shares) * total, total).tolist() == expected


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=8), st.integers(0, 5000))
def test_apportion_stays_within_one_of_each_amount_and_sums_exactly(raw, total):
    amounts = np.array(raw) / sum(raw) * total
    whole = apportion(amounts, total)
    assert whole.sum() == total
    assert (np.abs(whole - amounts) < 1 + 1e-6).all()


@given(st.lists(st.floats(-3, 5), min_size=2, max_size=8), st.integers(0, 20))
def test_apportion_never_goes_below_zero_where_amounts_do(amounts, total):
    whole = apportion(np.array(amounts), total)
    assert whole.sum() == total
    assert (whole >= 0).all()


def test_schedule_runs_linearly_between_its_positions_and_is_constant_outside():
    schedule = ShareSchedule([(10, {"a": 1, "b": 0}), (20, {"a": 0, "b": 3})], ["a", "b"])
    rows = schedule.at(np.array([0.0, 10.0, 15.0, 20.0, 99.0]))
    assert rows.tolist() == [[1, 0], [1, 0], [0.5, 0.5], [0, 1], [0, 1]]


def test_schedule_survives_its_state():
    schedule = ShareSchedule([(0, {"a": 1, "b": 2}), (7, {"a": 1, "b": 0})], ["a", "b"])
    copy = ShareSchedule.from_state(schedule.state())
    assert np.array_equal(copy.at(np.arange(9.0)), schedule.at(np.arange(9.0)))


@pytest.mark.parametrize(
    "shares, message",
    [
        ({"a": 1, "b": 1, "web": 1}, "got 'web'"),
        ({"a": 1}, "got none for 'b'"),
        ({"a": 1, "b": -0.5}, "got -0.5 for source 'b'"),
        ({"a": float("nan"), "b": 1}, "got nan for source 'a'"),
        ({"a": 0, "b": 0}, "must not all be zero"),
        ({"a": "half", "b": 1}, "got 'half' for source 'a'"),
        ({"a": True, "b": 1}, "got True for source 'a'"),
        ([(5, {"a": 1, "b": 1}), (5, {"a": 1, "b": 1})], r"must rise, got \[5, 5\]"),
        ([(-1, {"a": 1, "b": 1})], "got -1"),
        ([{"a": 1, "b": 1}], "must be .position, shares."),
        ([(0, [0.5, 0.5])], r"got \[0.5, 0.5\]"),
        ([], r"got \[\]"),
        (0.5, "got 0.5"),
    ],
)
def test_schedule_refuses_bad_shares_and_names_them(shares, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ShareSchedule(shares, ["a", "b"])
