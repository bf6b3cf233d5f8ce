import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_sampling.neighbors._sets import connected_sets, join_to_middles, split_chains


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


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_split_chains_makes_sets_of_rows_near_their_middle_and_keeps_equal_rows_together(data):
    count = data.draw(st.integers(1, 14))
    angles = np.array(data.draw(st.lists(st.integers(0, 30), min_size=count, max_size=count))) / 5
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    first, second = np.nonzero(np.triu(rows @ rows.T >= 0.9, 1))
    sets, split = split_chains(rows.__getitem__, connected_sets(count, first, second), first, second, 0.9)
    assert split == 0 or len(np.unique(sets)) > len(np.unique(connected_sets(count, first, second)))
    for label in np.unique(sets):
        members = np.flatnonzero(sets == label)
        assert label == members[0]
        middle = rows[members].astype(float).sum(0)
        similarity = rows[members] @ middle / np.linalg.norm(middle)
        assert similarity.min() >= 0.9 - 1e-5
    for a, b in zip(*np.nonzero(angles[:, None] == angles), strict=True):
        assert sets[a] == sets[b]


def test_a_set_that_is_round_stays_whole():
    rng = np.random.default_rng(0)
    rows = (np.ones(8) + 0.1 * rng.standard_normal((300, 8))).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    chain = np.arange(299)
    sets, split = split_chains(rows.__getitem__, np.zeros(300, np.int64), chain, chain + 1, 0.9)
    assert split == 0
    assert not sets.any()


def test_a_row_joins_the_set_whose_middle_it_is_near_and_no_pair():
    # Members differ in a direction of their own each, the row alone in another.
    middle, other, *own = np.eye(9)
    rows = np.array([other, middle + 0.5 * own[0], *(middle + 0.45 * x for x in own[1:6]), middle * 0.1 + other])
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    assert (rows[1] @ rows[2:7].T).max() < 0.86 < rows[1] @ rows[2:7].sum(0) / np.linalg.norm(rows[2:7].sum(0))
    nearest = np.array([7, 2, 3, 2, 2, 2, 2, 2])
    sets = np.array([0, 1, 2, 2, 2, 2, 2, 7])
    assert join_to_middles(rows.__getitem__, sets, nearest, 0.86).tolist() == [0, 1, 1, 1, 1, 1, 1, 7]
    # With two members there is nothing to average; without a nearest row there is nothing to join.
    pairs = np.array([0, 1, 2, 2, 4, 5, 6, 7])
    assert join_to_middles(rows.__getitem__, pairs, nearest, 0.86).tolist() == pairs.tolist()
    assert join_to_middles(rows.__getitem__, sets, np.full(8, -1), 0.86).tolist() == sets.tolist()
