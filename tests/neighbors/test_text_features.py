import sys

import numpy as np
import pytest

from adaptive_sampling.neighbors import text_features

TEXTS = ["to be or not to be", "the moon is far", "to be or not to bee", ""]


class Encoder:
    """The one method of a SentenceTransformer that is used, on letters."""

    def encode(self, texts, batch_size, show_progress_bar, convert_to_numpy):
        assert not show_progress_bar
        assert len(texts) <= batch_size
        return np.array([[text.count(chr(97 + k)) for k in range(26)] for text in texts], np.float64)


def test_text_features_are_what_the_encoder_makes(tmp_path):
    features = text_features(TEXTS, Encoder(), batch_size=3)
    np.testing.assert_array_equal(features[:, 1], [2, 0, 2, 0])
    assert features.dtype == np.float32
    assert features.shape == (4, 26)
    by_number = text_features(lambda i: TEXTS[i], Encoder(), num_texts=4, out=tmp_path / "texts.npy")
    np.testing.assert_array_equal(by_number, features)
    assert text_features([], Encoder()).shape == (0, 26)


def test_a_missing_encoder_package_is_named_with_the_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ImportError, match=r"`sentence-transformers` must be installed.*\[encoder\]"):
        text_features(TEXTS)


def test_the_number_of_texts_is_asked_for_where_it_is_unknown():
    with pytest.raises(ValueError, match="`num_texts` must be given where"):
        text_features(lambda i: TEXTS[i], Encoder())
    with pytest.raises(ValueError, match="`num_texts` must be given where"):
        text_features(TEXTS, Encoder(), num_texts=4)


def test_the_real_package_makes_features():
    package = pytest.importorskip("sentence_transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = sorted({word for text in TEXTS for word in text.split()})
    tokenizer = Tokenizer(models.WordLevel({word: k for k, word in enumerate(["?", *words])}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = np.random.default_rng(0).standard_normal((len(words) + 1, 16)).astype(np.float32)
    encoder = package.SentenceTransformer(
        modules=[package.sentence_transformer.modules.StaticEmbedding(tokenizer, embedding_weights=weights)],
        device="cpu",
    )
    features = text_features(TEXTS[:3], encoder)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    assert unit[0] @ unit[2] > 0.7 > unit[0] @ unit[1]
