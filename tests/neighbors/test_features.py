import numpy as np
import pytest

from adaptive_sampling.neighbors import Documents, HashedFeaturizer, hashed_features, token_features


class Rows:
    """The smallest dataset there is: an array of tokens and one of labels."""

    def __init__(self, tokens, labels=None):
        self.tokens = np.asarray(tokens, np.int64)
        self.labels = self.tokens if labels is None else np.asarray(labels, np.int64)

    def __len__(self):
        return len(self.tokens)

    def read(self, ids):
        return {"input_ids": self.tokens[ids], "labels": self.labels[ids]}


def zipf_rows(rng, rows, width, vocabulary=5000):
    p = 1 / np.arange(1, vocabulary + 1)
    return rng.choice(vocabulary, p=p / p.sum(), size=(rows, width))


def changed(rng, tokens, share):
    copies = tokens.copy()
    count = round(share * tokens.shape[1])
    places = rng.permuted(np.tile(np.arange(tokens.shape[1]), (len(tokens), 1)), axis=1)[:, :count]
    np.put_along_axis(copies, places, zipf_rows(rng, len(tokens), count), axis=1)
    return copies


def test_token_features_count_tokens_and_pairs():
    squares = token_features([[5, 5, 5, 9]]) ** 2
    # Buckets: 5 three times, 9 once, (5, 5) twice, (5, 9) once; whatever falls together adds up.
    assert squares.sum() == pytest.approx(7, rel=1e-5)
    assert np.count_nonzero(squares) in (2, 3, 4)
    assert not np.array_equal(token_features([[1, 2, 3]]), token_features([[3, 2, 1]]))


def test_token_features_ignore_the_padding_at_the_end_alone():
    real = [[7, 8, 9]]
    padded = [[7, 8, 9, 0, 0]]
    np.testing.assert_array_equal(token_features(padded, [[8, 9, 1, -100, -100]]), token_features(real))
    np.testing.assert_array_equal(token_features(real, [[-100, -100, 1]]), token_features(real))
    assert not token_features(padded, [[-100] * 5]).any()


def test_token_features_of_a_batch_are_those_of_its_rows():
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 70000, (9, 13))
    labels = np.where(np.arange(13) < rng.integers(0, 14, 9)[:, None], tokens, -100)
    single = [token_features(t[None], x[None])[0] for t, x in zip(tokens, labels, strict=True)]
    np.testing.assert_array_equal(token_features(tokens, labels), single)


@pytest.mark.parametrize("dataset", [None, [{"input_ids": [1, 2]}], "windows"])
def test_features_say_what_they_need_of_a_dataset(dataset):
    needed = r"WindowDataset.*len\(\) and read\(ids\).*got (NoneType|list|str)\..*scarcity_scores\(array\)"
    with pytest.raises(TypeError, match=needed):
        hashed_features(dataset)
    with pytest.raises(TypeError, match=needed):
        HashedFeaturizer().fit(Rows([[1, 2]])).transform(dataset)


def test_token_features_refuse_wrong_shapes():
    with pytest.raises(ValueError, match=r"`input_ids`.*\(3,\)"):
        token_features([1, 2, 3])
    with pytest.raises(ValueError, match=r"`labels`.*\(1, 3\).*\(1, 2\)"):
        token_features([[1, 2, 3]], [[1, 2]])


@pytest.mark.parametrize("width", [128, 512])
def test_hashed_features_put_near_copies_close_and_others_apart(width):
    rng = np.random.default_rng(1)
    tokens = zipf_rows(rng, 400, width)
    features = hashed_features(Rows(np.concatenate([tokens, changed(rng, tokens, 0.03)])))
    assert features.shape == (800, 64)
    assert features.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-5)
    similarity = features[:400] @ features[400:].T
    assert (np.diag(similarity) >= 0.85).mean() > 0.99
    others = similarity[~np.eye(400, dtype=bool)]
    assert others.max() < 0.75
    assert abs(others.mean()) < 0.02


def test_hashed_features_depend_on_nothing_but_their_arguments():
    rows = Rows(zipf_rows(np.random.default_rng(2), 50, 32))
    features = hashed_features(rows, dim=16)
    np.testing.assert_array_equal(features, hashed_features(rows, dim=16))
    np.testing.assert_allclose(features, hashed_features(rows, dim=16, batch_size=7), atol=1e-6)
    assert np.abs(features - hashed_features(rows, dim=16, seed=1)).max() > 0.1


@pytest.mark.parametrize("count", [0, 1, 2])
def test_hashed_features_of_few_windows_are_defined(count):
    features = hashed_features(Rows(np.tile([[1, 2, 3, 4]], (count, 1))))
    assert features.shape == (count, 64)
    assert (features @ features.T > 0.999).all()


def test_equal_windows_keep_a_direction_though_nothing_tells_them_apart():
    features = hashed_features(Rows(np.tile([[1, 2, 3, 4]], (5000, 1))))
    np.testing.assert_allclose(features @ features[0], 1, rtol=1e-5)


def test_a_window_without_tokens_is_a_row_of_zeros():
    features = hashed_features(Rows([[1, 2], [0, 0]], [[2, 3], [-100, -100]]))
    assert features[0].any()
    assert not features[1].any()


def test_featurizer_compares_held_out_windows_in_the_terms_of_training():
    rng = np.random.default_rng(3)
    train, held_out = zipf_rows(rng, 300, 256), zipf_rows(rng, 40, 256)
    held_out[:20] = changed(rng, train[:20], 0.03)
    featurizer = HashedFeaturizer().fit(Rows(train))
    similarity = featurizer.transform(Rows(held_out)) @ featurizer.transform(Rows(train)).T
    assert (np.diag(similarity)[:20] > 0.85).all()
    assert similarity[20:].max() < 0.75
    # The terms are those of the training windows, whatever else is transformed.
    alone, together = featurizer.transform(Rows(held_out[:5])), featurizer.transform(Rows(held_out))[:5]
    np.testing.assert_allclose(alone, together, atol=1e-6)


def test_featurizer_must_be_fitted_first():
    with pytest.raises(RuntimeError, match="fit"):
        HashedFeaturizer().transform(Rows([[1, 2]]))


@pytest.mark.parametrize("name", ["dim", "batch_size"])
@pytest.mark.parametrize("bad", [0, -1, 2.5, True])
def test_featurizer_refuses_bad_sizes(name, bad):
    with pytest.raises(ValueError, match=rf"`{name}` must be a positive integer, got {bad}"):
        HashedFeaturizer(**{name: bad})


def test_documents_are_counted_as_windows_of_their_length_are(monkeypatch):
    from adaptive_sampling.neighbors import features as module

    rng = np.random.default_rng(4)
    lengths = np.array([3, 1, 0, 50, 7])
    tokens = rng.integers(0, 60_000, lengths.sum()).astype(np.uint16)
    ends = np.cumsum(lengths)
    documents = Documents(tokens, ends)
    expected = [token_features(tokens[None, end - n : end])[0] for end, n in zip(ends, lengths, strict=True)]
    for size in (1 << 22, 4, 1):
        monkeypatch.setattr(module, "_TOKENS_AT_A_TIME", size)
        np.testing.assert_array_equal(documents.count_features(np.arange(5)), expected)
        np.testing.assert_array_equal(documents.count_features(np.array([4, 0, 4])), np.array(expected)[[4, 0, 4]])


def test_near_copied_documents_are_found_whatever_their_lengths():
    rng = np.random.default_rng(5)
    lengths = rng.integers(200, 2000, 100)
    texts = [zipf_rows(rng, 1, n)[0] for n in lengths]
    texts += [changed(rng, text[None], 0.03)[0] for text in texts[:30]]
    features = hashed_features(Documents(np.concatenate(texts), np.cumsum([len(text) for text in texts])))
    similarity = features @ features.T
    assert (np.diag(similarity[:30, 100:]) > 0.85).all()
    np.fill_diagonal(similarity, 0)
    similarity[np.arange(30), np.arange(100, 130)] = similarity[np.arange(100, 130), np.arange(30)] = 0
    assert similarity.max() < 0.75


def test_documents_refuse_ends_that_do_not_fit():
    with pytest.raises(ValueError, match=r"`document_ends` must ascend to at most 3"):
        Documents([1, 2, 3], [2, 4])
    with pytest.raises(ValueError, match="`document_ends`"):
        Documents([1, 2, 3], [2, 1])


def test_most_windows_being_copies_of_one_does_not_hide_that_they_are():
    rng = np.random.default_rng(6)
    rows = zipf_rows(rng, 1000, 256)
    rows[:800] = changed(rng, np.tile(rows[:1], (800, 1)), 0.03)
    features = hashed_features(Rows(rows))
    similarity = features @ features.T
    assert np.quantile(similarity[:800, :800], 0.01) > 0.8
    assert similarity[800:, :800].max() < 0.75


class Pieces:
    """Tokens that lie in pieces: arrays of them are copies, so that nobody may ask for one of the whole."""

    dtype = np.dtype(np.uint16)

    def __init__(self, tokens):
        self._tokens = tokens

    def __len__(self):
        return len(self._tokens)

    def __getitem__(self, index):
        return self._tokens[index]

    def __array__(self, dtype=None, copy=None):
        raise MemoryError("a copy of the whole")


def test_documents_of_tokens_in_pieces_are_read_where_they_lie():
    tokens = np.arange(40, dtype=np.uint16)
    expected = hashed_features(Documents(tokens, [10, 25, 40]))
    assert np.array_equal(hashed_features(Documents(Pieces(tokens), [10, 25, 40])), expected)


@pytest.mark.parametrize("seed", [1.5, None, True, "0"])
def test_a_seed_that_is_no_integer_is_refused(seed):
    with pytest.raises(TypeError, match="`seed` must be an integer, got "):
        hashed_features(Rows(np.ones((3, 4), np.int64)), seed=seed)
