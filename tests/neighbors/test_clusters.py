import numpy as np
import pytest

from adaptive_sampling.neighbors import cluster


def test_cluster_finds_separate_heaps_quietly_and_the_same_each_time(capfd):
    rng = np.random.default_rng(0)
    heap = rng.integers(0, 4, 2000)
    features = np.eye(8)[heap] + 0.05 * rng.standard_normal((2000, 8))
    labels = cluster(features, 16, seed=3)
    assert labels.dtype == np.int64
    # No cluster holds rows of two heaps.
    assert 4 <= len(np.unique(labels)) <= 16
    assert len(np.unique(heap * 16 + labels)) == len(np.unique(labels))
    np.testing.assert_array_equal(labels, cluster(features, 16, seed=3))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("count", [0, 1, 2, 5, 65])
def test_cluster_of_few_rows_is_defined_and_quiet(count, capfd):
    labels = cluster(np.random.default_rng(1).standard_normal((count, 80)), 64)
    assert labels.shape == (count,)
    assert ((labels >= 0) & (labels < 64)).all()
    assert capfd.readouterr() == ("", "")


def test_cluster_refuses_what_cannot_be_clustered():
    with pytest.raises(ValueError, match="`num_clusters` must be a positive integer, got 0"):
        cluster(np.eye(3), 0)
    with pytest.raises(ValueError, match=r"`features`.*first \[1\]"):
        cluster([[1.0, 2.0], [np.nan, 0.0]])
