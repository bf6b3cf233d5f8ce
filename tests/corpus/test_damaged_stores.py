"""Stores that something happened to: an error that says so, or the right tokens, nothing else."""

import json
import shutil

import numpy as np
import pytest

from adaptive_sampling.corpus import TokenStore, _store_checks
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


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        *((name, value) for name in ("num_tokens", "num_documents", "vocab_size", "eos_id") for value in (
            float("inf"), float("nan"), -1, 4.0, True, "4", None, [4], {}, 10**400
        )),
        *(("version", value) for value in (True, 0, 1.0, "1", float("inf"), None)),
        *(("source_names", value) for value in ("ab", None, 5, [5, "b"], {"a": 1})),
        *(("dtype", value) for value in (None, 5, "<f4", "(", ["<u2"], {}, True)),
        *(("files", value) for value in (None, 5, [], ["tokens.bin"], {"tokens.bin": 4}, {"a": {"bytes": 8.0}})),
        *(("shards", value) for value in (5, "ab", [5, 5], [{}, {}], [{"file": 5, "tokens": 2}] * 2)),
        *(("shards", [{"file": "tokens.bin", "tokens": value}] * 2) for value in (-1, 2.0, True, float("inf"))),
    ],
)  # fmt: skip
def test_every_entry_of_the_metadata_is_checked(tmp_path, entry, value):
    path = TokenStore.write(tmp_path / "s", [[1, 2], [3]], vocab_size=9, eos_id=0, append_eos=True).path
    metadata = json.loads((path / "metadata.json").read_text())
    del metadata["checksum"]
    (path / "metadata.json").write_text(json.dumps({**metadata, entry: value}))
    with pytest.raises(StoreError, match=r"Copy|Write|must be|Upgrade"):
        TokenStore.open(path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format": "adaptive-sampling token store", "version": 1e999}'])
def test_metadata_beyond_what_is_read_is_an_error_of_the_store(tmp_path, text):
    path = TokenStore.write(tmp_path / "s", [[1, 2], [3]], vocab_size=9, eos_id=0).path
    (path / "metadata.json").write_text(text)
    with pytest.raises(StoreError, match=r"metadata\.json of .* must be "):
        TokenStore.open(path)


def overwrite(path, values):
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) - values.nbytes] + values.tobytes())


@pytest.mark.parametrize("block", [1 << 20, 2])
@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ([2, 1, 6, 8], r"document 1 of '.*s' must end in \[2, 8\].*, got 1\. Copy"),
        ([2, 4, 3, 8], r"document 2 of '.*s' must end in \[4, 8\].*, got 3\. Copy"),
        ([-1, 4, 6, 8], r"document 0 of '.*s' must end in \[0, 8\].*, got -1\. Copy"),
        ([2, 9, 6, 8], r"document 1 of '.*s' must end in \[2, 8\].*, got 9\. Copy"),
        ([2, 4, 6, 9], r"document 3 of '.*s' must end in \[6, 8\].*, got 9\. Copy"),
        ([2, 4, 6, 7], "the last document of .* must end at 8"),
    ],
)
def test_documents_that_do_not_follow_one_another_are_named(tmp_path, monkeypatch, block, ends, message):
    monkeypatch.setattr(_store_checks, "_BLOCK", block)
    path = TokenStore.write(tmp_path / "s", [[1], [2], [3], [4]], vocab_size=9, eos_id=0, sources=list("aabb")).path
    TokenStore.open(path)
    overwrite(path / "document_ends.npy", np.array(ends, np.int64))
    with pytest.raises(StoreError, match=message):
        TokenStore.open(path)


@pytest.mark.parametrize(("sources", "bad"), [([0, 0, 2, 1], 2), ([0, -1, 7, 1], 1), ([0, 0, 1, 9], 3)])
def test_documents_of_no_source_are_named(tmp_path, sources, bad):
    path = TokenStore.write(tmp_path / "s", [[1], [2], [3], [4]], vocab_size=9, eos_id=0, sources=list("aabb")).path
    overwrite(path / "document_sources.npy", np.array(sources, np.int32))
    message = rf"document {bad} of '.*s' must be of one of the 2 sources, got number {sources[bad]}\. Copy"
    with pytest.raises(StoreError, match=message):
        TokenStore.open(path)
