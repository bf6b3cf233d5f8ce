"""The examples in docs/ run as printed, each by itself, on a small corpus in place of the embedded one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from adaptive_sampling import cli
from adaptive_sampling.corpus import Document, prepare

pytest.importorskip("tokenizers")
DOCS = Path(__file__).parents[1] / "docs"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(0)
    words = ["".join(letters) for letters in rng.choice(list("abcdefghijk"), (900, 5))]
    texts = [" ".join(rng.choice(words, 800)) for _ in range(60)]
    where = tmp_path_factory.mktemp("docs")
    prepare((Document("notes", f"{k}", text) for k, text in enumerate(texts)), where / "corpus", vocab_size=400)
    return where


@pytest.mark.parametrize("number", range(len(blocks("windows.md", "python"))))
def test_examples_of_windows_run_as_printed(folder, monkeypatch, number):
    monkeypatch.chdir(folder)
    exec(compile(blocks("windows.md", "python")[number], "windows.md", "exec"), {})


def test_the_whole_comparison_runs_as_printed_and_its_file_is_accepted(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (script,), (config,) = blocks("ab.md", "python"), blocks("ab.md", "yaml")
    Path("compare.py").write_text(script, encoding="utf-8")
    Path("my.yaml").write_text(config, encoding="utf-8")
    assert cli.main(["ab", "my.yaml", "--print-commands"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 9
    assert yaml.safe_load(config)["max_steps"] == 200
    short = script.replace("max_steps=200", "max_steps=4").replace("seeds=(0, 1, 2)", "seeds=(0,)")
    Path("short.py").write_text(short, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(DOCS.parent)}
    result = subprocess.run(
        [sys.executable, "short.py"], capture_output=True, text=True, timeout=500, check=False, env=environment
    )
    assert result.returncode == 0, result.stderr
    assert "adaptive: preliminary, 1 seed: " in result.stdout
    assert (folder / "runs" / "compare" / "report.html").exists()
