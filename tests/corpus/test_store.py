import json
import pickle

import numpy as np
import pytest
import torch

from adaptive_sampling.corpus import TokenStore, prepare
from adaptive_sampling.errors import StoreError


def write(path, documents, **settings):
    settings = {"vocab_size": 100, "eos_id": 0, "append_eos": False, **settings}
    return TokenStore.write(path, documents, **settings)


def test_write_keeps_tokens_ends_and_sources(tmp_path):
    store = write(tmp_path / "s", [[1, 2], [3], [4, 5, 6]], sources=["b", "a", "b"], append_eos=True)
    assert store.tokens.tolist() == [1, 2, 0, 3, 0, 4, 5, 6, 0]
    assert store.document_ends.tolist() == [3, 5, 9]
    assert store.document_ends.dtype == np.int64
    assert store.document_sources.tolist() == [0, 1, 0]
    assert store.document_sources.dtype == np.int32
    assert store.source_names == ["b", "a"]
    assert (store.num_tokens, store.num_documents, store.vocab_size, store.eos_id) == (9, 3, 100, 0)
    assert store.path == tmp_path / "s"
    assert not store.tokens.flags.writeable


def test_write_without_append_eos_stores_documents_whole(tmp_path):
    store = write(tmp_path / "s", [[1, 2, 3, 0], [4, 5, 0], [6, 7, 8]])
    assert store.document_starts.tolist() == [0, 4, 7]
    assert store.document_ends.tolist() == [4, 7, 10]
    check = store.check_eos()
    assert str(check) == "3 documents, 2 EOS; no EOS at the end of document 2"
    assert check.without_eos.tolist() == [2]
    assert not check.agrees


def test_check_eos_reports_a_scan_that_disagrees(tmp_path):
    check = write(tmp_path / "s", [[1, 2, 3], [4, 5, 6, 0], [7, 8, 0]]).check_eos()
    assert str(check) == "3 documents, 2 EOS; no EOS at the end of document 0"
    assert check.scan_ends.tolist() == [7, 10]


def test_check_eos_sees_eos_inside_and_empty_documents(tmp_path):
    check = write(tmp_path / "s", [[1, 0, 2, 0], []]).check_eos()
    assert str(check) == "2 documents, 2 EOS; no EOS at the end of document 1; 1 EOS inside documents"
    assert not check.agrees
    fine = write(tmp_path / "t", [[1], []], append_eos=True).check_eos()
    assert fine.agrees
    assert str(fine) == "2 documents, 2 EOS"


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, lambda ids: np.array(ids, np.uint16)])
def test_write_takes_any_integer_sequence_and_generators(tmp_path, kind):
    store = write(tmp_path / "s", (kind(ids) for ids in [[1, 2], [3]]), sources=(name for name in "xy"))
    assert store.tokens.tolist() == [1, 2, 3]
    assert store.source_names == ["x", "y"]


@pytest.mark.parametrize(
    ("vocab_size", "largest", "dtype"),
    [(65536, 65535, np.uint16), (65537, 65536, np.uint32), (70001, 70000, np.uint32)],
)
def test_write_dtype_follows_the_largest_id(tmp_path, vocab_size, largest, dtype):
    store = write(tmp_path / "s", [[largest, 1]], vocab_size=vocab_size)
    assert store.tokens.dtype == dtype
    assert store.tokens[0] == largest


@pytest.mark.parametrize(("ids", "shown"), [([1, 70000], "70000"), ([65536], "65536"), ([3, -1], "-1")])
def test_write_refuses_ids_outside_the_vocabulary(tmp_path, ids, shown):
    with pytest.raises(ValueError, match=f"65535, got {shown} at token {len(ids) - 1} of document 1"):
        write(tmp_path / "deep" / "s", [[5], ids], vocab_size=65536)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("document", [[1.0, 2.0], "text", [[1, 2]], 5, [True], [2**70]])
def test_write_refuses_documents_that_are_no_integers(tmp_path, document):
    with pytest.raises(TypeError, match="document 0"):
        write(tmp_path / "s", [document])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "value"), [("vocab_size", 0), ("vocab_size", 2.0), ("eos_id", 100), ("eos_id", True)])
def test_write_refuses_bad_settings(tmp_path, name, value):
    with pytest.raises(ValueError, match=f"`{name}`"):
        write(tmp_path / "s", [[1]], **{name: value})


@pytest.mark.parametrize("name", ["sources", "keys"])
@pytest.mark.parametrize("labels", [["a"], ["a", "b", "c"]])
@pytest.mark.parametrize("lazy", [False, True])
def test_write_refuses_labels_of_another_length(tmp_path, name, labels, lazy):
    documents = [[1], [2]]
    with pytest.raises(ValueError, match=f"`{name}` must have one entry per document"):
        write(tmp_path / "s", iter(documents) if lazy else documents, **{name: iter(labels) if lazy else labels})
    assert list(tmp_path.iterdir()) == []


def test_write_refuses_a_string_as_labels(tmp_path):
    with pytest.raises(TypeError, match="`sources`"):
        write(tmp_path / "s", [[1], [2]], sources="ab")


def test_write_keys_default_to_content_whatever_the_dtype(tmp_path):
    store = write(tmp_path / "s", [[1, 2], np.array([1, 2], np.uint8), [2, 1]])
    assert store.document_keys.dtype == np.uint64
    assert store.document_keys[0] == store.document_keys[1] != store.document_keys[2]
    wide = write(tmp_path / "t", [[1, 2]], vocab_size=70000, append_eos=True)
    assert wide.document_keys[0] == store.document_keys[0]


def test_write_keys_are_hashed_as_given(tmp_path):
    store = write(tmp_path / "s", [[1], [1], [1]], keys=["a", "b", "a"])
    assert store.document_keys[0] == store.document_keys[2] != store.document_keys[1]
    with pytest.raises(ValueError, match=r"`keys`.*1\.5"):
        write(tmp_path / "t", [[1]], keys=[1.5])


def test_write_refuses_an_occupied_folder_and_takes_an_empty_one(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("mine")
    with pytest.raises(StoreError, match=r"full.*Choose another path"):
        write(tmp_path / "full", [[1]])
    assert (tmp_path / "full" / "note").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert write(tmp_path / "empty", [[1]]).num_tokens == 1


def test_write_leaves_nothing_when_the_documents_fail(tmp_path):
    def documents():
        yield [1]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "s", documents())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("documents", [[], [[]], [[], []]])
def test_write_and_open_without_tokens(tmp_path, documents):
    store = TokenStore.open(write(tmp_path / "s", documents).path, verify="hash")
    assert store.num_tokens == 0
    assert store.num_documents == len(documents)
    assert store.check_eos().num_eos == 0


@pytest.mark.parametrize("size", [1500, 1501, 2001, 0])
def test_open_refuses_a_file_of_wrong_size(tmp_path, size):
    path = write(tmp_path / "s", [np.arange(100)] * 10).path
    content = (path / "tokens.bin").read_bytes()
    assert len(content) == 2000
    (path / "tokens.bin").write_bytes((content + b"\0")[:size])
    with pytest.raises(StoreError, match=f"expected 2000 bytes, got {size}"):
        TokenStore.open(path)


@pytest.mark.parametrize("name", ["tokens.bin", "document_ends.npy", "document_sources.npy", "document_keys.npy"])
def test_open_by_hash_sees_one_flipped_byte(tmp_path, name):
    path = write(tmp_path / "s", [np.arange(100)] * 10).path
    TokenStore.open(path, verify="hash")
    content = bytearray((path / name).read_bytes())
    content[-10] ^= 1
    (path / name).write_bytes(content)
    with pytest.raises(StoreError, match=f"{name}.*expected checksum"):
        TokenStore.open(path, verify="hash")


def test_open_refuses_what_is_missing_damaged_or_newer(tmp_path):
    with pytest.raises(StoreError, match=r"nowhere.*metadata.json"):
        TokenStore.open(tmp_path / "nowhere")
    path = write(tmp_path / "s", [[1]]).path
    with pytest.raises(ValueError, match=r"`verify`.*'all'"):
        TokenStore.open(path, verify="all")
    metadata = json.loads((path / "metadata.json").read_text())
    for change, text in (
        ({"version": 2}, "at most 1, got 2, which is newer"),
        ({"format": "x"}, "must be a token store"),
        ({"dtype": None, "files": None}, "must be complete"),
        ({"num_tokens": 2}, "expected 4 bytes for 2 tokens, got 2"),
    ):
        (path / "metadata.json").write_text(json.dumps({**metadata, **change}))
        with pytest.raises(StoreError, match=text):
            TokenStore.open(path)
    (path / "metadata.json").write_text("{")
    with pytest.raises(StoreError, match="must be JSON"):
        TokenStore.open(path)
    (path / "metadata.json").write_text(json.dumps(metadata))
    (path / "document_keys.npy").unlink()
    with pytest.raises(StoreError, match=r"document_keys.*got no file"):
        TokenStore.open(path)


def test_pickle_carries_the_path_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = write("s", [np.zeros(100_000, int)])
    monkeypatch.chdir("/")
    raw = pickle.dumps(store)
    assert len(raw) < 1000
    assert pickle.loads(raw).num_tokens == 100_000


def test_constructor_is_refused():
    with pytest.raises(TypeError, match=r"TokenStore\.open"):
        TokenStore()


@pytest.mark.parametrize("path", [None, 3])
def test_what_is_no_path_is_named(path):
    with pytest.raises(TypeError, match=rf"`path` must be a path, got {path}"):
        TokenStore.open(path)
    with pytest.raises(TypeError, match=rf"`out` must be a path, got {path}"):
        prepare(iter([]), path)


def test_open_of_a_prepared_folder_names_its_training_split(tmp_path):
    TokenStore.write(tmp_path / "c3" / "train", [[1]], vocab_size=4, eos_id=0)
    with pytest.raises(StoreError, match=r"no metadata\.json\. .*did you mean '.*c3/train'\?"):
        TokenStore.open(tmp_path / "c3")


@pytest.mark.parametrize("bad", [{"documents": None}, {"documents": 5}, {"sources": 5}, {"keys": 5}], ids=str)
def test_what_has_no_entries_is_named(tmp_path, bad):
    with pytest.raises(TypeError, match=f"`{next(iter(bad))}` must be one entry per document, got [N5]"):
        write(tmp_path / "s", **{"documents": [[1]], **bad})
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("bad", ["no", 1, None])
def test_append_eos_is_a_bool(tmp_path, bad):
    with pytest.raises(TypeError, match="`append_eos` must be True or False, got "):
        write(tmp_path / "s", [[1]], append_eos=bad)


def test_documents_may_be_had_by_number_alone(tmp_path):
    class Numbered:
        def __getitem__(self, number):
            return [[1, 2], [3]][number]

    assert write(tmp_path / "s", Numbered()).tokens.tolist() == [1, 2, 3]


def test_metadata_that_is_no_file_is_an_error_of_the_store(tmp_path):
    store = write(tmp_path / "s", [[1]])
    (store.path / "metadata.json").unlink()
    (store.path / "metadata.json").mkdir()
    with pytest.raises(StoreError, match="must be readable, got "):
        TokenStore.open(store.path)
