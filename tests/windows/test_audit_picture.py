import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from adaptive_sampling.windows import NumberTokens, WindowConfig, WindowDataset, audit, audit_svg
from adaptive_sampling.windows.histograms import Histogram, third_peak
from adaptive_sampling.windows.ngrams import top_ngram_share


def test_histograms_count_every_value_once():
    values = np.random.Generator(np.random.Philox(0)).integers(0, 500, 1000)
    for histogram in (
        Histogram.of_values(values),
        Histogram.in_doublings(values),
        Histogram.of_counts(np.bincount(values)),
    ):
        assert histogram.counts.sum() == 1000
        assert (histogram.least, histogram.median, histogram.most) == (
            values.min(),
            np.sort(values)[499],
            values.max(),
        )
        for k in range(len(histogram.counts)):
            inside = (values >= histogram.edges[k]) & (values < histogram.edges[k + 1])
            assert histogram.counts[k] == inside.sum()
    nothing = Histogram.of_values(np.zeros(0, np.int64))
    assert (nothing.counts.sum(), nothing.summary()) == (0, "none")


@pytest.mark.parametrize(("most", "edges"), [(0, [0, 1, 2]), (2, [0, 1, 2, 3]), (9, [0, 1, 2, 3, 5, 9, 17])])
def test_doubling_bins_end_behind_the_largest_value(most, edges):
    assert Histogram.in_doublings(np.array([most])).edges.tolist() == edges


def test_third_peak_is_found_where_windows_of_a_third_length_are_many(write_store):
    lengths = np.zeros(129, np.int64)
    lengths[[128, 30, 31, 32]] = 600, 50, 80, 60
    assert third_peak(Histogram.of_counts(lengths)) is None
    lengths[[79, 80]] = 90, 95
    assert third_peak(Histogram.of_counts(lengths)) == 82  # the middle of the bin from 80 to 84
    store = write_store(*[range(1, 130)] * 20, *[range(1, 22)] * 8, *[range(1, 82)] * 9)
    found = audit(WindowDataset(store, WindowConfig(128, tail="pad")))
    assert found.third_length_peak in range(18, 24)
    assert any("third peak" in note for note in found.warnings)


def test_top_ngrams_of_repeated_text():
    rng = np.random.Generator(np.random.Philox(0))
    text = rng.integers(0, 5000, 4000)
    assert top_ngram_share(text) == 0.0
    text[1000:2000] = np.tile(text[:20], 50)
    # 973 n-grams lie in the repeated thousand, 20 kinds of them; the first 20 tokens are once more, with 13.
    assert top_ngram_share(text) == pytest.approx((1000 - 7 + 13) / (4000 - 7), abs=1e-3)
    assert top_ngram_share(np.zeros(3)) == 0.0


def test_audit_says_what_to_think_about(write_store):
    store = write_store(*[range(40 * k + 1, 40 * k + 30) for k in range(10)], range(1, 4))

    def notes(*arguments, **settings):
        with pytest.warns(UserWarning, match="shorter") if settings.pop("short", True) else _quiet():
            dataset = WindowDataset(store, WindowConfig(*arguments, **settings))
        return audit(dataset, batch_size=16).warnings

    assert any(note.startswith("stride 1 copies nearly everything: ") for note in notes(16, 1))
    assert not any("copies" in note for note in notes(16, 8))
    gap = notes(4, 6, tail="pad", short=False)
    assert any("stride 6 is larger than seq_len 4: 2 tokens between" in note for note in gap)
    lost = notes(20)
    assert any(note.startswith("text is lost: 29.1% of the tokens") for note in lost)
    assert any("set of 10 windows is smaller than a batch of 16" in note for note in lost)
    thin = notes(8, 4, thinning=0.1)
    assert any("thinning 0.1 leaves" in note and "Raise min_length first" in note for note in thin)
    assert notes(8, tail="pad", short=False) == ()


class _quiet:
    def __enter__(self):
        return None

    def __exit__(self, *_):
        return None


def test_audit_counts_digits_of_a_known_vocabulary(write_store):
    store = write_store([1, 2, 2, 1], vocab_size=3)
    dataset = WindowDataset(store, WindowConfig(3))
    digits = NumberTokens.from_vocabulary(["<eos>", "the", "7"]).digits
    assert audit(dataset, digits=digits).digit_share == 0.5
    assert audit(dataset).digit_share is None
    with pytest.raises(ValueError, match=r"`digits` must be bool of shape \(3,\), got bool \(2,\)"):
        audit(dataset, digits=digits[:2])


def test_picture_is_whole_and_names_what_was_found(write_store):
    with pytest.warns(UserWarning, match="shorter"):
        dataset = WindowDataset(write_store(*[range(1, 30)] * 10, range(1, 4)), WindowConfig(20))
    picture = audit_svg(audit(dataset), title="a < b & c")
    root = ElementTree.fromstring(picture)
    words = " ".join(text.text for text in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "a < b & c" in words
    assert "10 windows over 293 tokens in 11 documents" in words
    assert "text is lost" in words
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
    bars = list(root.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(bars) > 80
    assert all(float(bar.get("x", 0)) + float(bar.get("width").rstrip("%")) <= 960 for bar in bars[1:])


def test_picture_of_nothing(write_store):
    with pytest.warns(UserWarning, match="no window"):
        dataset = WindowDataset(write_store(), WindowConfig(20))
    ElementTree.fromstring(audit_svg(audit(dataset)))
