import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from adaptive_sampling._random import stable_hash
from adaptive_sampling.corpus import Document, TokenStore, load_tokenizer, prepare, train_tokenizer
from adaptive_sampling.corpus.manifest import read_manifest
from adaptive_sampling.errors import StoreError

DOCUMENTS = [Document("ab"[n % 2], f"d{n}", f"document {n} says {n * n}. é\r\n") for n in range(40)]
DOCUMENTS.insert(7, Document("b", "copy", DOCUMENTS[3].text + "\n"))
SETTINGS = {"vocab_size": 280, "validation_fraction": 0.3}


def test_prepare_makes_two_stores_that_decode_to_the_kept_documents(tmp_path):
    summary = prepare(iter(DOCUMENTS), tmp_path / "deep" / "out", **SETTINGS)
    out = tmp_path / "deep" / "out"
    assert sorted(path.name for path in out.iterdir()) == ["manifest.parquet", "tokenizer.json", "train", "validation"]
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    rows = read_manifest(out / "manifest.parquet")
    tokenizer = load_tokenizer(out / "tokenizer.json")
    assert [row.key for row in rows] == [document.key for document in DOCUMENTS]
    assert [(row.key, row.reason) for row in rows if not row.kept] == [("copy", "exact duplicate of d3")]
    texts = {document.key: document.text for document in DOCUMENTS}
    for split in ("train", "validation"):
        store = TokenStore.open(out / split, verify="hash")
        kept = [row for row in rows if row.kept and row.split == split]
        assert store.check_eos().agrees
        assert store.vocab_size == summary.vocab_size == tokenizer.get_vocab_size()
        assert np.diff(store.document_ends, prepend=0).tolist() == [row.tokens for row in kept]
        assert [store.source_names[index] for index in store.document_sources] == [row.source for row in kept]
        assert store.document_keys.tolist() == [stable_hash(row.content_hash) % 2**64 for row in kept]
        for row, start, end in zip(kept, store.document_starts, store.document_ends, strict=True):
            assert tokenizer.decode(store.tokens[start : end - 1].tolist()) == texts[row.key]
    assert {row.split for row in rows} == {"train", "validation"}
    assert [source.source for source in summary.sources] == ["a", "b"]
    assert sum(source.duplicates for source in summary.sources) == 1
    assert sum(source.train_tokens for source in summary.sources) == TokenStore.open(out / "train").num_tokens
    assert summary.sources[0].bytes == sum(row.bytes for row in rows if row.kept and row.source == "a")
    assert 1 < summary.sources[0].bytes_per_token < 20


def test_prepare_is_deterministic_and_stable_when_documents_are_added(tmp_path):
    for name, documents in (
        ("one", DOCUMENTS),
        ("two", DOCUMENTS),
        ("more", [Document("a", "new", "new"), *DOCUMENTS]),
    ):
        prepare(documents, tmp_path / name, **SETTINGS)
    for file in ("tokenizer.json", "manifest.parquet", "train/tokens.bin", "validation/metadata.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    one, more = (read_manifest(tmp_path / name / "manifest.parquet") for name in ("one", "more"))
    assert [row.split for row in one] == [row.split for row in more[1:]]


def test_prepare_trains_the_tokenizer_on_the_training_split_alone(tmp_path):
    prepare(DOCUMENTS, tmp_path / "out", **SETTINGS)
    splits = {row.key: row.split for row in read_manifest(tmp_path / "out" / "manifest.parquet") if row.kept}
    train = [document.text for document in DOCUMENTS if splits.get(document.key) == "train"]
    assert (tmp_path / "out" / "tokenizer.json").read_text() == train_tokenizer(train, 280).to_str(pretty=True)


@pytest.mark.parametrize("as_path", [False, True])
def test_prepare_uses_a_tokenizer_that_is_given(tmp_path, as_path):
    tokenizer = train_tokenizer(["other text"], vocab_size=258)
    tokenizer.enable_truncation(3)
    tokenizer.save(str(tmp_path / "t.json"))
    prepare(DOCUMENTS, tmp_path / "out", tokenizer=tmp_path / "t.json" if as_path else tokenizer)
    assert TokenStore.open(tmp_path / "out" / "train").vocab_size == tokenizer.get_vocab_size()
    assert TokenStore.open(tmp_path / "out" / "train").document_ends[0] > 10
    assert tokenizer.truncation is not None


def test_prepare_refuses_an_occupied_folder(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(StoreError, match="`out` must be a new or empty folder"):
        prepare(DOCUMENTS, tmp_path, **SETTINGS)


@pytest.mark.parametrize(
    ("name", "value"), [("validation_fraction", 1.0), ("validation_fraction", -0.1), ("seed", 1.5), ("vocab_size", 3)]
)
def test_prepare_refuses_bad_settings_and_leaves_nothing(tmp_path, name, value):
    with pytest.raises(ValueError, match=f"`{name}`.*{value}"):
        prepare(DOCUMENTS, tmp_path / "out", **{**SETTINGS, name: value})
    assert list(tmp_path.iterdir()) == []


def test_prepare_refuses_another_kind_of_tokenizer(tmp_path):
    with pytest.raises(TypeError, match=r"`tokenizer`.*int"):
        prepare(DOCUMENTS, tmp_path / "out", tokenizer=5)


@pytest.mark.parametrize("documents", [[], [Document("a", "k", " \n")]])
def test_prepare_refuses_nothing_to_train_on(tmp_path, documents):
    with pytest.raises(ValueError, match="at least one for training"):
        prepare(documents, tmp_path / "out", **SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_prepare_warns_of_an_empty_validation_split(tmp_path):
    with pytest.warns(UserWarning, match="validation split is empty"):
        prepare(DOCUMENTS[:1], tmp_path / "out", vocab_size=280, validation_fraction=1e-9)
    assert TokenStore.open(tmp_path / "out" / "validation").num_documents == 0


def test_prepare_reports_progress_to_the_end(tmp_path):
    calls = []
    prepare(DOCUMENTS, tmp_path / "out", **SETTINGS, progress=calls.append)
    last = {call.stage: call for call in calls}
    assert list(last) == ["collecting", "reading", "training the tokenizer", "tokenizing", "writing"]
    assert last.pop("collecting").total is None
    assert all(call.done == call.total for call in last.values())
    assert last["reading"].documents == len(DOCUMENTS)
    assert last["tokenizing"].documents == last["writing"].documents == len(DOCUMENTS) - 1


def test_prepare_refuses_what_another_process_prepares(tmp_path):
    def documents():
        yield DOCUMENTS[0]
        with pytest.raises(StoreError, match=f"process {os.getpid()} on .*is writing"):
            prepare(DOCUMENTS, tmp_path / "out", **SETTINGS)
        yield from DOCUMENTS[1:]

    prepare(documents(), tmp_path / "out", **SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_prepare_takes_over_the_lock_of_a_dead_process_of_this_host(tmp_path):
    finished = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    lock = tmp_path / ".out.lock"
    lock.write_text(f"{int(finished.stdout)} elsewhere\n")
    with pytest.raises(StoreError, match=r"on elsewhere.*remove .*\.out\.lock"):
        prepare(DOCUMENTS, tmp_path / "out", **SETTINGS)
    lock.write_text("")
    with pytest.raises(StoreError, match="another process"):
        prepare(DOCUMENTS, tmp_path / "out", **SETTINGS)
    lock.write_text(f"{int(finished.stdout)} {socket.gethostname()}\n")
    prepare(DOCUMENTS, tmp_path / "out", **SETTINGS)
    assert not lock.exists()


def test_corpus_imports_without_its_optional_packages():
    code = (
        "import sys; sys.modules.update(pyarrow=None, tokenizers=None, faiss=None, lightning=None)\n"
        "import adaptive_sampling.corpus, adaptive_sampling.windows, adaptive_sampling.cli"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_prepare_names_a_missing_package_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"`pyarrow` .*\[corpus\]"):
        prepare(DOCUMENTS, tmp_path / "out", **SETTINGS)
    assert list(tmp_path.iterdir()) == []
