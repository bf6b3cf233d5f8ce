import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.windows import WindowConfig, WindowDataset, audit


def make(store, *arguments, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return WindowDataset(store, WindowConfig(*arguments, **keywords))


def test_audit_names_the_token_in_a_gap(write_store):
    found = audit(make(write_store(range(10)), 4, 5))
    assert (found.covered_targets, found.possible_targets) == (8, 9)
    assert found.never_targets.tolist() == [5]
    assert found.never_share == pytest.approx(1 / 9)
    assert (found.targets_min, found.targets_max) == (0, 1)
    assert "8 of 9" in found.format()
    assert "1 (11.1%), at 5" in found.format()


def test_audit_counts_overlapping_targets(write_store):
    store = write_store(range(10))
    found = audit(make(store, 4, 2))
    assert found.targets_mean * found.possible_targets == pytest.approx(12)
    assert (found.targets_max, found.never_targets.tolist()) == (2, [9])
    covering = audit(make(store, 4, 2, tail="cover"))
    assert (covering.targets_min, covering.targets_max, covering.covered_targets) == (1, 3, 9)
    once = audit(make(store, 4, 2, tail="cover", mask_repeated_targets=True))
    assert (once.targets_min, once.targets_mean, once.targets_max) == (1, 1.0, 1)


def test_audit_compares_tokens_read_with_tokens_there(write_store):
    found = audit(make(write_store(np.zeros(10_000, int)), 1024, 256))
    assert found.windows == 36
    assert found.tokens_read == 36 * 1024
    assert f"{found.read_ratio:.2f}" == "3.69"
    assert "3.69" in str(found)


def test_audit_counts_windows_across_documents_and_what_is_left_out(write_store):
    store = write_store(range(6), range(6), range(2))
    packed = audit(make(store, 3, pack="concat"))
    assert (packed.windows, packed.windows_across_documents, packed.possible_targets) == (4, 2, 13)
    apart = audit(make(store, 3, min_length=3, tail="cover"))
    assert apart.windows_across_documents == 0
    assert (apart.covered_targets, apart.possible_targets, apart.tokens, apart.targets_min) == (10, 11, 14, 0)


def test_audit_lists_ten_examples_in_store_order(write_store):
    found = audit(make(write_store(range(3), range(20, 35), range(3)), 14))
    assert found.never_targets.tolist() == [1, 2, 19, 20]
    many = audit(make(write_store(range(30)), 4, 25))
    assert many.never_targets.tolist() == list(range(5, 15))
    assert "14, ..." in many.format()


def test_audit_of_nothing(write_store):
    found = audit(make(write_store(), 4))
    assert (found.windows, found.possible_targets, found.never_share, found.read_ratio) == (0, 0, 0.0, 0.0)
    assert found.format()


def test_audit_refuses_other_datasets_and_batches_of_nothing(write_store):
    with pytest.raises(TypeError, match="WindowDataset"):
        audit([1, 2])
    with pytest.raises(ValueError, match="`batch_size` must be at least 1, got 0"):
        audit(make(write_store([1] * 9), 4), batch_size=0)
    with pytest.raises(TypeError, match=r"`batch_size` must be an integer, got 1\.5"):
        audit(make(write_store([1] * 9), 4), batch_size=1.5)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 14), st.sampled_from("xy")), min_size=1, max_size=6),
    st.integers(1, 6),
    st.integers(1, 8),
    st.sampled_from(["drop", "cover", "pad"]),
    st.sampled_from(["none", "concat"]),
    st.booleans(),
    st.booleans(),
)
def test_audit_equals_counting_labels(tmp_path_factory, documents, seq_len, stride, tail, pack, mask, offset):
    ids = iter(range(1, 10**6))
    texts = [[next(ids) for _ in range(length)] for length, _ in documents]
    sources = [source for _, source in documents]
    store = TokenStore.write(
        tmp_path_factory.mktemp("s") / "s", texts, vocab_size=200, eos_id=0, sources=sources, append_eos=False
    )
    dataset = make(store, seq_len, stride, tail=tail, pack=pack, mask_repeated_targets=mask, random_offset=offset)
    found = audit(dataset)
    batch = dataset.read(np.arange(len(dataset)))
    counts = np.bincount(batch["labels"][batch["labels"] != -100], minlength=store.num_tokens + 1)
    assert found.covered_targets == (counts > 0).sum()
    assert found.targets_max == counts.max()
    assert found.targets_mean * found.possible_targets == pytest.approx(counts.sum())
    assert found.tokens_read == (batch["input_ids"] != 0).sum()
    groups = texts
    if pack == "concat":
        by_source = [[t for t, s in zip(texts, sources, strict=True) if s == name] for name in "xy"]
        groups = [list(itertools.chain(*own)) for own in by_source]
    possible = sorted(token for group in groups for token in group[1:])
    assert found.possible_targets == len(possible)
    assert found.never_targets.tolist() == [token - 1 for token in possible if not counts[token]][:10]
    assert found.targets_min == min((int(counts[token]) for token in possible), default=0)
