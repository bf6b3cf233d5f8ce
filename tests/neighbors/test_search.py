import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_sampling.neighbors import indexes, nearest, search
from adaptive_sampling.neighbors.search import recall_of

KINDS = ["exact", "ivf", "hnsw", "ivfpq"]
METRICS = ["cosine", "inner_product", "squared_l2"]


def unit(rng, rows, dim=16):
    x = rng.standard_normal((rows, dim))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def all_pairs(features, queries, metric):
    x, y = queries.astype(np.float64), features.astype(np.float64)
    if metric == "squared_l2":
        return ((x[:, None] - y) ** 2).sum(-1)
    if metric == "cosine":
        x, y = (z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-300) for z in (x, y))
    return x @ y.T


def by_brute_force(features, queries, k, groups=None, query_groups=None, metric="cosine"):
    """Values of the k best, and all pairs that may be neighbours."""
    own = queries is None
    pairs = all_pairs(features, features if own else queries, metric)
    allowed = np.ones(pairs.shape, bool)
    if own:
        np.fill_diagonal(allowed, False)
        query_groups = groups
    if groups is not None:
        allowed &= np.asarray(query_groups)[:, None] != np.asarray(groups)[None]
    sign = 1 if metric == "squared_l2" else -1
    best = np.sort(np.where(allowed, sign * pairs, np.inf), axis=1)[:, :k]
    return sign * np.pad(best, ((0, 0), (0, k - best.shape[1])), constant_values=np.inf), pairs, allowed


def assert_as_brute_force(
    features, queries=None, k=5, groups=None, query_groups=None, metric="cosine", atol=2e-6, **more
):
    found = nearest(features, queries, num_neighbors=k, groups=groups, query_groups=query_groups, metric=metric, **more)
    expected, pairs, allowed = by_brute_force(features, queries, k, groups, query_groups, metric)
    atol = atol * max(1.0, np.abs(pairs).max(initial=0))
    assert found.values.dtype == np.float32
    assert found.ids.dtype == np.int64
    assert found.metric == metric
    assert found.recall == 1.0
    np.testing.assert_allclose(found.values, expected, atol=atol)
    np.testing.assert_array_equal(found.ids >= 0, np.isfinite(expected))
    assert not found.missing.any()
    for row, ids in enumerate(found.ids):
        ids = ids[ids >= 0]
        assert len(set(ids)) == len(ids)
        assert allowed[row, ids].all()
        np.testing.assert_allclose(pairs[row, ids], expected[row, : len(ids)], atol=atol)
    return found


def with_duplicates(rng):
    features = unit(rng, 200)
    features[150:] = features[rng.integers(0, 20, 50)]
    return features


@pytest.mark.parametrize("shift", [0.0, 1e4])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("index", ["auto", *KINDS])
def test_nearest_is_brute_force_on_200_points_with_duplicates(index, metric, shift):
    features = with_duplicates(np.random.default_rng(0)).astype(np.float64) * 3 + shift
    assert_as_brute_force(features, metric=metric, index=index)
    assert_as_brute_force(features, features[:30] + 0.1, metric=metric, index=index)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("index", KINDS[1:])
def test_every_kind_of_index_is_brute_force_once_it_looks_everywhere(index, metric, monkeypatch):
    # As many points as are needed for the index itself, not what stands in for it below that.
    monkeypatch.setattr(indexes, "_PQ_BITS", 4)
    features = unit(np.random.default_rng(11), 1200)
    features[1000:] = features[:200]
    found = assert_as_brute_force(features + 2, metric=metric, index=index, min_recall=1.0)
    assert found.index == index
    assert found.recall_queries == 1000


@pytest.mark.parametrize("index", ["auto", *KINDS])
@pytest.mark.parametrize("metric", METRICS)
def test_points_at_one_place_and_rows_of_zeros_are_no_special_case(index, metric):
    assert_as_brute_force(np.ones((1200, 8)), metric=metric, index=index)
    assert_as_brute_force(np.zeros((1200, 8)), metric=metric, index=index)
    some = unit(np.random.default_rng(12), 60)
    some[::7] = 0
    assert_as_brute_force(some, metric=metric, index=index)


@pytest.mark.parametrize("num_groups", [1, 2, 7, 60])
@pytest.mark.parametrize("metric", METRICS)
def test_nearest_leaves_out_the_rows_of_the_same_group(num_groups, metric):
    rng = np.random.default_rng(1)
    groups = rng.integers(0, num_groups, 200) * 10**12
    assert_as_brute_force(with_duplicates(rng), groups=groups, metric=metric)


def test_nearest_fetches_past_a_group_that_fills_the_first_candidates():
    rng = np.random.default_rng(2)
    features = unit(rng, 200)
    features[:150] = features[0] + 1e-3 * features[:150]
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    assert_as_brute_force(features, k=3, groups=np.where(np.arange(200) < 150, 0, np.arange(200)))


def test_nearest_says_where_a_group_left_a_row_short(monkeypatch):
    monkeypatch.setattr(search, "_MOST_FETCHED", 50)
    features = unit(np.random.default_rng(13), 200)
    features[:150] = features[0] + 1e-3 * features[:150]
    found = nearest(features, num_neighbors=3, groups=np.where(np.arange(200) < 150, 0, np.arange(200)))
    assert found.missing[:150].tolist() == [3] * 150
    assert not found.missing[150:].any()
    assert (found.ids[:150] == -1).all()
    assert "150 rows are short of 450 neighbours" in str(found)


def test_nearest_of_queries_with_groups():
    rng = np.random.default_rng(3)
    features, queries = with_duplicates(rng), unit(rng, 30)
    queries[:10] = features[:10]
    assert_as_brute_force(features, queries)
    assert_as_brute_force(features, queries, groups=rng.integers(0, 5, 200), query_groups=rng.integers(3, 8, 30))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 50, 796])
@pytest.mark.parametrize("index", ["auto", *KINDS])
def test_nearest_of_few_points_marks_what_is_missing(count, index, capfd):
    assert_as_brute_force(unit(np.random.default_rng(4), count), k=5, index=index, min_recall=1.0)
    assert capfd.readouterr() == ("", "")


def test_nearest_drops_what_is_less_similar_than_asked():
    features = unit(np.random.default_rng(5), 100)
    found = nearest(features, num_neighbors=99, min_similarity=0.3)
    expected, _, _ = by_brute_force(features, None, 99)
    np.testing.assert_array_equal((found.ids >= 0).sum(1), (expected >= 0.3).sum(1))
    assert found.values[found.ids >= 0].min() >= 0.3
    np.testing.assert_array_equal(found.values[found.ids < 0], -np.inf)
    assert not found.missing.any()


@pytest.mark.parametrize("index", KINDS[1:])
def test_every_index_reaches_the_recall_quietly_and_the_same_each_time(index, capfd, monkeypatch):
    monkeypatch.setattr(indexes, "_PQ_BITS", 6)
    rng = np.random.default_rng(6)
    features = unit(rng, 3000, 8)
    features[1500:] = features[:1500] + 0.1 * features[1500:]
    found = nearest(features, num_neighbors=3, index=index)
    assert (found.ids[1500:, 0] == np.arange(1500)).mean() > 0.95
    truth = by_brute_force(features, None, 3)[0]
    assert abs(recall_of(-found.values.astype(float), -truth) - found.recall) < 0.02
    assert found.recall >= 0.95
    again = nearest(features, num_neighbors=3, index=index)
    np.testing.assert_array_equal(found.ids, again.ids)
    np.testing.assert_array_equal(found.values, again.values)
    assert capfd.readouterr() == ("", "")


def test_a_search_below_the_wanted_recall_looks_deeper_and_says_so():
    features = unit(np.random.default_rng(6), 4000, 32)
    shallow = nearest(features, index="ivf", min_recall=0.0)
    assert shallow.deepened == 0
    assert shallow.recall < 0.95
    deep = nearest(features, index="ivf", min_recall=0.95)
    assert deep.deepened > 0
    assert deep.recall >= 0.95
    assert f"after looking deeper {deep.deepened} times" in str(deep)
    exact = nearest(features, index="exact")
    assert (exact.ids != shallow.ids).any()
    # The recall that is returned, on 1,000 of the 4,000 queries, is that of all: binomial error below 0.01.
    of_all = recall_of(-shallow.values.astype(float), -exact.values.astype(float))
    assert abs(shallow.recall - of_all) < 0.02


def test_auto_compares_all_rows_where_cells_would_take_longer(monkeypatch):
    monkeypatch.setattr(indexes, "EXACT_UP_TO", 100)
    # Rows without any structure: nearest ones lie in no cell in particular.
    rows = unit(np.random.default_rng(0), 5000, dim=64)
    found = nearest(rows, num_neighbors=10, min_recall=0.99)
    assert (found.index, found.recall, found.recall_queries) == ("exact", 1.0, 0)
    assert found.deepened > 0
    np.testing.assert_array_equal(found.ids, nearest(rows, num_neighbors=10, index="exact").ids)
    assert nearest(rows, num_neighbors=10, min_recall=0.1).index == "ivf"
    assert nearest(rows, num_neighbors=10, index="ivf", min_recall=0.99).index == "ivf"


def test_rows_that_are_not_similar_enough_do_not_make_a_search_deeper():
    rng = np.random.default_rng(1)
    rows = unit(rng, 6000, dim=64)
    rows[3000:] = rows[:3000] + 0.02 * rng.standard_normal((3000, 64)).astype(np.float32)
    settings = {"num_neighbors": 10, "index": "ivf", "min_recall": 0.99}
    far = nearest(rows, **settings)
    near = nearest(rows, min_similarity=0.8, **settings)
    assert far.deepened > near.deepened == 0
    assert near.recall == 1.0
    np.testing.assert_array_equal(near.ids[:, 0], np.r_[3000:6000, 0:3000])
    assert (near.ids[:, 1:] == -1).all()


def test_a_search_that_cannot_reach_the_recall_warns(monkeypatch):
    monkeypatch.setattr(indexes.Indexed, "deepen", lambda self: False)
    with pytest.warns(UserWarning, match=r"recall 0\.\d+ of ivf search stays below `min_recall` 0.99"):
        nearest(unit(np.random.default_rng(6), 4000, 32), index="ivf", min_recall=0.99)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_recall_counts_equally_near_rows_as_found(data):
    k = data.draw(st.integers(1, 4))
    rows = data.draw(st.lists(st.lists(st.integers(0, 4), min_size=k + 2, max_size=k + 2), min_size=1, max_size=5))
    every = np.sort(np.array(rows, float), axis=1)
    truth = every[:, :k]
    assert recall_of(truth, truth) == 1.0
    # Leaving out the nearest of each row costs a hit exactly where what comes after is farther than the k-th.
    found = every[:, 1 : k + 1]
    expected = np.mean([(row <= limit).sum() / k for row, limit in zip(found, truth[:, -1], strict=True)])
    assert recall_of(found, truth) == pytest.approx(expected)


def test_auto_is_exact_then_cells_a_graph_or_codes_by_size_columns_and_memory():
    gigabyte = 1 << 30
    choices = [(40_000, 64), (40_001, 64), (50_000, 768), (200_000, 768), (10**6, 64)]
    assert [indexes.choose_kind(n, n, d, 8 * gigabyte) for n, d in choices] == ["exact", "ivf", "hnsw", "ivf", "ivf"]
    assert indexes.choose_kind(10**6, 16, 64, 8 * gigabyte) == "exact"  # few queries need no index
    assert indexes.choose_kind(10**6, 10**6, 64, gigabyte // 4) == "ivfpq"


@pytest.mark.parametrize("index", ["exact", "ivf", "ivfpq"])
def test_a_memory_map_that_memory_does_not_hold_gives_the_same_answer(index, tmp_path, monkeypatch):
    monkeypatch.setattr(indexes, "_PQ_BITS", 5)
    features = unit(np.random.default_rng(14), 2000)
    np.save(tmp_path / "features.npy", features)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    settings = {"num_neighbors": 4, "index": index, "groups": np.arange(2000) // 3, "min_recall": 0.3}
    expected = nearest(features, **settings)
    limited = nearest(mapped, memory_limit=50_000, **settings)
    np.testing.assert_allclose(limited.values, expected.values, atol=1e-6)
    np.testing.assert_array_equal(limited.ids, expected.ids)


def test_cells_on_disk_filled_shard_by_shard_find_what_cells_in_memory_find(tmp_path, capfd):
    features = unit(np.random.default_rng(15), 3000)
    expected = nearest(features, num_neighbors=4, index="ivf")
    found = nearest(features, num_neighbors=4, index="disk", folder=tmp_path, memory_limit=16 * 16 * 700)
    np.testing.assert_array_equal(found.ids, expected.ids)
    assert found.index == "disk"
    assert found.recall == expected.recall
    assert [path.name for path in tmp_path.iterdir()] == ["cells.ivfdata"]


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.astype(np.float64),
        lambda x: x.astype(np.float16),
        np.asfortranarray,
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: 5 * x,
        lambda x: x.tolist(),
        torch.from_numpy,
        lambda x: torch.from_numpy(x).bfloat16(),
        lambda x: torch.from_numpy(x).half().requires_grad_(),
    ],
)
def test_nearest_takes_any_real_array(convert):
    features = unit(np.random.default_rng(7), 60)
    expected = nearest(features, num_neighbors=4)
    found = nearest(convert(features), num_neighbors=4)
    np.testing.assert_allclose(found.values, expected.values, atol=1e-2)


def test_values_do_not_depend_on_how_many_queries_are_searched_together():
    features = unit(np.random.default_rng(16), 300)
    whole = nearest(features, features, num_neighbors=4)
    for first in range(0, 300, 7):
        part = nearest(features, features[first : first + 7], num_neighbors=4)
        np.testing.assert_allclose(part.values, whole.values[first : first + 7], atol=2e-7)


def test_nearest_leaves_its_input_and_the_threads_alone():
    import faiss

    features = 3 * unit(np.random.default_rng(8), 1200)
    copy = features.copy()
    threads = faiss.omp_get_max_threads(), torch.get_num_threads()
    nearest(features, index="hnsw")
    assert threads == (faiss.omp_get_max_threads(), torch.get_num_threads())
    np.testing.assert_array_equal(features, copy)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("metric", METRICS)
def test_nearest_names_the_rows_that_are_not_finite(bad, metric):
    features = unit(np.random.default_rng(9), 20)
    features[[3, 17], 2] = bad
    with pytest.raises(ValueError, match=r"`features`.*2 rows, first \[3, 17\]"):
        nearest(features, metric=metric)
    with pytest.raises(ValueError, match=r"`queries`.*2 rows, first \[3, 17\]"):
        nearest(np.eye(16), features, metric=metric)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_neighbors": 0}, "`num_neighbors` must be a positive integer, got 0"),
        ({"index": "lsh"}, "`index`.*'lsh'"),
        ({"metric": "l1"}, "`metric`.*'l1'"),
        ({"index": "disk"}, "`folder` must be given"),
        ({"folder": "x"}, "`folder` must be given for index 'disk' and for no other"),
        ({"min_recall": 1.5}, "`min_recall`.*1.5"),
        ({"memory_limit": 0}, "`memory_limit`.*0"),
        ({"metric": "squared_l2", "min_similarity": 0.5}, "`min_similarity` must be left out"),
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
    with pytest.raises(ValueError, match=r"`features` must have shape.*\(3, 0\)"):
        nearest(np.ones((3, 0)))
    with pytest.raises(TypeError, match=r"`features`.*complex"):
        nearest(np.ones((3, 2), complex))
    with pytest.raises(TypeError, match=r"`features`.*bool"):
        nearest(np.ones((3, 2), bool))
    with pytest.raises(TypeError, match="`groups` must be integers"):
        nearest(np.eye(3), groups=[0.5, 1, 2])
