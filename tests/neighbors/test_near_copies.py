import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_sampling.neighbors import hashed_features, near_copy_sets, near_duplicates_of
from adaptive_sampling.neighbors.near_copies import connected_sets


class Rows:
    def __init__(self, tokens):
        self.tokens = tokens

    def __len__(self):
        return len(self.tokens)

    def read(self, ids):
        return {"input_ids": self.tokens[ids], "labels": self.tokens[ids]}


def zipf(rng, shape):
    p = 1 / np.arange(1, 5001)
    return rng.choice(5000, p=p / p.sum(), size=shape)


def changed(rng, tokens, share=0.03):
    return np.where(rng.random(tokens.shape) < share, zipf(rng, tokens.shape), tokens)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_connected_sets_are_those_of_a_search_edge_by_edge(data):
    count = data.draw(st.integers(1, 12))
    node = st.integers(0, count - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=20))
    label = list(range(count))
    for _ in range(count):
        for a, b in edges:
            label[a] = label[b] = min(label[a], label[b])
    first, second = np.array(edges, np.int64).reshape(-1, 2).T
    assert connected_sets(count, first, second).tolist() == label


def test_connected_sets_of_a_long_chain_in_random_order():
    chain = np.random.default_rng(0).permutation(10_000)
    assert not connected_sets(10_000, chain[:-1], chain[1:]).any()


def test_planted_copies_are_found():
    rng = np.random.default_rng(1)
    originals = zipf(rng, (300, 256))
    sets = near_copy_sets(hashed_features(Rows(np.concatenate([originals, changed(rng, originals)]))))
    assert (sets[300:] == np.arange(300)).mean() > 0.97
    assert (sets[:300] == np.arange(300)).all()


def test_overlapping_windows_of_one_document_are_no_copies_of_each_other():
    rng = np.random.default_rng(2)
    documents = zipf(rng, (20, 1000))
    starts = np.arange(0, 1000 - 256 + 1, 16)
    windows = np.concatenate([[document[s : s + 256] for s in starts] for document in documents])
    of_document = np.repeat(np.arange(20), len(starts))
    features = hashed_features(Rows(windows))
    np.testing.assert_array_equal(near_copy_sets(features, of_document), np.arange(len(windows)))
    assert len(np.unique(near_copy_sets(features))) < len(windows) / 5


def test_members_of_a_group_meet_through_others():
    a, b = np.eye(8)[0], np.eye(8)[1]
    features = np.stack([a, a + 0.3 * b, a + 0.15 * b, b])
    np.testing.assert_array_equal(near_copy_sets(features, [0, 0, 0, 1]), np.arange(4))
    np.testing.assert_array_equal(near_copy_sets(features, [0, 0, 1, 2]), [0, 0, 0, 3])


@pytest.mark.parametrize("num_neighbors", [1, 3])
def test_more_equal_rows_than_neighbours_are_one_set(num_neighbors):
    features = np.eye(3)[[0, 1, 2] * 40]
    sets = near_copy_sets(features, num_neighbors=num_neighbors, threshold=1.0)
    np.testing.assert_array_equal(sets, [0, 1, 2] * 40)


def test_equal_rows_of_one_group_stay_apart():
    sets = near_copy_sets(np.eye(2)[[0, 0, 1, 1]], [5, 5, 6, 7])
    np.testing.assert_array_equal(sets, [0, 1, 2, 2])


def test_rows_without_content_are_copies_of_each_other():
    np.testing.assert_array_equal(near_copy_sets(np.zeros((3, 4))), [0, 0, 0])


@pytest.mark.parametrize("count", [0, 1, 2])
def test_near_copy_sets_of_few_rows_are_defined(count):
    np.testing.assert_array_equal(near_copy_sets(np.eye(4)[:count]), np.arange(count))
    np.testing.assert_array_equal(near_copy_sets(np.ones((count, 4))), np.zeros(count))


def test_near_duplicates_of_tells_which_held_out_rows_have_a_copy_in_training():
    found = near_duplicates_of(np.eye(4)[:2], [[1, 0.1, 0, 0], [0, 0, 1, 0], [0, -1, 0, 0], [0, 1, 0, 0]], 0.9)
    assert found.tolist() == [True, False, False, True]
    assert found.dtype == np.bool_
    assert near_duplicates_of(np.empty((0, 4)), np.eye(4)).tolist() == [False] * 4


@pytest.mark.parametrize("bad", [0, -0.1, 1.1, float("nan")])
def test_threshold_is_checked(bad):
    with pytest.raises(ValueError, match="`threshold`"):
        near_copy_sets(np.eye(2), threshold=bad)
    with pytest.raises(ValueError, match="`threshold`"):
        near_duplicates_of(np.eye(2), np.eye(2), bad)
