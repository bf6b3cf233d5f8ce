"""Stores that something happened to: an error that says so, or the right tokens, nothing else."""

import shutil

import numpy as np
import pytest

from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.errors import StoreError

NAMES = ["metadata.json", "tokens-00000.bin", "tokens-00001.bin", "document_ends.npy", "document_sources.npy"]


def mutate(raw, rng):
    """A byte changed, some cut off, added, put twice, zeroed, or two digits exchanged."""
    kind = int(rng.integers(7))
    at = int(rng.integers(len(raw)))
    if kind == 0:
        return raw[:at] + bytes([raw[at] ^ (1 << int(rng.integers(8)))]) + raw[at + 1 :]
    if kind == 1:
        return raw[:at]
    if kind == 2:
        return raw[:at] + rng.bytes(int(rng.integers(1, 9))) + raw[at:]
    if kind == 3:
        return raw + raw[at:]
    if kind == 4:
        return raw[:at] + bytes(min(8, len(raw) - at)) + raw[at + 8 :]
    if kind == 5:
        digits = [place for place, byte in enumerate(raw) if 48 <= byte <= 57] or [at]
        place = digits[int(rng.integers(len(digits)))]
        return raw[:place] + b"%d" % rng.integers(10) + raw[place + 1 :]
    return b""


def try_mutations(tmp_path, count):
    rng = np.random.default_rng(count)
    documents = [rng.integers(0, 90, length) for length in (30, 5, 0, 40, 12)]
    store = TokenStore.write(
        tmp_path / "s", documents, vocab_size=100, eos_id=0, sources=list("aabbc"), keys=range(5), shard_bytes=100
    )
    tokens, ends, names = store.tokens.tolist(), store.document_ends.tolist(), store.source_names
    sources, keys = store.document_sources.tolist(), store.document_keys.tolist()
    errors = 0
    for number in range(count):
        path = tmp_path / "mutated"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(store.path, path)
        file = path / [*NAMES, "document_keys.npy"][number % 6]
        if rng.random() < 0.02:
            file.unlink()
        else:
            file.write_bytes(mutate(file.read_bytes(), rng))
        try:
            found = TokenStore.open(path, verify="hash")
        except StoreError as error:
            errors += str(path) in str(error)
            continue
        assert found.tokens.tolist() == tokens
        assert found.document_ends.tolist() == ends
        assert found.document_sources.tolist() == sources
        assert found.document_keys.tolist() == keys
        assert (found.vocab_size, found.eos_id, found.source_names) == (100, 0, names)
    return errors


def test_mutated_stores_give_an_error_or_the_right_tokens(tmp_path):
    assert try_mutations(tmp_path, 200) > 150


@pytest.mark.soak
def test_ten_thousand_mutated_stores_give_an_error_or_the_right_tokens(tmp_path):
    assert try_mutations(tmp_path, 10_000) > 8000


@pytest.mark.parametrize("name", ["document_ends.npy", "document_sources.npy", "document_keys.npy"])
def test_sizes_alone_never_crash(tmp_path, name):
    rng = np.random.default_rng(0)
    path = TokenStore.write(tmp_path / "s", [[1, 2], [3]], vocab_size=9, eos_id=0).path
    raw = (path / name).read_bytes()
    for at in range(0, len(raw), 3):
        (path / name).write_bytes(raw[:at] + bytes([raw[at] ^ int(rng.integers(1, 256))]) + raw[at + 1 :])
        try:
            TokenStore.open(path)
        except StoreError:
            continue
