import sys

import numpy as np
import pytest
import torch

from adaptive_sampling.weights import scarcity_scores
from adaptive_sampling.weights.scarcity import capped_inverse_sizes, ranks_around_one


def heaps(rng, copies=6):
    directions = rng.standard_normal((50, 32))
    return np.concatenate([directions, np.repeat(directions[:5], copies, axis=0)])


def test_density_is_one_over_the_size_of_the_near_copy_set():
    scores = scarcity_scores(np.eye(8)[[0, 1, 2, 2, 2]])
    np.testing.assert_allclose(scores, [5 / 3, 5 / 3, 5 / 9, 5 / 9, 5 / 9])
    assert scores.dtype == np.float64


def test_density_respects_the_threshold():
    # Pairs of opposite rows: their common part is the origin.
    pair = np.array([[1.0, 0.0], [0.9, np.sqrt(1 - 0.81)], [-1.0, 0.0], [-0.9, -np.sqrt(1 - 0.81)], [0, 2], [0, -2]])
    np.testing.assert_allclose(scarcity_scores(pair, threshold=0.89), [0.75, 0.75, 0.75, 0.75, 1.5, 1.5])
    np.testing.assert_allclose(scarcity_scores(pair, threshold=0.91), 1)


@pytest.mark.parametrize("measure", ["density", "distance", "cluster"])
def test_scarcity_has_mean_one_and_copies_share_a_score(measure):
    scores = scarcity_scores(heaps(np.random.default_rng(0)), 4, measure=measure)
    assert scores.mean() == pytest.approx(1, rel=1e-12)
    for copied in range(5):
        same = np.r_[copied, 50 + 6 * copied : 56 + 6 * copied]
        assert np.ptp(scores[same]) < 1e-12
    assert scores[:5].mean() < scores[5:50].mean()
    if measure != "cluster":
        assert scores[:5].max() < scores[5:50].min()
    np.testing.assert_array_equal(scores, scarcity_scores(heaps(np.random.default_rng(0)), 4, measure=measure))


def test_distance_ranks_by_the_kth_neighbour():
    angles = np.array([0.0, 0.1, 0.3, 0.7, 1.5])
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    # Second nearest at: 0.3, 0.2, 0.3, 0.6, 1.2.
    np.testing.assert_allclose(scarcity_scores(points, 2, measure="distance"), [0.875, 0.5, 0.875, 1.25, 1.5])


def test_distance_of_a_window_without_neighbours_is_the_largest():
    points = np.eye(4)[[0, 0, 1, 1]] + 0.1
    scores = scarcity_scores(points, 2, measure="distance", groups=[0, 1, 2, 2])
    np.testing.assert_allclose(scores.mean(), 1)
    alone = scarcity_scores(np.eye(2), 1, measure="distance", groups=[0, 0])
    np.testing.assert_allclose(alone, 1)


def test_distances_that_rounding_alone_tells_apart_share_a_rank():
    np.testing.assert_array_equal(ranks_around_one(np.array([1 + 1e-8, 1, 2, 0.5])), [1, 1, 1.5, 0.5])


@pytest.mark.parametrize("measure", ["density", "distance"])
def test_windows_of_one_document_do_not_make_each_other_common(measure):
    copies = np.concatenate([np.eye(8)[[0, 0, 0]], np.eye(8)[1:4]])
    scores = scarcity_scores(copies, 2, measure=measure, groups=[9, 9, 9, 1, 2, 3])
    np.testing.assert_allclose(scores, 1)


@pytest.mark.parametrize("measure", ["density", "distance", "cluster"])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_scarcity_of_few_windows_is_one(measure, count):
    np.testing.assert_array_equal(scarcity_scores(np.eye(4)[:count], measure=measure), np.ones(count))


@pytest.mark.parametrize("measure", ["density", "distance"])
@pytest.mark.parametrize("kind", [np.float64, np.float16, np.float32])
def test_scarcity_takes_any_real_dtype(measure, kind):
    points = heaps(np.random.default_rng(1)).astype(np.float16)
    np.testing.assert_allclose(
        scarcity_scores(points.astype(kind), measure=measure), scarcity_scores(points, measure=measure), atol=1e-4
    )


@pytest.mark.parametrize("measure", ["density", "distance", "cluster"])
def test_scarcity_does_not_depend_on_where_the_origin_is(measure):
    points = heaps(np.random.default_rng(2))
    shifted = scarcity_scores(points + 1e4, 4, measure=measure)
    if measure == "cluster":  # k-means may fall into another local optimum
        assert np.corrcoef(shifted, scarcity_scores(points, 4, measure=measure))[0, 1] > 0.5
    else:
        np.testing.assert_allclose(shifted, scarcity_scores(points, 4, measure=measure), atol=1e-6)


def test_distance_is_euclidean():
    # On a line: second nearest at 3, 2, 3, 7.
    np.testing.assert_allclose(
        scarcity_scores([[0.0], [1.0], [3.0], [8.0]], 2, measure="distance"), np.array([1.0, 0.5, 1.0, 1.5])
    )


def test_cluster_sizes_are_inverted_and_capped():
    scores = scarcity_scores(heaps(np.random.default_rng(3), copies=200), measure="cluster")
    assert scores.mean() == pytest.approx(1, rel=1e-12)
    assert scores.max() <= 4
    assert scores[5:50].mean() > 2 * scores[50:].mean()
    # One of 10 and nine alone... weights 1/9 and 1 scale to mean 1; a cap of 2 then binds.
    labels = np.repeat(np.arange(11), [90] + [1] * 10)
    np.testing.assert_allclose(capped_inverse_sizes(labels, 2.0), [80 / 90] * 90 + [2] * 10)
    np.testing.assert_allclose(capped_inverse_sizes(labels, 20.0), [100 / 11 / 90] * 90 + [100 / 11] * 10)


@pytest.mark.parametrize("measure", ["density", "distance", "cluster"])
def test_scarcity_takes_tensors_maps_and_views(measure, tmp_path):
    points = heaps(np.random.default_rng(4)).astype(np.float32)
    expected = scarcity_scores(points, 4, measure=measure)
    np.save(tmp_path / "points.npy", points)
    for given in (
        torch.from_numpy(points),
        np.load(tmp_path / "points.npy", mmap_mode="r"),
        np.asfortranarray(points),
        np.repeat(points, 2, axis=1)[:, ::2],
    ):
        np.testing.assert_array_equal(scarcity_scores(given, 4, measure=measure), expected)


def test_a_missing_faiss_is_named_with_the_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    for measure in ("density", "distance", "cluster"):
        with pytest.raises(ImportError, match=r"`faiss` must be installed.*pip install faiss-cpu"):
            scarcity_scores(np.eye(5), measure=measure)


def test_scarcity_refuses_an_unknown_measure_and_rows_that_are_not_finite():
    with pytest.raises(ValueError, match=r"`measure`.*'rarity'"):
        scarcity_scores(np.eye(2), measure="rarity")
    with pytest.raises(ValueError, match=r"first \[1\]"):
        scarcity_scores([[1.0, 0.0], [np.nan, 0.0]])
    with pytest.raises(ValueError, match=r"`feats` must have shape|`features` must have shape"):
        scarcity_scores(np.ones((3, 0)))
    with pytest.raises(TypeError, match="real numbers"):
        scarcity_scores([["a", "b"]])
    with pytest.raises(ValueError, match=r"`groups` must hold one group per row \(3\)"):
        scarcity_scores(np.eye(3), groups=[1, 2])
    with pytest.raises(ValueError, match="`threshold` must be left out"):
        scarcity_scores(np.eye(3), measure="distance", threshold=0.8)


@pytest.mark.parametrize("measure", ["density", "distance", "cluster"])
@pytest.mark.parametrize(
    "bad",
    [
        {"num_neighbors": 0},
        {"num_neighbors": 2.5},
        {"groups": [0, 1]},
        {"groups": np.zeros(8)},
        {"index": "IVF"},
        {"index": None},
        {"seed": 1.5},
        {"seed": None},
        {"seed": True},
    ],
    ids=str,
)
def test_a_bad_argument_is_refused_whatever_the_measure_uses(measure, bad):
    with pytest.raises((ValueError, TypeError), match=f"`{next(iter(bad))}` must"):
        scarcity_scores(np.eye(8), measure=measure, **bad)


@pytest.mark.filterwarnings("error")
def test_distances_too_large_to_tell_apart_are_an_error_not_equal_scores():
    features = np.random.default_rng(0).standard_normal((30, 4)) * 1e30
    with pytest.raises(ValueError, match="`features` must be of a size whose squares can be told apart"):
        scarcity_scores(features, measure="distance")
    assert scarcity_scores(features, measure="density").mean() == pytest.approx(1)
