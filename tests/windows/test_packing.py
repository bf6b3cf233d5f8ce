import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from adaptive_sampling.corpus import Document, TokenStore, prepare
from adaptive_sampling.windows import WindowConfig, WindowDataset, cu_seqlens, document_mask


def test_cross_document_targets_are_masked(write_store):
    store = write_store([11, 12, 0], [21, 0], [31, 32, 33, 0])
    dataset = WindowDataset(store, WindowConfig(6, pack="concat", mask_cross_document_targets=True))
    item = dataset[0]
    assert (item["labels"] != -100).int().tolist() == [1, 1, 0, 1, 0, 1]
    assert dataset.valid_targets().tolist() == [4]
    assert dataset.cu_seqlens([0]).tolist() == [0, 3, 5, 6]
    assert cu_seqlens(item["document_ids"]).tolist() == [0, 3, 5, 6]
    assert document_mask(item["document_ids"]).sum() == 10
    within = WindowDataset(store, WindowConfig(2, mask_cross_document_targets=True, min_length=3))
    assert within.valid_targets().tolist() == [2, 2]


def test_cu_seqlens_of_a_batch_never_joins_rows():
    ids = np.zeros((2, 3), np.int64)
    assert cu_seqlens(ids).tolist() == [0, 3, 6]
    assert cu_seqlens(ids).dtype == np.int32
    assert document_mask(ids).shape == (2, 1, 3, 3)
    with pytest.raises(ValueError, match=r"`document_ids` .*\(2, 3, 1\)"):
        cu_seqlens(ids[..., None])


def test_a_long_document_gives_full_windows_and_its_rest_is_packed(write_store):
    store = write_store(range(1, 12), range(21, 23), range(31, 35))
    dataset = WindowDataset(store, WindowConfig(4, pack="best_fit"))
    batch = dataset.read(range(len(dataset)))
    assert batch["input_ids"].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [31, 32, 33, 34], [9, 10, 11, 0], [21, 22, 0, 0]]
    assert batch["labels"].tolist() == [
        [2, 3, 4, 5],
        [6, 7, 8, 9],
        [32, 33, 34, -100],
        [10, 11, -100, -100],
        [22, -100, -100, -100],
    ]
    assert dataset.trace(3) | {"document_key": 0} == {
        "window_id": 3,
        "document": 0,
        "document_key": 0,
        "source": "default",
        "start": 8,
        "end": 11,
        "start_in_document": 8,
        "manifest": None,
    }


def write_manifest(folder, **columns):
    pyarrow.parquet.write_table(pa.table(columns), folder / "manifest.parquet")


def test_groups_of_a_manifest_column_are_streams_of_their_own(tmp_path):
    texts = [[1, 2, 3], [11, 12, 13], [4, 5], [14, 15]]
    keys = ["a/1", "b/1", "a/2", "b/2"]
    store = TokenStore.write(tmp_path / "train", texts, vocab_size=99, eos_id=0, keys=keys, append_eos=False)
    order = [3, 1, 0, 2]
    write_manifest(tmp_path, key=[keys[k] for k in order], talk=[["x", "y", "y", "x"][k] for k in order])
    dataset = WindowDataset(store, WindowConfig(4, pack="concat", group_by="talk"))
    assert dataset.read([0, 1])["input_ids"].tolist() == [[1, 2, 3, 14], [11, 12, 13, 4]]
    folders = WindowDataset(store, WindowConfig(4, pack="concat", group_by="folder"))
    assert folders.read([0, 1])["input_ids"].tolist() == [[1, 2, 3, 4], [11, 12, 13, 14]]
    with pytest.raises(ValueError, match=r"`group_by` must be a column .* got 'speaker'\. There are: key, talk"):
        WindowDataset(store, WindowConfig(4, pack="concat", group_by="speaker"))


def test_groups_keep_sources_apart(tmp_path):
    texts, keys = [[1, 2], [3, 4], [5, 6]], ["a", "b", "c"]
    store = TokenStore.write(
        tmp_path / "s", texts, vocab_size=9, eos_id=0, keys=keys, sources=["x", "y", "x"], append_eos=False
    )
    write_manifest(tmp_path / "s", key=keys, talk=["t", "t", "t"])
    dataset = WindowDataset(store, WindowConfig(3, pack="concat", group_by="talk"))
    assert dataset.read([0])["input_ids"].tolist() == [[1, 2, 5]]


def test_groups_of_a_prepared_folder(tmp_path):
    documents = [Document("x", f"{folder}/{k}", f"text {folder} {k} " * 20) for k in range(6) for folder in "ab"]
    with pytest.warns(UserWarning, match="validation split is empty"):
        prepare(documents, tmp_path / "p", vocab_size=300, validation_fraction=1e-9)
    store = TokenStore.open(tmp_path / "p" / "train")
    dataset = WindowDataset(store, WindowConfig(8, pack="concat", group_by="folder"))
    assert len(dataset.layout.stream_starts) == 2
    assert (np.diff(dataset.documents() % 2) >= 0).all()


def test_groups_without_a_manifest_or_with_other_documents_are_refused(tmp_path, write_store):
    with pytest.raises(ValueError, match=r"`group_by` must have a manifest\.parquet .* got 'folder' and none"):
        WindowDataset(write_store([1, 2]), WindowConfig(1, pack="concat", group_by="folder"))
    store = TokenStore.write(tmp_path / "s", [[1, 2]], vocab_size=9, eos_id=0, keys=["a"])
    write_manifest(tmp_path, key=["b"], talk=["t"])
    with pytest.raises(ValueError, match="`group_by` must have every document of the store"):
        WindowDataset(store, WindowConfig(1, pack="concat", group_by="talk"))
