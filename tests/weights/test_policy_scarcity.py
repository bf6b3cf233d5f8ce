import numpy as np
import pytest

from adaptive_sampling import StateMismatchError, WeightPolicy


def policy(**settings):
    made = WeightPolicy(warmup=0, cooldown=0, shrinkage=0, clip=(0, 1), **settings)
    made.bind(4, 1000)
    return made


def test_new_scarcity_counts_from_the_next_update():
    ours = policy(scarcity=[1, 1, 1, 1])
    ours.update([0, 1, 2, 3], [2.0, 2.0, 2.0, 2.0])
    before = ours.weights.copy()
    ours.set_scarcity([3, 1, 2, 2])
    np.testing.assert_array_equal(ours.weights, before)
    update = ours.update([0], [2.0])
    assert update.ids is None
    np.testing.assert_allclose(update.values, [1.5, 0.5, 1, 1])
    # A policy that had it from the start agrees.
    other = policy(scarcity=[3, 1, 2, 2])
    other.update([0, 1, 2, 3], [2.0, 2.0, 2.0, 2.0])
    other.update([0], [2.0])
    np.testing.assert_array_equal(other.weights, ours.weights)


def test_new_scarcity_is_saved_and_loaded_by_a_policy_made_as_this_one_was():
    ours = policy(scarcity=[1, 1, 1, 1])
    ours.update([0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0])
    assert "scarcity" not in ours.state_dict()
    ours.set_scarcity([3, 1, 2, 2])
    state = ours.state_dict()
    restored = policy(scarcity=[1, 1, 1, 1])
    restored.load_state_dict(state)
    np.testing.assert_array_equal(restored.update([2], [1.0]).values, ours.update([2], [1.0]).values)
    np.testing.assert_array_equal(restored.weights, ours.weights)
    with pytest.raises(StateMismatchError, match="`scarcity`"):
        policy(scarcity=[1, 2, 1, 1]).load_state_dict(state)


def test_scarcity_may_come_where_there_was_none():
    ours = policy()
    ours.set_scarcity([0.5, 1.5, 1, 1])
    np.testing.assert_allclose(ours.update([0], [1.0]).values, [0.5, 1.5, 1, 1])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([1, 2], r"`scarcity` must have one entry per window \(4\), got 2"),
        ([1, np.nan, 1, 1], r"`scarcity` must be finite.*nan for window 1"),
        ([0, 0, 0, 0], "`scarcity` must be positive"),
    ],
)
def test_bad_scarcity_changes_nothing(bad, message):
    ours = policy(scarcity=[3, 1, 2, 2])
    with pytest.raises(ValueError, match=message):
        ours.set_scarcity(bad)
    np.testing.assert_allclose(ours.update([0], [1.0]).values, [1.5, 0.5, 1, 1])
