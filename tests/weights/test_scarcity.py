import numpy as np
import pytest

from adaptive_sampling.weights import scarcity_scores
from adaptive_sampling.weights.scarcity import ranks_around_one


def heaps(rng, copies=6):
    directions = rng.standard_normal((50, 32))
    return np.concatenate([directions, np.repeat(directions[:5], copies, axis=0)])


def test_density_is_one_over_the_size_of_the_near_copy_set():
    scores = scarcity_scores(np.eye(8)[[0, 1, 2, 2, 2]])
    np.testing.assert_allclose(scores, [5 / 3, 5 / 3, 5 / 9, 5 / 9, 5 / 9])
    assert scores.dtype == np.float64


def test_density_respects_the_threshold():
    pair = [[1.0, 0.0], [0.9, np.sqrt(1 - 0.81)], [0.0, -1.0]]
    np.testing.assert_allclose(scarcity_scores(pair, threshold=0.89), [0.75, 0.75, 1.5])
    np.testing.assert_allclose(scarcity_scores(pair, threshold=0.91), 1)


@pytest.mark.parametrize("measure", ["density", "distance"])
def test_scarcity_has_mean_one_and_copies_share_a_score(measure):
    scores = scarcity_scores(heaps(np.random.default_rng(0)), 4, measure=measure)
    assert scores.mean() == pytest.approx(1, rel=1e-12)
    for copied in range(5):
        same = np.r_[copied, 50 + 6 * copied : 56 + 6 * copied]
        assert np.ptp(scores[same]) < 1e-12
    assert scores[:5].max() < scores[5:50].min()


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


@pytest.mark.parametrize("measure", ["density", "distance"])
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


def test_scarcity_refuses_an_unknown_measure_and_rows_that_are_not_finite():
    with pytest.raises(ValueError, match=r"`measure`.*'rarity'"):
        scarcity_scores(np.eye(2), measure="rarity")
    with pytest.raises(ValueError, match=r"first \[1\]"):
        scarcity_scores([[1.0, 0.0], [np.nan, 0.0]])
