import os
import subprocess
import sys

import numpy as np
import pytest

from adaptive_sampling import cli
from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.windows import WindowConfig, WindowDataset


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number:02}.txt").write_text(f"text {number} of {number**3} words and words. " * 3)
    (folder / "copy.md").write_text((folder / "03.txt").read_text())
    return folder


@pytest.fixture
def prepared(tmp_path, texts, capsys):
    out = tmp_path / "out"
    arguments = ["prepare", "--source", f"a={texts}/*.txt", "--source", f"b={texts}/*.md", "--vocab-size", "280"]
    assert cli.main([*arguments, "--out", str(out)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return out, captured.out


def assert_one_line_error(capsys, code, *parts):
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert captured.err.startswith("adaptive-sampling: error: ")
    assert captured.err.count("\n") == 1
    for part in parts:
        assert part in captured.err


def test_prepare_prints_what_became_of_each_source(prepared):
    out, printed = prepared
    rows = [line.split() for line in printed.splitlines()]
    heads = "source documents duplicates near-copies left-out train validation tokens bytes/token"
    assert rows[0] == heads.split()
    assert rows[1][:5] == ["a", "30", "0", "0", "0"]
    assert rows[2][:8] == ["b", "1", "1", "0", "1", "0", "0", "0"]
    assert printed.splitlines()[3] == "left out of b: 1 exact duplicate"
    assert int(rows[1][5]) + int(rows[1][6]) == 30
    stores = [TokenStore.open(out / split) for split in ("train", "validation")]
    assert int(rows[1][7]) == sum(store.num_tokens for store in stores)


def test_prepare_with_a_tokenizer_and_other_settings(tmp_path, texts, prepared, capsys):
    out, _ = prepared
    arguments = ["prepare", "--source", f"a={texts}/*.txt", "--tokenizer", str(out / "tokenizer.json")]
    arguments += ["--validation-fraction", "0.5", "--seed", "1", "--out", str(tmp_path / "two")]
    assert cli.main(arguments) == 0
    assert (tmp_path / "two" / "tokenizer.json").read_bytes() == (out / "tokenizer.json").read_bytes()
    assert TokenStore.open(tmp_path / "two" / "validation").num_documents > 6
    assert cli.main([*arguments, "--vocab-size", "300"]) == 2
    assert "`--vocab-size` must be left out beside --tokenizer, got 300" in capsys.readouterr().err


def test_prepare_embedded_adds_both_sources(tmp_path, monkeypatch, capsys):
    library = tmp_path / "lib"
    library.mkdir()
    (library / "m.py").write_text('"""Doc."""\n' + "value = 1\n" * 50)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(library)})
    arguments = ["prepare", "--embedded", "--vocab-size", "300", "--validation-fraction", "0"]
    assert cli.main([*arguments, "--out", str(tmp_path / "out")]) == 0
    assert TokenStore.open(tmp_path / "out" / "train").source_names == ["code", "prose"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["COMMAND", "adaptive-sampling --help"]),
        (["dance"], ["dance"]),
        (["prepare"], ["--out", "prepare --help"]),
        (["prepare", "--out", "{tmp}/o"], ["`--source` must be given", "--embedded"]),
        (["prepare", "--source", "abc", "--out", "{tmp}/o"], ["NAME=GLOB, got 'abc'"]),
        (["prepare", "--source", "a={tmp}/none*", "--out", "{tmp}/o"], ["none*", "matches none"]),
        (["prepare", "--source", "a={tmp}/bad.bin", "--out", "{tmp}/o"], ["bad.bin", "UTF-8", "0xff"]),
        (["prepare", "--source", "a={tmp}/a.txt", "--out", "{tmp}"], ["`out`", "not empty"]),
        (["prepare", "--source", "a={tmp}/a.txt", "--out", "{tmp}/o", "--vocab-size", "x"], ["--vocab-size", "'x'"]),
        (["prepare", "--source", "a={tmp}/a.txt", "--out", "{tmp}/o", "--vocab-size", "9"], ["257, got 9"]),
        (["prepare", "--source", "a={tmp}/a.txt", "--out", "{tmp}/o", "--validation-fraction", "2"], ["got 2.0"]),
        (
            ["prepare", "--source", "a={tmp}/a.txt", "--out", "{tmp}/o", "--tokenizer", "{tmp}/none"],
            ["none", "No such"],
        ),
        (["prepare", "--source", "a={tmp}/a.txt", "--out", "{tmp}/o", "--tokenizer", "{tmp}/a.txt"], ["a.txt", "Save"]),
        (["inspect", "{tmp}/none"], ["none", "metadata.json"]),
        (["inspect", "{tmp}/a.txt"], ["a.txt", "metadata.json"]),
        (["inspect", "{tmp}/none", "--seq-len", "0"], ["`seq_len` must be at least 1, got 0"]),
        (["inspect", "{tmp}/none", "--stride", "4"], ["`--stride` must come with --seq-len"]),
        (["inspect", "{tmp}/none", "--seq-len", "4", "--tail", "keep"], ["--tail", "keep"]),
        (
            ["inspect", "{tmp}/none", "--windows-picture", "p.svg"],
            ["`--windows-picture` must come with --seq-len, got 'p.svg'"],
        ),
        (["inspect", "--windows", "{tmp}/none", "--batch-size", "0"], ["`--batch-size` must be at least 1, got 0"]),
        (["inspect", "--windows", "{tmp}/none", "--group-by", "x"], ["`group_by` must be None unless pack='concat'"]),
    ],
)
def test_bad_input_is_one_line_and_code_2(tmp_path, capsys, arguments, parts):
    (tmp_path / "bad.bin").write_bytes(b"\xff")
    (tmp_path / "a.txt").write_text("words")
    code = cli.main([argument.format(tmp=tmp_path) for argument in arguments])
    assert_one_line_error(capsys, code, *parts)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "bad.bin"]


def test_inspect_shows_what_it_can_without_pyarrow(prepared, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert cli.main(["inspect", str(prepared[0]), "--contamination", "--seq-len", "32"]) == 0
    shown = capsys.readouterr()
    assert "in a row that stand in training text" in shown.out
    assert "not shown: `pyarrow` must be installed to read a manifest" in shown.err
    assert "pip install pyarrow" in shown.err


def test_inspect_refuses_windows_that_no_run_of_32_tokens_fits_in(prepared, capsys):
    code = cli.main(["inspect", str(prepared[0]), "--contamination", "--seq-len", "31"])
    assert_one_line_error(capsys, code, "`--seq-len` must be an integer of at least 32", "got 31", "Try 1024")


def test_inspect_names_a_token_outside_the_vocabulary(tmp_path, capsys):
    path = TokenStore.write(tmp_path / "s", [[1, 2, 3]], vocab_size=10, eos_id=0).path
    (path / "tokens.bin").write_bytes(np.array([1, 2, 10, 0], "<u2").tobytes())
    code = cli.main(["inspect", str(path), "--seq-len", "2"])
    assert_one_line_error(capsys, code, f"token 2 of '{path}' must be below its number of ids, 10, got 10")


def test_inspect_verify_reads_every_file(tmp_path, capsys):
    path = TokenStore.write(tmp_path / "s", [[1, 2, 3]], vocab_size=10, eos_id=0).path
    assert cli.main(["inspect", str(path), "--verify"]) == 0
    capsys.readouterr()
    (path / "tokens.bin").write_bytes(np.array([1, 2, 4, 0], "<u2").tobytes())
    assert cli.main(["inspect", str(path)]) == 0
    capsys.readouterr()
    code = cli.main(["inspect", str(path), "--verify"])
    assert_one_line_error(capsys, code, f"`{path / 'tokens.bin'}`: expected checksum")


def test_inspect_shows_sources_and_windows(prepared, capsys):
    out, _ = prepared
    assert cli.main(["inspect", str(out)]) == 0
    shown = capsys.readouterr().out
    assert str(out / "train") in shown
    assert str(out / "validation") in shown
    store = TokenStore.open(out / "train")
    assert ["a", str(store.num_documents), str(store.num_tokens)] in [line.split() for line in shown.splitlines()]
    assert f"{store.num_documents} documents, {store.num_documents} EOS" in shown
    assert "never a target" not in shown
    windows = ["--seq-len", "16", "--stride", "8", "--pack", "concat", "--tail", "cover"]
    assert cli.main(["inspect", str(out / "train"), *windows]) == 0
    captured = capsys.readouterr()
    assert ["never", "a", "target", "0", "(0.0%)"] in [line.split() for line in captured.out.splitlines()]
    assert captured.err == ""


def test_inspect_windows_writes_a_picture_of_the_first_store(prepared, tmp_path, capsys):
    out, _ = prepared
    picture = tmp_path / "windows.svg"
    arguments = [
        "inspect",
        "--windows",
        str(out),
        "--seq-len",
        "8",
        "--pack",
        "best_fit",
        "--windows-picture",
        str(picture),
    ]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out
    assert printed.count("times a target (min, mean, max)") == 2
    assert "digits" in printed
    assert "unknown" not in printed
    assert "out/train, windows of 8" in picture.read_text()
    grouped = ["inspect", "--windows", str(out / "train"), "--seq-len", "8", "--pack", "concat", "--group-by", "source"]
    assert cli.main(grouped) == 0


def test_inspect_says_when_there_are_no_windows(prepared, capsys, tmp_path):
    out, _ = prepared
    picture = tmp_path / "p.svg"
    arguments = ["inspect", str(out / "train"), "--seq-len", "5000", "--windows-picture", str(picture)]
    assert cli.main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("adaptive-sampling: warning: no window: `seq_len` 5000")
    assert captured.err.count("\n") == 1
    assert f"{out / 'train'}: no windows of 5000 inputs\n" in captured.out
    assert "never a target" not in captured.out
    assert f"{picture}: not written" in captured.out


@pytest.mark.parametrize("name", ["empty.npy", "text.npy", "several.npy", "nan.npy", "short.npy", "gone.npy"])
def test_inspect_refuses_weights_before_it_looks_at_the_store(prepared, tmp_path, monkeypatch, capsys, name):
    out, _ = prepared
    weights = tmp_path / name
    if name == "several.npy":
        with weights.open("wb") as file:
            np.savez(file, a=np.ones(3))
    elif name in ("nan.npy", "short.npy"):
        count = 3 if name == "short.npy" else len(WindowDataset(TokenStore.open(out / "train"), WindowConfig(16)))
        np.save(weights, np.full(count, np.nan))
    elif name != "gone.npy":
        weights.write_text("" if name == "empty.npy" else "no array")
    arguments = ["inspect", str(out), "--seq-len", "16", "--weights", str(weights)]
    assert_one_line_error(capsys, cli.main(arguments), str(weights))


def test_files_are_made_with_their_folders(prepared, tmp_path):
    out, _ = prepared
    picture = tmp_path / "new" / "er" / "p.svg"
    arguments = ["inspect", str(out / "train"), "--seq-len", "16", "--windows-picture", str(picture)]
    assert cli.main(arguments) == 0
    assert picture.exists()
    assert [path.name for path in picture.parent.iterdir()] == ["p.svg"]


def test_a_file_that_cannot_be_made_is_named_by_its_folder(prepared, capsys):
    out, _ = prepared
    assert cli.main(["inspect", str(out / "train"), "--seq-len", "16", "--windows-picture", "/proc/p.svg"]) == 2
    error = capsys.readouterr().err
    assert "error: `/proc`: cannot make a file in this folder (" in error
    assert ".tmp" not in error


@pytest.mark.parametrize("arguments", [["--help"], ["prepare", "--help"], ["inspect", "--help"], ["--version"]])
def test_help_and_version_return_0(capsys, arguments):
    assert cli.main(arguments) == 0
    assert capsys.readouterr().out


def test_interrupt_returns_130_and_leaves_nothing(tmp_path, texts, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    # By module object: the name is that of a function imported there.
    monkeypatch.setattr(sys.modules["adaptive_sampling.corpus._run"], "train_tokenizer", interrupted)
    arguments = ["prepare", "--source", f"a={texts}/*.txt", "--out", str(tmp_path / "out")]
    assert cli.main(arguments) == 130
    assert capsys.readouterr().err == "adaptive-sampling: interrupted\n"
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]


@pytest.mark.parametrize("package", ["numpy", "torch", "adaptive_sampling.windows"])
def test_interrupt_while_packages_are_loaded_returns_130_and_no_traceback(package):
    script = f"""
import sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == {package!r}:
            raise KeyboardInterrupt

from adaptive_sampling import cli
sys.meta_path.insert(0, Interrupted())
sys.exit(cli.main(["inspect", "nowhere"]))
"""
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert finished.returncode == 130
    assert finished.stderr == "adaptive-sampling: interrupted\n"


def test_missing_package_is_one_line(tmp_path, texts, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code = cli.main(["prepare", "--source", f"a={texts}/*.txt", "--out", str(tmp_path / "out")])
    assert_one_line_error(capsys, code, "pyarrow", "[corpus]")


def test_module_runs_as_a_command(tmp_path):
    command = [sys.executable, "-m", "adaptive_sampling.cli", "inspect", str(tmp_path / "none")]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert finished.returncode == 2
    assert "Traceback" not in finished.stderr
    assert finished.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal there")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_whose_reader_has_gone_ends_the_command_in_silence(prepared, unbuffered):
    out, _ = prepared
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    script = f"import sys; from adaptive_sampling.cli import main; sys.exit(main(['inspect', {str(out / 'train')!r}]))"
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=write, stderr=subprocess.PIPE, text=True, env=environment
        )
    finally:
        os.close(write)
    assert done.stderr == ""
    assert done.returncode == 141


def test_a_broken_pipe_to_a_worker_is_an_error_like_others(monkeypatch, capsys):
    def fails(arguments):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(cli, "_subcommands", lambda _: {"do": lambda sub: sub.add_parser("do").set_defaults(run=fails)})
    assert_one_line_error(capsys, cli.main(["do"]), "Broken pipe")


def test_prepare_by_the_command_loads_no_torch(tmp_path, texts):
    arguments = ["prepare", "--source", f"a={texts}/*.txt", "--vocab-size", "280", "--out", str(tmp_path / "out")]
    script = f"import sys; from adaptive_sampling.cli import main; main({arguments!r}); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


def test_every_command_has_its_home(capsys):
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name in cli._HOMES:
        assert f"\n    {name} " in shown
        assert cli.main([name, "--help"]) == 0
        assert f"usage: adaptive-sampling {name}" in capsys.readouterr().out
    assert_one_line_error(capsys, cli.main(["prepair"]), "prepair", *cli._HOMES)


@pytest.mark.parametrize("flag", ["--picture", "--windows-picture"])
def test_a_picture_has_the_name_of_what_it_is(prepared, tmp_path, capsys, flag):
    arguments = ["inspect", str(prepared[0]), "--seq-len", "8", flag, str(tmp_path / "x.png")]
    assert_one_line_error(capsys, cli.main(arguments), f"`{flag}` must end with .svg", "x.png")
    assert not (tmp_path / "x.png").exists()
