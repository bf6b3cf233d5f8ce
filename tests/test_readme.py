"""The README's code runs as printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# These trainings are too short on purpose for learned weights to count.
pytestmark = pytest.mark.filterwarnings("ignore:no learned weight can count")
README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def script_of(diff):
    """The script after the diff: what is kept and what is added."""
    return "\n".join(line[1:] for line in diff.splitlines() if not line.startswith("-"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    command = [sys.executable, "-m", "adaptive_sampling.cli", "prepare", "--embedded", "--out", "corpus"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    return folder


def test_the_diff_adds_at_most_twelve_lines():
    (diff,) = blocks("diff")
    added = [line for line in diff.splitlines() if line.startswith("+")]
    assert 0 < len(added) <= 12


def test_the_script_after_the_diff_runs_from_another_folder(corpus):
    (diff,) = blocks("diff")
    script = corpus / "train.py"
    script.write_text(script_of(diff).replace("max_steps=200", "max_steps=60"), encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONWARNINGS": "ignore"}
    result = subprocess.run(
        [sys.executable, str(script)], cwd=corpus, capture_output=True, text=True, timeout=300, env=environment
    )
    assert result.returncode == 0, result.stderr
    assert "`Trainer.fit` stopped: `max_steps=60` reached" in result.stderr + result.stdout
    assert list(corpus.glob("lightning_logs/version_0/events.out.*"))


def test_the_comparison_runs_as_printed(corpus, monkeypatch, recwarn):
    import lightning as L
    import torch
    from torch.utils.data import DataLoader, Subset

    import adaptive_sampling as ads

    monkeypatch.chdir(corpus)
    (snippet,) = blocks("python")
    (diff,) = blocks("diff")
    model_only = script_of(diff).split("store = ")[0]
    names = {}
    exec(compile(model_only, "README.md", "exec"), names)

    class Validated(names["Model"]):
        def validation_step(self, batch, batch_idx):
            return self.training_step(batch, batch_idx)

    def make_data():
        window = ads.WindowConfig(seq_len=32, pack="concat")
        train = ads.WindowDataset(ads.TokenStore.open("corpus/train"), window)
        held_out = ads.WindowDataset(ads.TokenStore.open("corpus/validation"), window)
        return TrainingData(train, {"held-out": DataLoader(Subset(held_out, range(16)), batch_size=8)}, batch_size=4)

    from adaptive_sampling.ab import TrainingData

    names |= {
        "make_policy": ads.WeightPolicy,
        "make_module": Validated,
        "make_data": make_data,
        "torch": torch,
        "L": L,
    }
    exec(compile(snippet.replace("max_steps=400", "max_steps=12"), "README.md", "exec"), names)
    assert set(names["result"].verdicts) == {"adaptive", "placebo"}
    assert (corpus / "runs" / "ab" / "report.html").exists()
