import shutil
from pathlib import Path

import numpy as np
import pytest

from adaptive_sampling.corpus import TokenStore, import_megatron, import_nanogpt
from adaptive_sampling.errors import StoreError

DATA = (
    Path(__file__).parent / "data"
)  # megatron*.bin and .idx were written by IndexedDatasetBuilder of megatron-core 0.x


@pytest.mark.parametrize("suffix", ["", ".bin", ".idx"])
def test_megatron_files_come_back_token_for_token(tmp_path, suffix):
    store = import_megatron(f"{DATA / 'megatron'}{suffix}", tmp_path / "s", eos_id=0, source="mine")
    assert store.tokens.tolist() == [5, 6, 7, 0, 1, 2, 3, 0, 65535, 9, 0]
    assert store.document_ends.tolist() == [4, 8, 11]
    assert (store.vocab_size, store.tokens.dtype, store.source_names) == (65536, np.uint16, ["mine"])
    assert store.check_eos().agrees


def test_megatron_files_of_wide_ids_come_back_too(tmp_path):
    store = import_megatron(DATA / "megatron32", tmp_path / "s", eos_id=0, vocab_size=100_000)
    assert store.tokens.tolist() == [70000, 1, 0, 2, 0]
    assert (store.vocab_size, store.tokens.dtype) == (100_000, np.uint32)


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("idx", lambda raw: raw[:-1], "expected"),
        ("idx", lambda raw: b"x" + raw[1:], "must be an index"),
        ("idx", lambda raw: raw[:17] + b"\x07" + raw[18:], "got 7"),
        ("idx", lambda raw: raw[:9] + b"\x02" + raw[10:], "index version must be 1, got 2"),
        ("idx", lambda raw: b"", "must be an index"),
        ("bin", lambda raw: raw[:-1], "by its index, got 21"),
        ("bin", lambda raw: b"", "by its index, got 0"),
    ],
)
def test_damaged_megatron_files_are_named(tmp_path, name, change, text):
    for suffix in ("bin", "idx"):
        shutil.copy(DATA / f"megatron.{suffix}", tmp_path / f"m.{suffix}")
    file = tmp_path / f"m.{name}"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(StoreError, match=rf"m\.{name}.*{text}"):
        import_megatron(tmp_path / "m", tmp_path / "s", eos_id=0)
    assert not (tmp_path / "s").exists()


def test_a_missing_half_is_named(tmp_path):
    shutil.copy(DATA / "megatron.idx", tmp_path / "m.idx")
    with pytest.raises(StoreError, match=r"m\.bin.*no file"):
        import_megatron(tmp_path / "m", tmp_path / "s", eos_id=0)
    with pytest.raises(StoreError, match=r"n\.idx.*No such"):
        import_megatron(tmp_path / "n", tmp_path / "s", eos_id=0)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_nanogpt_files_are_split_at_eos(tmp_path, dtype):
    ids = np.array([1, 2, 9, 3, 9, 9, 4, 5], dtype=dtype)
    ids.tofile(tmp_path / "train.bin")
    store = import_nanogpt(tmp_path / "train.bin", tmp_path / "s", eos_id=9, dtype=dtype)
    assert store.tokens.tolist() == ids.tolist()
    assert store.document_ends.tolist() == [3, 5, 6, 8]
    assert str(TokenStore.open(store.path).check_eos()) == "4 documents, 3 EOS; no EOS at the end of document 3"


def test_nanogpt_files_without_a_document_end_are_pointed_out(tmp_path, recwarn):
    tokens = np.full(70_000, 3, np.uint16)
    tokens.tofile(tmp_path / "train.bin")
    with pytest.warns(UserWarning, match=r"none of the 70000 tokens of .*train\.bin is `eos_id` 9"):
        assert import_nanogpt(tmp_path / "train.bin", tmp_path / "s", eos_id=9).num_documents == 1
    recwarn.clear()
    tokens[-1] = 9
    tokens.tofile(tmp_path / "train.bin")
    assert import_nanogpt(tmp_path / "train.bin", tmp_path / "t", eos_id=9).num_documents == 1
    assert not recwarn


def test_nanogpt_files_that_cannot_be_are_refused(tmp_path):
    (tmp_path / "odd.bin").write_bytes(b"123")
    with pytest.raises(StoreError, match=r"odd\.bin.*got 3 bytes"):
        import_nanogpt(tmp_path / "odd.bin", tmp_path / "s", eos_id=0)
    with pytest.raises(ValueError, match=r"`dtype`.*int64"):
        import_nanogpt(tmp_path / "odd.bin", tmp_path / "s", eos_id=0, dtype="int64")
    np.array([5, 70000], np.uint32).tofile(tmp_path / "wide.bin")
    with pytest.raises(ValueError, match="got 70000"):
        import_nanogpt(tmp_path / "wide.bin", tmp_path / "s", eos_id=0, dtype="uint32", vocab_size=65536)
    assert not (tmp_path / "s").exists()
