import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_sampling.weights import LossSignal, _observations
from adaptive_sampling.weights._observations import checked_observations

values = st.one_of(st.floats(0, 100), st.just(float("nan")), st.just(float("inf")))


@given(st.lists(st.tuples(st.integers(0, 9), values)))
def test_each_window_gets_the_mean_of_its_finite_values(pairs):
    ids = np.array([i for i, _ in pairs], np.int64)
    observed, captured, dropped = checked_observations(ids, np.array([v for _, v in pairs]), LossSignal(), 10)
    by_hand = {}
    for i, value in pairs:
        if np.isfinite(value):
            by_hand.setdefault(i, []).append(value)
    assert observed.tolist() == sorted(by_hand)
    assert captured["loss"].tolist() == pytest.approx([np.mean(by_hand[i]) for i in sorted(by_hand)])
    assert dropped == sum(not np.isfinite(value) for _, value in pairs)


@given(st.lists(st.integers(0, 5), max_size=20), st.booleans())
def test_sorting_keeps_equal_ids_in_their_order(ids, large):
    array = np.array(ids, np.int64) + ((1 << 61) if large else 0)
    ordered, order = _observations._sorted_with_places(array)
    expected = np.argsort(array, kind="stable")
    assert order.tolist() == expected.tolist()
    assert ordered.tolist() == array[expected].tolist()
