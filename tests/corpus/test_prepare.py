import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import adaptive_sampling as ads
from adaptive_sampling._random import stable_hash
from adaptive_sampling.corpus import (
    Cleaning,
    Document,
    Source,
    TokenStore,
    audit_contamination,
    load_tokenizer,
    prepare,
    train_tokenizer,
)
from adaptive_sampling.corpus.manifest import content_hash, read_manifest, split_of
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


@pytest.mark.parametrize("value", ["0.1", None, True, [0.1], float("nan")])
def test_prepare_refuses_a_fraction_that_is_no_number(tmp_path, value):
    with pytest.raises(ValueError, match=r"`validation_fraction` must be at least 0 and below 1, got "):
        prepare(DOCUMENTS, tmp_path / "out", validation_fraction=value)


@pytest.mark.parametrize("documents", ["hello", b"x", None, 5, DOCUMENTS[0], Path("a.txt")])
def test_prepare_refuses_what_holds_no_documents(tmp_path, documents):
    with pytest.raises(TypeError, match=r"`documents` must be a Source, or Documents and Sources one by one, got "):
        prepare(documents, tmp_path / "out", **SETTINGS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("item", ["hello", None, ("a", "k", "text")])
def test_prepare_refuses_items_that_are_no_documents_and_leaves_nothing(tmp_path, item):
    with pytest.raises(
        TypeError, match=r"`documents` must be Documents or Sources, got .* at place 2\. Write Document"
    ):
        prepare(iter([*DOCUMENTS[:2], item]), tmp_path / "deep" / "out", **SETTINGS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fields", [("a", "k", 5), ("a", "k", None), ("a", "k", b"x"), ("a", 3, "x"), (None, "k", "x")])
def test_a_document_has_texts_alone(fields):
    with pytest.raises(TypeError, match=rf"of a Document must be a str, got .* in the document {fields[1]!r}\."):
        Document(*fields)


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


def words(seed, count, vocabulary=2000):
    """A text of random words, some of them at the start of a paragraph."""
    rng = np.random.default_rng(seed)
    ids = rng.zipf(1.2, count) % vocabulary
    breaks = ("", "\n\n")
    return " ".join(f"{breaks[place % 40 == 39]}w{number}" for place, number in enumerate(ids.tolist()))


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write_sources(folder):
    """Text, lines and rows in two sources, with copies, near-copies and a fault."""
    folder.mkdir()
    for number in range(12):
        (folder / f"t{number:02}.txt").write_text(words(number, 300))
    (folder / "t12.txt").write_text(words(3, 300) + "\n")
    (folder / "t13.txt").write_text(words(4, 300).replace("w9 ", "w8 "))
    (folder / "t14.txt").write_bytes(b"\xfd\xfc\xfb")
    lines = [json.dumps({"text": words(100 + number, 60)}) for number in range(40)]
    (folder / "rows.jsonl").write_text("\n".join([*lines, "{no"]) + "\n")
    return [
        Source("books", f"{folder}/*.txt", license="CC0", usage="any", cleaning=Cleaning(crlf=True)),
        Source("rows", f"{folder}/*.jsonl"),
    ]


def test_prepare_reads_sources_and_every_document_has_a_row(tmp_path):
    out = tmp_path / "out"
    summary = prepare([*write_sources(tmp_path / "in"), *DOCUMENTS[:3]], out, **SETTINGS)
    rows = read_manifest(out / "manifest.parquet")
    assert len(rows) == 15 + 41 + 3
    by_name = {row.key.rpartition("/")[2]: row for row in rows}
    assert by_name["t12.txt"].duplicate_of == by_name["t03.txt"].key
    assert by_name["t13.txt"].near_copy_set == by_name["t04.txt"].near_copy_set == by_name["t04.txt"].key
    assert by_name["t13.txt"].kept
    assert by_name["t13.txt"].split == by_name["t04.txt"].split
    assert "is not UTF-8" in by_name["t14.txt"].reason
    assert by_name["rows.jsonl:41"].reason.startswith("not JSON")
    assert (by_name["t00.txt"].license, by_name["t00.txt"].usage, by_name["t00.txt"].encoding) == (
        "CC0",
        "any",
        "utf-8",
    )
    assert (by_name["rows.jsonl:7"].position, by_name["rows.jsonl:7"].path) == (7, f"{tmp_path}/in/rows.jsonl")
    books = summary.sources[0]
    assert (books.documents, books.duplicates, books.near_copies) == (15, 1, 2)
    assert books.exclusions == (("exact duplicate", 1), ("not UTF-8", 1))
    tokenizer = load_tokenizer(out / "tokenizer.json")
    for split in ("train", "validation"):
        store = TokenStore.open(out / split, verify="hash")
        for document in range(store.num_documents):
            row = store.manifest_row(document)
            assert row["kept"]
            assert row["split"] == split
            assert row["document"] == document
            assert row["token_end"] == store.document_ends[document]
            if row["path"].endswith(".txt"):
                text = tokenizer.decode(store.tokens[row["token_start"] : row["token_end"] - 1].tolist())
                assert text == Path(row["path"]).read_text()
        with pytest.raises(IndexError, match=str(store.num_documents)):
            store.manifest_row(store.num_documents)


def test_prepare_drops_near_copies_but_the_first(tmp_path):
    sources = write_sources(tmp_path / "in")
    prepare(sources, tmp_path / "out", near_copies="drop", **SETTINGS)
    rows = {row.key.rpartition("/")[2]: row for row in read_manifest(tmp_path / "out" / "manifest.parquet")}
    assert rows["t13.txt"].reason == f"near-copy of {rows['t04.txt'].key}"
    assert rows["t04.txt"].kept
    assert not rows["t13.txt"].kept
    assert rows["t13.txt"].document == -1


def test_paragraph_starts_are_where_the_text_has_them(tmp_path):
    out = tmp_path / "out"
    prepare(write_sources(tmp_path / "in")[:1], out, **SETTINGS)
    tokenizer, store = load_tokenizer(out / "tokenizer.json"), TokenStore.open(out / "train")
    assert store.paragraph_starts.dtype == np.int64
    assert (np.diff(store.paragraph_starts) > 0).all()
    assert np.isin(store.document_starts, store.paragraph_starts).all()
    pieces = [
        tokenizer.decode(piece[piece != store.eos_id].tolist())
        for piece in np.split(np.asarray(store.tokens), store.paragraph_starts[1:])
    ]
    for start, piece in zip(store.paragraph_starts.tolist(), pieces, strict=True):
        assert piece.strip("\n").count("\n\n") == 0
        assert start in store.document_starts or piece[0] not in "\n "
    kept = [row for row in read_manifest(out / "manifest.parquet") if row.kept and row.split == "train"]
    assert len(pieces) == sum(Path(row.path).read_text().count("\n\n") + 1 for row in kept)


@pytest.mark.parametrize("tokenizer", ["bytes", "words"])
def test_paragraph_starts_with_other_tokenizers(tmp_path, tokenizer):
    text = "Été one.\n\n  Two\nstill two.\n \n\nthree é\n\n"
    given = tokenizer
    if tokenizer == "words":
        library = pytest.importorskip("tokenizers")
        vocabulary = {
            word: at for at, word in enumerate(["<unk>", "</s>", "été", "one", ".", "two", "still", "three", "é"])
        }
        given = library.Tokenizer(library.models.WordLevel(vocabulary, unk_token="<unk>"))
        given.normalizer = library.normalizers.Lowercase()
        given.pre_tokenizer = library.pre_tokenizers.Whitespace()
    prepare([Document("a", "k", text)], tmp_path / "out", tokenizer=given, validation_fraction=0)
    store = TokenStore.open(tmp_path / "out" / "train")
    wanted = [0, 3, 7] if tokenizer == "words" else [0, 12, 32]
    assert store.paragraph_starts.tolist() == wanted
    if tokenizer == "bytes":
        assert bytes(store.tokens[:-1].tolist()) == text.encode()
        assert (store.vocab_size, store.eos_id) == (257, 256)


def test_prepare_takes_the_largest_id_of_added_tokens(tmp_path):
    library = pytest.importorskip("tokenizers")
    content = json.loads(train_tokenizer(["some text"], vocab_size=258).to_str())
    content["model"]["vocab"]["zz"] = 65536
    given = library.Tokenizer.from_str(json.dumps(content))
    summary = prepare([Document("a", "k", "some text")], tmp_path / "out", tokenizer=given, validation_fraction=0)
    assert summary.vocab_size == 65537
    assert TokenStore.open(tmp_path / "out" / "train").tokens.dtype == np.uint32


def test_prepare_splits_by_files_and_keeps_sets_together(tmp_path):
    sources = write_sources(tmp_path / "in")
    listed = [f"{tmp_path}/in/t1[23].txt", "d0"]
    prepare([*sources, *DOCUMENTS[:3]], tmp_path / "out", vocab_size=280, validation_files=listed)
    rows = read_manifest(tmp_path / "out" / "manifest.parquet")
    held_out = {row.key.rpartition("/")[2] for row in rows if row.split == "validation"}
    assert held_out == {"t03.txt", "t12.txt", "t04.txt", "t13.txt", "d0"}
    with pytest.raises(ValueError, match=r"`validation_files`.*'nowhere'"):
        prepare(sources, tmp_path / "two", vocab_size=280, validation_files=["nowhere"])
    with pytest.raises(ValueError, match=r"`validation_files`.*\[\]"):
        prepare(sources, tmp_path / "two", vocab_size=280, validation_files=[])


def test_prepare_holds_files_out_however_their_path_is_written(tmp_path, monkeypatch):
    sources = write_sources(tmp_path / "in")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    listed = ["./in/t00.txt", f"{tmp_path}/in/../in/t01.txt", "link/t02.txt", "in//t0[5]*"]
    relative = Source("books", "in/*.txt")
    prepare([relative, sources[1]], tmp_path / "out", vocab_size=280, validation_files=listed)
    rows = read_manifest(tmp_path / "out" / "manifest.parquet")
    assert [row.key for row in rows if row.split == "validation"] == [f"in/t0{n}.txt" for n in (0, 1, 2, 5)]


def test_prepare_names_every_held_out_file_that_no_source_has(tmp_path):
    sources = write_sources(tmp_path / "in")
    (tmp_path / "other.txt").write_text("on disk, in no source")
    listed = [f"{tmp_path}/in/t00.txt", f"{tmp_path}/other.txt", f"{tmp_path}/o*.txt", "nowhere"]
    with pytest.raises(
        ValueError, match=r"`validation_files`.*got '\S*/other\.txt', '\S*o\*\.txt', 'nowhere', which match "
    ):
        prepare(sources, tmp_path / "out", vocab_size=280, validation_files=listed)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="names of files are Unicode there")
def test_prepare_leaves_out_a_file_whose_name_is_not_utf8(tmp_path):
    sources = write_sources(tmp_path / "in")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/in/x\xff.txt")).write_text("text")
    prepare(sources, tmp_path / "out", **SETTINGS)
    (row,) = [row for row in read_manifest(tmp_path / "out" / "manifest.parquet") if "xff" in row.key]
    assert (row.path, row.kept) == (f"{tmp_path}/in/x\\xff.txt", False)
    assert "is not UTF-8: rename it" in row.reason


def test_prepare_splits_oversized_documents_at_paragraphs(tmp_path):
    sources = write_sources(tmp_path / "in")[:1]
    settings = {**SETTINGS, "tokenizer": "bytes", "validation_fraction": 0.0, "shard_bytes": 1500}
    settings.pop("vocab_size")
    prepare(sources, tmp_path / "own", **settings)
    prepare(sources, tmp_path / "split", oversized="split", **settings)
    own, split = (TokenStore.open(tmp_path / name / "train", verify="hash") for name in ("own", "split"))
    rows = [row for row in read_manifest(tmp_path / "split" / "manifest.parquet") if row.kept]
    assert own.num_documents == len(rows) < split.num_documents == sum(row.parts for row in rows)
    assert all(path.stat().st_size <= 1500 for path in split.path.glob("tokens-*.bin"))
    assert split.check_eos().agrees
    for row in rows:
        tokens = split.tokens[row.token_start : row.token_end]
        assert bytes(tokens[tokens != 256].tolist()).decode() == Path(row.path).read_text()
        parts = split.document_ends[row.document : row.document + row.parts]
        assert parts[-1] == row.token_end
        starts = [row.token_start, *parts[:-1].tolist()]
        assert np.isin(starts, split.paragraph_starts).all()
        assert split.manifest_row(row.document + row.parts - 1)["key"] == row.key


def test_decontaminate_cuts_windows_and_says_how_many(tmp_path):
    shared = words(900, 150)
    documents = [Document("a", f"d{n}", words(n, 500)) for n in range(8)]
    documents[2] = Document("a", "d2", words(50, 200) + shared + words(51, 200))
    documents[3] = Document("a", "d3", words(52, 60) + shared + words(53, 900))
    documents[4] = Document("a", "d4", "x" + shared)
    settings = {"vocab_size": 300, "validation_files": ["d3", "d4"]}
    prepare(documents, tmp_path / "plain", **settings)
    stores = [TokenStore.open(tmp_path / "plain" / split) for split in ("train", "validation")]
    assert audit_contamination(*stores, seq_len=64)[0].contaminated > 3
    summary = prepare(documents, tmp_path / "out", decontaminate=True, decontaminate_window=64, **settings)
    train, held_out = (TokenStore.open(tmp_path / "out" / split) for split in ("train", "validation"))
    assert (train.path / "tokens.bin").read_bytes() == (stores[0].path / "tokens.bin").read_bytes()
    assert summary.decontaminated_windows > 3
    for seq_len in (64, 33, 1000):
        assert audit_contamination(train, held_out, seq_len=seq_len)[0].contaminated == 0
    rows = {row.key: row for row in read_manifest(tmp_path / "out" / "manifest.parquet")}
    assert rows["d4"].reason == "contaminated: runs of 32 tokens stand in training text"
    assert (rows["d4"].kept, rows["d4"].parts, rows["d4"].token_start) == (False, 0, -1)
    assert rows["d3"].parts == held_out.num_documents == 2
    assert held_out.check_eos().agrees
    tokenizer = load_tokenizer(tmp_path / "out" / "tokenizer.json")
    for piece in np.split(held_out.tokens, held_out.document_ends[:-1]):
        assert tokenizer.decode(piece[:-1].tolist()) in documents[3].text


def test_prepare_trains_again_when_near_copies_move_documents(tmp_path):
    books, _ = write_sources(tmp_path / "in")
    hashes = sorted(content_hash((tmp_path / "in" / f"t{number}.txt").read_text()) for number in ("04", "13"))

    def parts_them(seed):
        splits = [split_of(one, validation_fraction=0.5, seed=seed) for one in hashes]
        return splits == ["validation", "train"]

    out, seed = tmp_path / "out", next(filter(parts_them, range(1000)))
    prepare(books, out, vocab_size=280, validation_fraction=0.5, seed=seed)
    rows = [row for row in read_manifest(out / "manifest.parquet") if row.kept]
    assert {row.split for row in rows if row.near_copy_set} == {"validation"}
    texts = [Path(row.path).read_text() for row in rows if row.split == "train"]
    assert (out / "tokenizer.json").read_text() == train_tokenizer(texts, 280).to_str(pretty=True)


def test_worker_processes_write_the_same_files(tmp_path, monkeypatch):
    monkeypatch.setattr("adaptive_sampling.corpus.sources.PIECE_BYTES", 3000)
    monkeypatch.setattr("adaptive_sampling.corpus._work.PIECE_BYTES", 3000)
    sources = write_sources(tmp_path / "in")
    prepare(sources, tmp_path / "one", **SETTINGS)
    prepare(sources, tmp_path / "two", num_workers=2, **SETTINGS)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


def test_gutenberg_texts_that_were_cut_out_stay_findable(tmp_path):
    (tmp_path / "book.txt").write_text("Top\n*** START OF THE PROJECT GUTENBERG EBOOK X ***\nBody.\n")
    (tmp_path / "code.py").write_text("x = 1\r\n")
    source = Source("s", f"{tmp_path}/*.*", cleaning=Cleaning.parse("gutenberg,crlf"))
    prepare([source], tmp_path / "out", tokenizer="bytes", validation_fraction=0)
    (removed,) = map(json.loads, (tmp_path / "out" / "removed.jsonl").read_text().splitlines())
    assert removed["part"] == "header"
    assert removed["text"].startswith("Top\n***")
    book, code = read_manifest(tmp_path / "out" / "manifest.parquet")
    assert (book.cleaning, book.bytes) == ("gutenberg", 6)
    assert (code.cleaning, code.bytes) == ("", 7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("near_copies", "maybe"),
        ("oversized", "cut"),
        ("num_workers", -1),
        ("shard_bytes", 0),
        ("decontaminate_window", 0),
    ],
)
def test_prepare_refuses_other_bad_settings_before_any_work(tmp_path, name, value):
    with pytest.raises(ValueError, match=f"`{name}`.*{value}"):
        prepare(DOCUMENTS, tmp_path / "out", **SETTINGS, **{name: value})
    assert list(tmp_path.iterdir()) == []


def test_prepare_refuses_a_file_in_two_sources(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ValueError, match=r"unique keys, got '.*a\.txt' twice"):
        prepare([Source("a", f"{tmp_path}/a*"), Source("b", f"{tmp_path}/*.txt")], tmp_path / "out", **SETTINGS)
    with pytest.raises(ValueError, match=r"unique keys, got 'd0' twice"):
        prepare([*DOCUMENTS, DOCUMENTS[0]], tmp_path / "out", **SETTINGS)
    with pytest.raises(ValueError, match="surrogate in 'k' at character 2"):
        prepare([Document("a", "k", "xy\ud800")], tmp_path / "out", **SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_prepare_needs_room_on_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(OSError, match=r"\.\d MB free, got 0\.0 MB"):
        prepare(DOCUMENTS, tmp_path / "out", **SETTINGS)


def test_a_full_disk_stops_with_its_reason_and_the_next_run_goes_on(tmp_path):
    sources = write_sources(tmp_path / "in")
    prepare(sources, tmp_path / "whole", **SETTINGS)
    code = (
        "import resource, sys\n"
        "from adaptive_sampling import cli\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)\n"
        "sys.exit(cli.main(sys.argv[2:]))"
    )
    arguments = ["prepare", "--out", str(tmp_path / "out"), "--vocab-size", "280", "--validation-fraction", "0.3"]
    for source in sources:
        arguments += ["--source", f"{source.name}={source.pattern}"]
    arguments += ["--license", "books=CC0", "--usage", "books=any", "--clean", "books=crlf"]
    command = [sys.executable, "-c", code]
    failed = subprocess.run([*command, "20000", *arguments], capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert failed.stderr.count("\n") == 1
    assert "`out` must have room" in failed.stderr
    assert "File too large" in failed.stderr
    assert "it goes on" in failed.stderr
    assert not (tmp_path / "out").exists()
    subprocess.run([*command, str(10**9), *arguments], capture_output=True, check=True)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def kill_and_go_on(tmp_path, kills):
    """Kill a run at random moments, then let it end: the files must be those of a run that was left alone."""
    write_sources(tmp_path / "in")
    code = (
        "import sys\n"
        "import adaptive_sampling.corpus.sources as sources, adaptive_sampling.corpus._work as work\n"
        "from adaptive_sampling.corpus import Source, prepare\n"
        "sources.PIECE_BYTES = work.PIECE_BYTES = 3000\n"
        "print('ready', flush=True)\n"
        "given = [Source('books', sys.argv[2] + '/*.txt'), Source('rows', sys.argv[2] + '/*.jsonl')]\n"
        "prepare(given, sys.argv[1], vocab_size=280, validation_fraction=0.3)"
    )

    def command(out):
        return [sys.executable, "-c", code, str(tmp_path / out), str(tmp_path / "in")]

    begun = time.monotonic()
    subprocess.run(command("whole"), check=True, capture_output=True)
    lasts = time.monotonic() - begun
    rng = np.random.default_rng(kills)
    killed = 0
    for _ in range(5 * kills):
        process = subprocess.Popen(command("out"), stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(float(rng.uniform(0, 0.5 * lasts)))
        process.kill()
        process.wait()
        process.stdout.close()
        killed += process.returncode == -9
        if (tmp_path / "out").exists():
            assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
            for left in tmp_path.glob("*out*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            for left in tmp_path.glob(".out*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        if killed == kills:
            break
    assert killed == kills
    subprocess.run(command("out"), check=True, capture_output=True)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["in", "out", "whole"]


def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path):
    kill_and_go_on(tmp_path, 3)


@pytest.mark.soak
def test_a_run_killed_twenty_times_goes_on_to_the_same_bytes(tmp_path):
    kill_and_go_on(tmp_path, 20)


def test_a_run_takes_up_what_is_there_and_nothing_of_another(tmp_path, monkeypatch):
    monkeypatch.setattr("adaptive_sampling.corpus._work.PIECE_BYTES", 3000)
    module = sys.modules["adaptive_sampling.corpus._run"]
    sources = write_sources(tmp_path / "in")
    prepare(sources, tmp_path / "whole", **SETTINGS)
    read, real = [], module.read_chunk

    def stop(*_, **__):
        raise OSError("stop")

    def counted(job):
        read.append(job.number)
        return real(job)

    monkeypatch.setattr(module, "read_chunk", counted)
    for reads in (True, False, True):
        if reads and read == [] and (tmp_path / ".out.work").exists():
            # As after a crash of the machine: a file of the right name with half its bytes.
            text = next((tmp_path / ".out.work" / "read").glob("*3.text"))
            text.write_bytes(text.read_bytes()[:-7])
        with monkeypatch.context() as patched:
            patched.setattr(module, "tokenize_chunk", stop)
            with pytest.raises(OSError, match="stop"):
                prepare(sources, tmp_path / "out", **SETTINGS)
        assert bool(read) == reads
        read.clear()
    # Another setting, or a file that changed, begins anew.
    with monkeypatch.context() as patched:
        patched.setattr(module, "tokenize_chunk", stop)
        with pytest.raises(OSError, match="stop"):
            prepare(sources, tmp_path / "out", **{**SETTINGS, "validation_fraction": 0.2})
    assert read
    read.clear()
    (tmp_path / "in" / "t00.txt").write_text(words(0, 300) + " more")
    prepare(sources, tmp_path / "out", **{**SETTINGS, "validation_fraction": 0.2})
    assert read
    rows = read_manifest(tmp_path / "out" / "manifest.parquet")
    assert rows[0].bytes == len(words(0, 300) + " more")


def test_the_split_stays_when_documents_are_reordered_or_added(tmp_path):
    documents = [Document("a", f"d{n}", words(n, 120)) for n in range(30)]
    settings = {"tokenizer": "bytes", "validation_fraction": 0.4}
    prepare(documents, tmp_path / "one", **settings)
    more = [Document("a", f"new{n}", words(500 + n, 120)) for n in range(5)]
    prepare([*more, *documents[::-1]], tmp_path / "two", **settings)
    one, two = (
        {row.key: row.split for row in read_manifest(tmp_path / name / "manifest.parquet")} for name in ("one", "two")
    )
    assert {key: two[key] for key in one} == one
    assert set(one.values()) == {"train", "validation"}


def test_windows_lead_to_their_rows_and_read_shards(tmp_path):
    sources = write_sources(tmp_path / "in")
    prepare(sources, tmp_path / "one", tokenizer="bytes", validation_fraction=0)
    prepare(sources, tmp_path / "many", tokenizer="bytes", validation_fraction=0, shard_bytes=4000)
    one, many = (
        ads.WindowDataset(ads.TokenStore.open(tmp_path / name / "train"), ads.WindowConfig(seq_len=50, pack="concat"))
        for name in ("one", "many")
    )
    assert many.store.num_shards > 3
    ids = np.arange(0, len(one), 7)
    assert np.array_equal(one.read(ids)["input_ids"], many.read(ids)["input_ids"])
    for window in ids.tolist():
        place = many.trace(window)
        row = place["manifest"]
        assert row == many.store.manifest_row(place["document"])
        assert (row["source"], row["split"], row["kept"]) == (place["source"], "train", True)
        assert row["token_start"] <= place["start"] < row["token_end"]


def test_windows_lead_to_the_file_their_text_is_from(tmp_path, monkeypatch):
    texts = {f"{n}.txt": words(n, 90 + 20 * n) for n in range(4)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    prepare([Source("books", f"{tmp_path}/*.txt")], tmp_path / "out", tokenizer="bytes", validation_fraction=0)
    dataset = ads.WindowDataset(ads.TokenStore.open(tmp_path / "out" / "train"), ads.WindowConfig(40, tail="pad"))
    seen = set()
    for window in range(len(dataset)):
        place, inputs = dataset.trace(window), dataset[window]["input_ids"]
        row = place["manifest"]
        text = texts[Path(row["path"]).name]
        start = place["start_in_document"]
        expected = text.encode()[start : start + 40]
        assert bytes(inputs[: len(expected)].tolist()) == expected
        assert (row["key"], row["split"], row["source"]) == (row["path"], "train", "books")
        assert row["raw_hash"] == hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        seen.add(row["path"])
    assert len(seen) == 4
    (dataset.store.path.parent / "manifest.parquet").write_bytes(b"no table")
    with pytest.raises(StoreError, match=r"manifest\.parquet` must be the manifest of a prepared folder, got"):
        dataset.trace(0)
    assert "manifest" not in dataset.trace(0, manifest=False)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert dataset.trace(0)["manifest"] is None
