from collections import Counter

import numpy as np
import pytest

from adaptive_sampling import TokenStore
from adaptive_sampling.windows import (
    WindowConfig,
    WindowDataset,
    length_prior,
    recurrence,
    recurrence_prior,
    recurring_share,
)

VOCAB, EOS = 3000, 2999


def language(rng, words, length, first):
    """Text of a language of its own: words of three tokens each, frequent and rare ones, the next by the one before."""
    tokens = rng.integers(first, first + 400, (words, 3))
    word, chosen = 0, []
    for _ in range(length // 3):
        word = (word * 7 + int(rng.zipf(1.6))) % words
        chosen.append(word)
    return tokens[chosen].reshape(-1)


def store_of(path, documents):
    return TokenStore.write(path, documents, vocab_size=VOCAB, eos_id=EOS, keys=[f"{i}" for i in range(len(documents))])


@pytest.fixture
def mixed(tmp_path):
    """Forty documents of a common language, one of another, twenty of soup; and which windows are soup."""
    rng = np.random.default_rng(0)
    common = np.split(language(rng, 500, 15_960, 0), 40)
    rare = [language(rng, 60, 1200, 1000)]
    soup = [rng.permutation(np.concatenate(common))[:400] for _ in range(20)]
    dataset = WindowDataset(store_of(tmp_path / "store", [*common, *rare, *soup]), WindowConfig(64, pack="concat"))
    return dataset, dataset.documents() >= 41, dataset.documents() == 40


def test_soup_gets_less_weight_and_a_rare_language_does_not(mixed):
    dataset, soup, rare = mixed
    prior = recurrence_prior(dataset)
    assert prior.name == "recurrence"
    assert set(prior.factors) == {0.1, 1.0}
    assert (prior.factors[soup] < 1).mean() > 0.9
    assert rare.sum() > 5
    assert (prior.factors[rare] == 1).mean() > 0.9
    assert (prior.factors[~soup] == 1).mean() > 0.95
    assert prior.num_excluded == 0
    np.testing.assert_array_equal(prior.factors, recurrence_prior(dataset).factors)


def test_a_factor_of_zero_excludes_with_the_reason(mixed):
    dataset, _, _ = mixed
    prior = recurrence_prior(dataset, factor=0, reason="soup")
    first = int((prior.factors == 0).argmax())
    assert prior.why(first) == ["soup"]
    assert prior.num_excluded == prior.reasons["soup"].sum() > 0
    both = length_prior(dataset) * prior
    assert "soup" in both.why(first)


@pytest.mark.parametrize("config", [WindowConfig(16, 5, pack="concat"), WindowConfig(16, tail="pad"), WindowConfig(4)])
@pytest.mark.parametrize("ngram", [2, 3])
def test_shares_are_those_of_a_slow_count(tmp_path, config, ngram):
    rng = np.random.default_rng(3)
    store = store_of(tmp_path / "store", [rng.integers(0, 9, length) for length in (40, 7, 23, 60)])
    dataset = WindowDataset(store, config)
    tokens = np.asarray(store.tokens).tolist()
    places = Counter(tuple(tokens[i : i + ngram]) for i in range(len(tokens) - ngram + 1))
    shares, chance = recurring_share(dataset, ngram)
    batch = dataset.read(np.arange(len(dataset)))
    for share, inputs, labels in zip(shares, batch["input_ids"].tolist(), batch["labels"], strict=True):
        real = inputs[: int(np.flatnonzero(labels != -100).max()) + 1]
        own = [tuple(real[i : i + ngram]) for i in range(len(real) - ngram + 1)]
        assert share == (sum(places[gram] > 1 for gram in own) / len(own) if own else 1.0)
    assert 0 < chance < 1


def test_of_a_long_text_a_part_of_the_runs_is_looked_at(mixed, monkeypatch):
    dataset, soup, _ = mixed
    whole = recurring_share(dataset)[0]
    monkeypatch.setattr(recurrence, "_LEAST_BITS", 15)
    monkeypatch.setattr(recurrence, "_MOST_BITS", 17)
    monkeypatch.setattr(recurrence, "_AT_A_TIME", 1000)
    part = recurring_share(dataset)[0]
    assert not np.array_equal(whole, part)
    assert np.corrcoef(whole, part)[0, 1] > 0.9
    assert (recurrence_prior(dataset).factors[soup] < 1).mean() > 0.8


def test_where_nothing_recurs_nothing_is_told(tmp_path):
    rng = np.random.default_rng(1)
    soup = WindowDataset(store_of(tmp_path / "a", list(rng.integers(0, EOS, (20, 400)))), WindowConfig(32))
    assert (recurrence_prior(soup).factors == 1).all()
    short = WindowDataset(store_of(tmp_path / "b", [[1, 2, 3]]), WindowConfig(2, tail="pad"))
    assert (recurrence_prior(short, ngram=5).factors == 1).all()


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"ngram": 1}, "`ngram` must be at least 2, got 1"),
        ({"ngram": 2.5}, "`ngram` must be an integer, got 2.5"),
        ({"least": 0}, "`least` must be above 0 and below 1, got 0"),
        ({"least": float("nan")}, "`least`"),
        ({"factor": 1.5}, "`factor` must be in .0, 1., got 1.5"),
    ],
)
def test_bad_settings_are_refused(mixed, bad, error):
    with pytest.raises((ValueError, TypeError), match=error):
        recurrence_prior(mixed[0], **bad)


def test_other_datasets_are_refused():
    with pytest.raises(TypeError, match="`dataset` must be a WindowDataset"):
        recurrence_prior([1, 2, 3])
