import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adaptive_sampling as ads
from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.windows import WindowConfig, WindowDataset


def make(store, *arguments, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return WindowDataset(store, WindowConfig(*arguments, **keywords))


def test_weights_move_by_overlap(write_store):
    store = write_store(range(17))
    old, longer, between = make(store, 4), make(store, 8), make(store, 4, offset=1)
    weights = [1.0, 3.0, 5.0, 9.0]
    assert ads.transfer_weights(old, longer, weights).tolist() == [2.0, 7.0]
    assert ads.transfer_weights(longer, old, [2.0, 7.0]).tolist() == [2.0, 2.0, 7.0, 7.0]
    assert ads.transfer_weights(old, between, weights).tolist() == [1.5, 3.5, 6.0]
    assert ads.transfer_weights(old, old, weights).tolist() == weights


def test_windows_without_overlap_get_the_mean_and_excluded_ones_stay_out(write_store):
    store = write_store(range(9), range(9), range(3))
    old = make(store, 4)
    new = make(store, 2, tail="cover")
    found = ads.transfer_weights(old, new, [0, 4, 0, 8])
    assert found.tolist() == [0, 0, 4, 4, 0, 0, 8, 8, 3.0]
    assert ads.transfer_weights(old, new, np.full(4, 0.3)).tolist() == [0.3] * 9
    assert len(ads.transfer_weights(old, make(store, 100), [1, 1, 1, 1])) == 0


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 14), st.sampled_from("xy")), min_size=1, max_size=6),
    st.tuples(st.integers(1, 5), st.integers(1, 6), st.sampled_from(["none", "concat"]), st.booleans()),
    st.tuples(st.integers(1, 9), st.integers(1, 6), st.sampled_from(["none", "concat"]), st.booleans()),
    st.integers(0, 5),
)
def test_transfer_equals_counting_common_targets(tmp_path_factory, documents, one, other, seed):
    ids = iter(range(1, 10**6))
    texts = [[next(ids) for _ in range(length)] for length, _ in documents]
    sources = [source for _, source in documents]
    store = TokenStore.write(
        tmp_path_factory.mktemp("s") / "s", texts, vocab_size=200, eos_id=0, sources=sources, append_eos=False
    )
    old, new = (
        make(store, width, stride, pack=pack, tail="pad", mask_repeated_targets=mask)
        for width, stride, pack, mask in (one, other)
    )
    weights = np.random.Generator(np.random.Philox(seed)).integers(0, 4, len(old)).astype(float)
    found = ads.transfer_weights(old, new, weights)
    targets = [[set(row.tolist()) - {-100} for row in ds.read(range(len(ds)))["labels"]] for ds in (old, new)]
    for number, own in enumerate(targets[1]):
        common = np.array([len(own & theirs) for theirs in targets[0]])
        expected = (common * weights).sum() / common.sum() if common.sum() else weights.mean() if len(old) else 1.0
        assert found[number] == pytest.approx(expected, abs=1e-12)
        assert (found[number] == 0) == (expected == 0)


def test_excluded_stays_exactly_zero_at_large_positions(write_store):
    store = write_store(range(60_000))
    old, new = make(store, 10, 3), make(store, 16, 7)
    weights = np.random.Generator(np.random.Philox(0)).random(len(old)) * 1e6
    weights[1000:1100] = 0
    found = ads.transfer_weights(old, new, weights)
    inside = (new.starts() >= 3007) & (new.starts() <= 3284)
    assert inside.sum() > 30
    assert (found[inside] == 0).all()
    assert (found[~inside] > 0).all()


def test_bad_transfers_are_refused(write_store):
    store, other = write_store(range(20)), write_store(range(30))
    old = make(store, 4)
    for weights, message in (
        ([1.0], r"one entry per old window, 4, got 1"),
        ([1, 1, -1, 1], r"finite and not negative, got -1\.0 at position 2"),
        ([1, 1, 1, float("nan")], "got nan at position 3"),
    ):
        with pytest.raises(ValueError, match=message):
            ads.transfer_weights(old, old, weights)
    for weights in (["1"] * 4, [True] * 4, [None] * 4):
        with pytest.raises(TypeError, match="`weights` must be real numbers, got dtype"):
            ads.transfer_weights(old, old, weights)
    with pytest.raises(ValueError, match="`new` must be over the text of `old`"):
        ads.transfer_weights(old, make(other, 4), np.ones(4))
    with pytest.raises(ValueError, match="`reshuffle_documents` must be False"):
        ads.transfer_weights(make(store, 4, pack="concat", reshuffle_documents=True), old, np.ones(4))
    with pytest.raises(TypeError, match="`old` must be a WindowDataset"):
        ads.transfer_weights([1], old, [1])
