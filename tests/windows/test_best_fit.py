import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import best_fit_bins

from adaptive_sampling.windows.best_fit import best_fit_decreasing, pack_in_buffers


@pytest.mark.parametrize(
    ("lengths", "bins", "padding"),
    [([5, 3, 6, 2, 1], [{5, 3}, {6, 2}, {1}], 7), ([4, 5, 3, 4], [{4}, {5, 3}], 0), ([8], [{8}], 0), ([], [], 0)],
)
def test_best_fit_decreasing_fills_bins_of_eight(lengths, bins, padding):
    found = best_fit_decreasing(np.array(lengths, np.int64), 8)
    number = int(found.max(initial=-1)) + 1
    assert [{lengths[i] for i in np.flatnonzero(found == k)} for k in range(number)] == bins
    assert number * 8 - sum(lengths) == padding


@given(st.integers(1, 30).flatmap(lambda room: st.tuples(st.just(room), st.lists(st.integers(1, room), max_size=40))))
def test_best_fit_decreasing_equals_placing_one_by_one(case):
    capacity, lengths = case
    found = best_fit_decreasing(np.array(lengths, np.int64), capacity)
    bins = [np.flatnonzero(found == k).tolist() for k in range(int(found.max(initial=-1)) + 1)]
    assert bins == best_fit_bins(lengths, capacity)


def test_packing_in_buffers_keeps_sources_and_buffers_apart(monkeypatch):
    monkeypatch.setattr("adaptive_sampling.windows.best_fit.BUFFER_ITEMS", 3)
    sources = np.array([0, 0, 0, 0, 1], np.int32)
    assert pack_in_buffers(np.full(5, 2), sources, 8).tolist() == [0, 0, 0, 1, 2]
