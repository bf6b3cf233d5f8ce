import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_sampling.sampling import SumTree, sum_tree
from adaptive_sampling.sampling.sum_tree import padded_size


def tree_of(values, dtype=np.int64):
    leaves = np.zeros(padded_size(len(values)), np.int32 if dtype is np.int64 else np.float32)
    leaves[: len(values)] = values
    return SumTree(leaves, dtype)


@pytest.mark.parametrize("together", [1, 7, 1024])
@pytest.mark.parametrize("short_level", [64, 1 << 14])
@pytest.mark.parametrize("size", [1, 63, 64, 65, 4096, 4097, 64**3 + 1])
def test_find_returns_the_element_under_every_kind_of_point(monkeypatch, size, short_level, together):
    monkeypatch.setattr(sum_tree, "_SHORT_LEVEL", short_level)
    monkeypatch.setattr(sum_tree, "_TOGETHER", together)
    values = np.random.default_rng(size).integers(0, 3, size)
    values[-1] = 2
    tree = tree_of(values)
    ends = values.cumsum()
    points = np.unique(np.linspace(0, ends[-1] - 1, 500).astype(np.int64))
    np.testing.assert_array_equal(tree.find(points), np.searchsorted(ends, points, side="right"))
    assert tree.total == ends[-1]


def test_find_is_exact_where_sums_pass_32_bits():
    values = np.full(64 * 64 * 3, 2**31 - 1)
    tree, ends = tree_of(values), values.cumsum()
    points = np.concatenate([np.arange(5), ends[:-1], ends - 1, ends[::7] - 2**30])
    np.testing.assert_array_equal(tree.find(points), np.searchsorted(ends, points, side="right"))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=300), st.data())
def test_refresh_equals_a_tree_built_afresh(values, data):
    tree = tree_of(values)
    ids = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), max_size=20)), np.int64)
    tree.leaves[ids] += 7
    tree.refresh(ids)
    fresh = SumTree(tree.leaves.copy(), np.int64)
    for level, expected in zip(tree._levels, fresh._levels, strict=True):
        np.testing.assert_array_equal(level, expected)


def test_find_never_returns_a_zero_when_float_sums_do_not_add_up():
    values = np.tile(np.float32([0.1, 0.0, 1e-7, 0.0]), 2500)
    values[-2:] = 0
    tree = tree_of(values, np.float64)
    points = np.nextafter(np.full(1000, tree.total), 0)
    points[1:] = np.random.default_rng(0).random(999) * tree.total
    assert (values[tree.find(points)] > 0).all()


def test_a_point_past_the_end_of_rounded_sums_gives_the_last_positive_element():
    assert tree_of([1.0, 2.0, 0.0], np.float64).find(np.array([3.0])).tolist() == [1]


def test_leaves_of_a_length_without_padding_are_refused():
    with pytest.raises(ValueError, match=r"multiple of 64.*\(65,\)"):
        SumTree(np.zeros(65, np.int32), np.int64)
