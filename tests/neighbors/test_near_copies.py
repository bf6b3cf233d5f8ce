import numpy as np
import pytest

from adaptive_sampling.neighbors import find_near_copies, hashed_features, near_copy_sets, near_duplicates_of


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
    assert len(np.unique(near_copy_sets(features))) < len(windows) / 3


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


@pytest.mark.parametrize("index", ["auto", "exact", "ivf"])
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_sets_do_not_depend_on_where_the_origin_is(index, shift):
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((400, 32))
    rows[200:] = rows[rng.integers(0, 100, 200)] + 0.1 * rng.standard_normal((200, 32))
    expected = near_copy_sets(rows, index="exact")
    assert len(np.unique(expected)) == 200
    np.testing.assert_array_equal(near_copy_sets(rows + shift, index=index), expected)


def planted(rng, num_windows, width, family, share=0.03):
    """Half the windows alone; the other half near-copies: one set of `family`, others of 2 to 9."""
    sizes = [family]
    while sum(sizes) < num_windows // 2:
        sizes.append(min(int(rng.integers(2, 10)), num_windows // 2 - sum(sizes)))
    truth = np.concatenate([np.repeat(np.arange(len(sizes)), sizes), len(sizes) + np.arange(num_windows // 2)])
    originals = zipf(rng, (truth.max() + 1, width))
    windows = changed(rng, originals[truth], share)
    order = rng.permutation(num_windows)
    return windows[order], truth[order]


@pytest.mark.parametrize(("num_windows", "width"), [(1200, 256), (3000, 128)])
def test_planted_truth_at_the_automatic_threshold(num_windows, width):
    rng = np.random.default_rng(5)
    windows, truth = planted(rng, num_windows, width, 500)
    found = find_near_copies(hashed_features(Rows(windows)))
    is_copy, said = np.bincount(truth)[truth] > 1, found.sizes > 1
    assert found.histogram.estimated
    assert (said & is_copy).sum() / said.sum() >= 0.95
    assert (said & is_copy).sum() / is_copy.sum() >= 0.95
    largest = np.flatnonzero(truth == 0)
    assert len(np.unique(found.sets[largest])) == 1
    assert found.sizes[largest[0]] == 500


def test_approximate_search_ranks_as_exact_search_does():
    rng = np.random.default_rng(6)
    windows, _ = planted(rng, 3000, 128, 500)
    features = hashed_features(Rows(windows))
    exact, approximate = (1 / find_near_copies(features, index=index).sizes for index in ("exact", "ivf"))
    ranks = [np.unique(x, return_inverse=True)[1] for x in (exact, approximate)]
    assert np.corrcoef(ranks)[0, 1] >= 0.99


def test_a_chain_is_not_one_set():
    # On a circle, each row is close to the next; those far apart along it are nothing alike.
    angles = np.arange(0, 1.5 * np.pi, 0.05)
    chain = np.stack([np.cos(angles), np.sin(angles)], axis=1) @ np.random.default_rng(7).standard_normal((2, 16))
    found = find_near_copies(np.concatenate([chain, 3 * np.random.default_rng(8).standard_normal((200, 16))]))
    sets = found.sets[: len(chain)]
    assert found.split == 1
    assert len(np.unique(sets)) > 3
    unit = chain / np.linalg.norm(chain, axis=1, keepdims=True)
    for label in np.unique(sets):
        members = unit[sets == label]
        middle = members.sum(0) / np.linalg.norm(members.sum(0))
        assert (members @ middle > 0.75).all()


def test_the_answer_holds_the_threshold_its_histogram_and_the_search():
    rng = np.random.default_rng(9)
    features = hashed_features(Rows(planted(rng, 600, 128, 50)[0]))
    found = find_near_copies(features)
    assert found.histogram.counts.sum() == 600
    assert found.threshold == found.histogram.threshold
    assert found.neighbors.index == "exact"
    assert found.nearest_similarity.shape == (600,)
    np.testing.assert_array_equal(np.bincount(found.sets)[found.sets], found.sizes)
    strict = find_near_copies(features, threshold=0.999)
    assert strict.threshold == 0.999
    assert (strict.sizes <= found.sizes).all()
    assert (strict.sizes < found.sizes).any()


@pytest.mark.parametrize("threshold", [0.6, 0.85, 1.0])
def test_sets_alone_are_those_of_the_whole_answer(threshold):
    windows, _ = planted(np.random.default_rng(10), 1500, 128, 300)
    features = hashed_features(Rows(windows))
    whole = find_near_copies(features, threshold=threshold).sets
    np.testing.assert_array_equal(near_copy_sets(features, threshold=threshold), whole)
    assert len(np.unique(whole)) < 1500


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


def test_features_that_memory_does_not_hold_give_the_same_sets(tmp_path):
    features = hashed_features(Rows(planted(np.random.default_rng(10), 800, 128, 50)[0]))
    np.save(tmp_path / "features.npy", features)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    limited = find_near_copies(mapped, index="exact", memory_limit=100_000)
    np.testing.assert_array_equal(limited.sets, find_near_copies(features, index="exact").sets)
