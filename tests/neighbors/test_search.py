import numpy as np
import pytest

from adaptive_sampling.neighbors import nearest


def unit(rng, rows, dim=16):
    x = rng.standard_normal((rows, dim))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def by_brute_force(features, queries, k, groups=None, query_groups=None):
    """Similarities of the k best, and all pairs that may be neighbours."""
    own = queries is None
    queries = features if own else queries
    similarity = queries.astype(np.float64) @ features.T.astype(np.float64)
    allowed = np.ones(similarity.shape, bool)
    if own:
        np.fill_diagonal(allowed, False)
        query_groups = groups
    if groups is not None:
        allowed &= np.asarray(query_groups)[:, None] != np.asarray(groups)[None]
    best = -np.sort(-np.where(allowed, similarity, -np.inf), axis=1)[:, :k]
    return np.pad(best, ((0, 0), (0, k - best.shape[1])), constant_values=-np.inf), similarity, allowed


def assert_as_brute_force(features, queries=None, k=5, groups=None, query_groups=None, **settings):
    similarity, ids = nearest(features, queries, num_neighbors=k, groups=groups, query_groups=query_groups, **settings)
    expected, pairs, allowed = by_brute_force(features, queries, k, groups, query_groups)
    assert similarity.dtype == np.float32
    assert ids.dtype == np.int64
    np.testing.assert_allclose(similarity, expected, atol=2e-6)
    np.testing.assert_array_equal(ids >= 0, np.isfinite(expected))
    for row, found in enumerate(ids):
        found = found[found >= 0]
        assert len(set(found)) == len(found)
        assert allowed[row, found].all()
        np.testing.assert_allclose(pairs[row, found], expected[row, : len(found)], atol=2e-6)


def with_duplicates(rng):
    features = unit(rng, 200)
    features[150:] = features[rng.integers(0, 20, 50)]
    return features


def test_nearest_is_brute_force_on_200_points_with_duplicates():
    assert_as_brute_force(with_duplicates(np.random.default_rng(0)))


@pytest.mark.parametrize("num_groups", [1, 2, 7, 60])
def test_nearest_leaves_out_the_rows_of_the_same_group(num_groups):
    rng = np.random.default_rng(1)
    assert_as_brute_force(with_duplicates(rng), groups=rng.integers(0, num_groups, 200) * 10**12)


def test_nearest_fetches_past_a_group_that_fills_the_first_candidates():
    rng = np.random.default_rng(2)
    features = unit(rng, 200)
    features[:150] = features[0] + 1e-3 * features[:150]
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    assert_as_brute_force(features, k=3, groups=np.where(np.arange(200) < 150, 0, np.arange(200)))


def test_nearest_of_queries_with_groups():
    rng = np.random.default_rng(3)
    features, queries = with_duplicates(rng), unit(rng, 30)
    queries[:10] = features[:10]
    assert_as_brute_force(features, queries)
    assert_as_brute_force(features, queries, groups=rng.integers(0, 5, 200), query_groups=rng.integers(3, 8, 30))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("index", ["auto", "exact", "ivf"])
def test_nearest_of_few_points_marks_what_is_missing(count, index, capfd):
    assert_as_brute_force(unit(np.random.default_rng(4), count), k=5, index=index)
    assert capfd.readouterr() == ("", "")


def test_nearest_drops_what_is_less_similar_than_asked():
    features = unit(np.random.default_rng(5), 100)
    similarity, ids = nearest(features, num_neighbors=99, min_similarity=0.3)
    expected, _, _ = by_brute_force(features, None, 99)
    np.testing.assert_array_equal((ids >= 0).sum(1), (expected >= 0.3).sum(1))
    assert similarity[ids >= 0].min() >= 0.3
    np.testing.assert_array_equal(similarity[ids < 0], -np.inf)


def test_ivf_finds_close_neighbours_quietly_and_the_same_each_time(capfd):
    rng = np.random.default_rng(6)
    features = unit(rng, 4000)
    features[2000:] = features[:2000] + 0.1 * features[2000:]
    similarity, ids = nearest(features, num_neighbors=3, index="ivf")
    assert (ids[2000:, 0] == np.arange(2000)).mean() > 0.99
    again = nearest(features, num_neighbors=3, index="ivf")
    np.testing.assert_array_equal(ids, again[1])
    np.testing.assert_array_equal(similarity, again[0])
    assert capfd.readouterr() == ("", "")


def test_ivf_is_not_exact_search_under_another_name():
    features = unit(np.random.default_rng(6), 4000, 32)
    exact, ivf = (nearest(features, num_neighbors=20, index=index)[1] for index in ("exact", "ivf"))
    assert (exact != ivf).any()


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.astype(np.float64),
        lambda x: x.astype(np.float16),
        np.asfortranarray,
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: 5 * x,
        lambda x: x.tolist(),
    ],
)
def test_nearest_takes_any_real_array(convert):
    features = unit(np.random.default_rng(7), 60)
    expected, _ = nearest(features, num_neighbors=4)
    given = convert(features)
    similarity, _ = nearest(given, num_neighbors=4)
    np.testing.assert_allclose(similarity, expected, atol=2e-3)


def test_nearest_leaves_its_input_and_the_threads_alone():
    import faiss
    import torch

    features = 3 * unit(np.random.default_rng(8), 60)
    copy = features.copy()
    threads = faiss.omp_get_max_threads(), torch.get_num_threads()
    nearest(features, index="ivf")
    assert threads == (faiss.omp_get_max_threads(), torch.get_num_threads())
    np.testing.assert_array_equal(features, copy)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nearest_names_the_rows_that_are_not_finite(bad):
    features = unit(np.random.default_rng(9), 20)
    features[[3, 17], 2] = bad
    with pytest.raises(ValueError, match=r"`features`.*2 rows, first \[3, 17\]"):
        nearest(features)
    with pytest.raises(ValueError, match=r"`queries`.*2 rows, first \[3, 17\]"):
        nearest(np.eye(16), features)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_neighbors": 0}, "`num_neighbors` must be a positive integer, got 0"),
        ({"index": "hnsw"}, "`index`.*'hnsw'"),
        ({"groups": [1, 2]}, r"`groups`.*\(20\).*\(2,\)"),
        ({"query_groups": [1] * 20}, "`query_groups` must be left out"),
        ({"queries": np.ones((2, 16)), "groups": [1] * 20}, "together"),
        ({"queries": np.ones((2, 3))}, "`queries` must have 16 columns.*got 3"),
        ({"min_similarity": np.nan}, "`min_similarity`"),
    ],
)
def test_nearest_refuses_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        nearest(unit(np.random.default_rng(10), 20), **settings)


def test_nearest_refuses_wrong_types_and_shapes():
    with pytest.raises(ValueError, match=r"`features` must have shape.*\(3,\)"):
        nearest(np.ones(3))
    with pytest.raises(TypeError, match=r"`features`.*complex"):
        nearest(np.ones((3, 2), complex))
    with pytest.raises(TypeError, match="`groups` must be integers"):
        nearest(np.eye(3), groups=[0.5, 1, 2])
