import json
import shutil
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import tokenizers

from adaptive_sampling import cli
from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.corpus.manifest import read_manifest
from adaptive_sampling.corpus.progress import Progress, ProgressBar

DATA = Path(__file__).parent / "data"


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(8):
        text = " ".join(f"w{word}" for word in rng.integers(0, 9999, 200))
        (folder / f"{number}.txt").write_text(f"{text}\r\n")
    (folder / "code.py").write_bytes(b"x = 1\r\n")
    (folder / "rows.jsonl").write_text("\n".join(json.dumps({"body": f"row {n}"}) for n in range(5)) + "\n{\n")
    return folder


def run(*arguments):
    return cli.main([str(argument) for argument in arguments])


def prepare(files, out, *more):
    sources = ["--source", f"books={files}/*.txt", "--source", f"rows={files}/*.jsonl", "--text-field", "rows=body"]
    return run("prepare", *sources, "--tokenizer", "bytes", "--out", out, *more)


def test_prepare_takes_settings_per_source(files, tmp_path, capsys):
    more = ["--source", f"code={files}/*.py", "--code", "code", "--license", "books=CC0", "--license", "MIT"]
    more += ["--clean", "crlf", "--clean", "rows=crlf,min-chars:6", "--usage", "rows=only here", "--workers", "0"]
    assert prepare(files, tmp_path / "out", *more) == 0
    printed = capsys.readouterr().out
    assert "left out of rows: 5 too short, 1 not JSON" in printed
    assert "more than half of rows is left out" in printed
    assert "more than half of books" not in printed
    rows = {row.key.rpartition("/")[2]: row for row in read_manifest(tmp_path / "out" / "manifest.parquet")}
    assert (rows["0.txt"].license, rows["code.py"].license, rows["rows.jsonl:1"].license) == ("CC0", "MIT", "MIT")
    assert (rows["0.txt"].cleaning, rows["code.py"].cleaning) == ("crlf", "")
    assert rows["rows.jsonl:1"].usage == "only here"


def test_prepare_with_decontamination_shards_and_files(files, tmp_path, capsys):
    text = (files / "1.txt").read_text()
    (files / "9.txt").write_text("another start. " * 20 + text)
    more = ["--validation-files", f"{files}/9.txt", "--decontaminate", "--window", "64", "--shard-bytes", "3000"]
    assert prepare(files, tmp_path / "out", *more) == 0
    printed = capsys.readouterr().out
    cut = int(printed.split(" windows of held-out text cut out")[0].splitlines()[-1])
    assert cut > 10
    assert TokenStore.open(tmp_path / "out" / "train").num_shards > 3
    assert run("inspect", tmp_path / "out", "--contamination", "--picture", tmp_path / "lengths.svg") == 0
    shown = capsys.readouterr().out
    assert "held-out windows of 1024 tokens with 32 in a row that stand in training text" in shown
    assert ["books", "1", "0", "0.0%"] in [line.split() for line in shown.splitlines()]
    picture = (tmp_path / "lengths.svg").read_text()
    assert "train: 13 documents" in picture
    xml.etree.ElementTree.fromstring(picture)
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--clean", "nothing"], ["crlf, nfc", "'nothing'"]),
        (["--clean", "nobody=crlf"], ["--source", "'nobody'"]),
        (["--license", "nobody=MIT"], ["`--license`", "'nobody'", "'books', 'rows'"]),
        (["--usage", "nobody=only here"], ["`--usage`", "'nobody'", "without '='"]),
        (["--code", "nobody"], ["`--code`", "'nobody'"]),
        (["--code", "books", "--clean", "books=crlf"], ["`cleaning`", "code"]),
        (["--text-field", "rows=none"], ["`text_field`", "'none'", "'body'"]),
        (["--window", "3"], ["`--window` must come with --decontaminate"]),
        (["--validation-files", "x", "--validation-fraction", "0.1"], ["`--validation-fraction` must be left out"]),
        (["--split-digits"], ["`--split-digits` must be left out beside --tokenizer"]),
        (["--workers", "-1"], ["`num_workers`", "-1"]),
        (["--shard-bytes", "0"], ["`shard_bytes`", "0"]),
        (["--min-confidence", "7"], ["`min_confidence`", "7"]),
        (["--eos", "<none>"], ["<none>"]),
    ],
)
def test_bad_settings_are_one_line_before_any_work(files, tmp_path, capsys, arguments, parts):
    assert prepare(files, tmp_path / "out", *arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    for part in parts:
        assert part in error
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_document_that_the_tokenizer_refuses_is_named_in_one_line(files, tmp_path, capsys, workers):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"w1": 0}, unk_token="<unk>"))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(tmp_path / "t.json"))
    arguments = ["--source", f"a={files}/*.py", "--tokenizer", tmp_path / "t.json", "--workers", workers]
    assert run("prepare", *arguments, "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert "`tokenizer` must encode every document, got " in error
    assert f"for '{files}/code.py'. Give it an unknown token" in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "t.json"]


def test_an_unwritable_target_is_one_line(files, capsys):
    assert prepare(files, "/proc/nowhere/out") == 2
    error = capsys.readouterr().err
    assert "/proc/nowhere" in error
    assert error.count("\n") == 1


def test_a_folder_in_which_no_file_can_be_made_is_named_and_not_a_lock(files, capsys):
    assert prepare(files, "/proc/out") == 2
    error = capsys.readouterr().err
    assert "error: `/proc`: cannot make a file in this folder (" in error
    assert ".lock" not in error


def test_contamination_says_when_there_are_no_held_out_windows(files, tmp_path, capsys):
    assert prepare(files, tmp_path / "out", "--validation-fraction", "0") == 0
    capsys.readouterr()
    assert run("inspect", tmp_path / "out", "--contamination") == 0
    shown = capsys.readouterr().out
    assert shown.endswith("no held-out windows of 1024 tokens, so none stands in training text\n")
    assert "contaminated" not in shown


@pytest.mark.parametrize("content", [b"", b"PAR1 no manifest PAR1", None, "other"])
def test_inspect_names_a_manifest_that_cannot_be_read(files, tmp_path, capsys, content):
    assert prepare(files, tmp_path / "out") == 0
    manifest = tmp_path / "out" / "manifest.parquet"
    if content == "other":
        pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), manifest)
    else:
        manifest.write_bytes(manifest.read_bytes()[:-100] if content is None else content)
    capsys.readouterr()
    assert run("inspect", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert f"`{manifest}` must be the manifest of a prepared folder, got " in error
    assert error.endswith(". Prepare again.\n")
    assert error.count("\n") == 1


def test_import_makes_stores_of_both_formats(tmp_path, capsys):
    assert run("import", "megatron", DATA / "megatron", "--eos-id", 0, "--out", tmp_path / "m", "--name", "mine") == 0
    assert "11 tokens, 3 documents, 3 EOS" in capsys.readouterr().out
    assert TokenStore.open(tmp_path / "m").source_names == ["mine"]
    shutil.copy(DATA / "megatron.bin", tmp_path / "flat.bin")
    assert run("import", "nanogpt", tmp_path / "flat.bin", "--eos-id", 0, "--out", tmp_path / "n") == 0
    assert TokenStore.open(tmp_path / "n").tokens.tolist() == TokenStore.open(tmp_path / "m").tokens.tolist()
    arguments = ["import", "megatron", DATA / "megatron", "--eos-id", 0, "--out", tmp_path / "x", "--dtype", "uint16"]
    assert run(*arguments) == 2
    assert "`--dtype` must be left out" in capsys.readouterr().err


def test_inspect_of_a_store_refuses_what_needs_a_prepared_folder(tmp_path, capsys):
    TokenStore.write(tmp_path / "s", [[1]], vocab_size=5, eos_id=0)
    assert run("inspect", tmp_path / "s", "--contamination") == 2
    assert "`--contamination` must come with a folder made by prepare" in capsys.readouterr().err


def test_progress_is_shown_on_a_terminal_alone(monkeypatch, capsys):
    ProgressBar()(Progress("reading", 5, 10, None))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    bar = ProgressBar()
    bar(Progress("tokenizing", 3, 10, 10))
    bar.close()
    assert "tokenizing: [####################] 100%, 3 documents" in capsys.readouterr().err
