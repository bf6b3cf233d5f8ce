import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.corpus.shards import shard_numbers


def slow_numbers(sizes, budget, separator, used=0):
    numbers, shard, filled = [], 0, used
    for size in sizes:
        wanted = size + (separator if filled else 0)
        if filled and filled + wanted > budget:
            shard, filled, wanted = shard + 1, 0, size
        filled += wanted
        numbers.append(shard)
    return numbers


def test_two_documents_and_a_separator_do_not_fit_thirty_bytes():
    assert shard_numbers([10, 10], 30, 15).tolist() == [0, 1]
    assert shard_numbers([10, 10], 35, 15).tolist() == [0, 0]


@given(st.lists(st.integers(1, 30)), st.integers(1, 40), st.integers(0, 10), st.integers(0, 40))
def test_shard_numbers_equal_one_by_one(sizes, budget, separator, used):
    assert shard_numbers(sizes, budget, separator, used=used).tolist() == slow_numbers(sizes, budget, separator, used)


def write(path, documents, **settings):
    return TokenStore.write(path, documents, vocab_size=100, eos_id=0, **settings)


@pytest.mark.parametrize("shard_bytes", [1, 8, 20, 64, 10**6])
def test_a_store_of_several_shards_reads_as_one(tmp_path, shard_bytes):
    rng = np.random.default_rng(0)
    documents = [rng.integers(1, 100, length) for length in [3, 1, 0, 9, 40, 2, 2, 2, 5]]
    whole = write(tmp_path / "whole", documents)
    store = write(tmp_path / "s", documents, shard_bytes=shard_bytes)
    store = TokenStore.open(store.path, verify="hash")
    sizes = [path.stat().st_size for path in sorted(store.path.glob("tokens*.bin"))]
    assert len(sizes) == store.num_shards
    assert min(sizes) > 0
    lengths = 2 * np.diff(whole.document_ends, prepend=0)
    assert all(size <= shard_bytes or size in lengths for size in sizes)
    assert sizes == np.bincount(slow_numbers(lengths.tolist(), shard_bytes, 0), weights=lengths).tolist()
    assert store.tokens.tolist() == whole.tokens.tolist()
    assert len(store.tokens) == store.num_tokens == whole.num_tokens
    assert np.array_equal(np.asarray(store.tokens), whole.tokens)
    at = rng.integers(-whole.num_tokens, whole.num_tokens, (4, 7))
    assert np.array_equal(store.tokens[at], whole.tokens[at])
    for piece in (slice(None), slice(3, 50), slice(10, 10), slice(-5, None), slice(None, None, 3)):
        assert np.array_equal(store.tokens[piece], whole.tokens[piece])
    assert store.tokens[-1] == 0
    assert store.check_eos().agrees
    assert store.document_ends.tolist() == whole.document_ends.tolist()
    if store.num_shards > 1:
        with pytest.raises(IndexError, match=f"got {whole.num_tokens}"):
            store.tokens[whole.num_tokens]
        with pytest.raises(IndexError):
            store.tokens[np.array([whole.num_tokens])]


@pytest.mark.parametrize("shard_bytes", [0, -1, 1.5, True])
def test_a_budget_that_is_none_is_refused(tmp_path, shard_bytes):
    with pytest.raises(ValueError, match="`shard_bytes`"):
        write(tmp_path / "s", [[1]], shard_bytes=shard_bytes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [15, 0])
def test_open_refuses_a_shard_of_odd_or_no_length(tmp_path, size):
    path = write(tmp_path / "s", [[1] * 7] * 3, shard_bytes=16).path
    (path / "tokens-00001.bin").write_bytes(bytes(size))
    with pytest.raises(ValueError, match=rf"tokens-00001\.bin.*expected 16 bytes, got {size}"):
        TokenStore.open(path)
