"""`adaptive-sampling ab` and `report`, as typed by someone whose module lies in a folder of their own."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from adaptive_sampling import cli

pytestmark = [
    pytest.mark.filterwarnings("ignore:no learned weight can count"),
    pytest.mark.filterwarnings("ignore:.*restoring states from the checkpoint.*"),
]

MODULE = '''
import lightning as L, torch, torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

import adaptive_sampling as ads
from adaptive_sampling.ab import TrainingData

class Text(Dataset):
    """Random tokens; half of the windows are copies of one."""
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(1, 60, (count, 17), generator=generator)
        self.tokens[count // 2 :] = self.tokens[0]
    def __len__(self):
        return len(self.tokens)
    def __getitem__(self, i):
        return {"input_ids": self.tokens[i, :-1], "labels": self.tokens[i, 1:]}

class Data(L.LightningDataModule):
    def __init__(self, count=48, batch_size=4):
        super().__init__()
        self.count, self.batch_size = count, batch_size
    def train_dataloader(self):
        return DataLoader(Text(self.count, 0), batch_size=self.batch_size, shuffle=True)
    def val_dataloader(self):
        return [DataLoader(Text(12, 1), batch_size=6), DataLoader(Text(12, 2), batch_size=6)]

class Model(L.LightningModule):
    def __init__(self, lr=0.1):
        super().__init__()
        self.lr = lr
        self.table = torch.nn.Embedding(60, 60)
    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.table(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten())
    validation_step = training_step
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)

class Wrong(Data):
    def val_dataloader(self):
        return None

class Tuples(Data):
    def train_dataloader(self):
        return DataLoader(list(zip(range(9), range(9))), batch_size=2)

def make_policy(power=2.0):
    return ads.WeightPolicy(power=power)

def boom():
    raise RuntimeError("no such\\nmood.")

class Cellar(Data):
    def setup(self, stage):
        open("cellar.txt")

class Silent(Model):
    def validation_step(self, batch, batch_idx):
        return None

class Hidden(Model):
    def training_step(self, batch, batch_idx):
        return -self.table(batch["input_ids"]).log_softmax(-1).gather(-1, batch["labels"][..., None]).mean()

NUMBER = 3
'''
ARMS: list[dict[str, Any]] = [
    {"name": "uniform"},
    {"name": "adaptive", "update_every": 2},
    {"name": "loss only", "kind": "loss", "update_every": 2},
    {"name": "scarcity"},
    {"name": "mine", "policy": "a_users_gpt:make_policy", "update_every": 2},
    {"name": "multinomial", "policy": {"cap": 3}},
    {"name": "placebo", "placebo_of": "adaptive"},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "a_users_gpt.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "a_users_gpt", raising=False)
    return tmp_path


def write(folder: Path, **changes: Any) -> str:
    config = {
        "module": {"path": "a_users_gpt.Model", "arguments": {"lr": 0.2}},
        "data": "a_users_gpt.Data",
        "max_steps": 8,
        "seeds": 1,
        "out": "out",
        "trainer": {"accelerator": "cpu"},
        "arms": ARMS[:1],
        **changes,
    }
    (folder / "ab.yaml").write_text(yaml.safe_dump({key: value for key, value in config.items() if value is not None}))
    return "ab.yaml"


def test_ab_runs_every_kind_of_arm_and_report_says_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write(folder, arms=ARMS)
    assert cli.main(["ab", config]) == 0
    printed = capsys.readouterr()
    result = json.loads((folder / "out" / "results.json").read_text())
    assert result["arms"] == [arm["name"] for arm in ARMS]
    assert {run["status"] for run in result["runs"]} == {"finished"}
    for arm in ARMS:
        assert str(arm["name"]) in printed.out
    kinds = {run["arm"]: run["settings"]["arm"] for run in result["runs"]}
    assert kinds["multinomial"]["draws"] == "multinomial"
    assert len({kinds[name]["policy"] for name in ("adaptive", "loss only", "scarcity", "mine", "multinomial")}) == 5
    assert kinds["placebo"]["policy"] == kinds["adaptive"]["policy"]
    assert kinds["placebo"]["update_every"] == 2
    # Half of the held-out windows copy each other, none copies training text.
    assert "No held-out window is a near-copy of training text." in result["notes"]
    assert any("Too little held-out text: 24 windows" in note for note in result["notes"])
    before = (folder / "out" / "results.json").read_bytes()
    (folder / "out" / "results.json").unlink()
    assert cli.main(["report", "out"]) == 0
    assert (folder / "out" / "results.json").read_bytes() == before
    assert "preliminary, 1 seed" in capsys.readouterr().out
    assert {"report.html", "report.md", "timing.json"} <= {path.name for path in (folder / "out").iterdir()}


def test_ab_takes_threshold_and_clusters_of_an_arm(folder: Path) -> None:
    arms = [
        ARMS[0],
        {"name": "all copies", "kind": "scarcity", "scarcity": {"threshold": 0.01}, "update_every": 1},
        {"name": "three", "kind": "loss", "groups": {"clusters": 3}, "update_every": 1},
    ]
    assert cli.main(["ab", write(folder, arms=arms)]) == 0
    analysis = {path.name.rpartition("-")[0]: np.load(path) for path in (folder / "out" / "analysis").glob("*.npy")}
    assert set(analysis) == {"scarcity-above-0.01", "3-clusters"}
    assert len(np.unique(analysis["3-clusters"])) == 3
    assert (analysis["scarcity-above-0.01"] < 1).mean() > 0.5


STORE = """
from pathlib import Path
import numpy as np
from torch.utils.data import DataLoader
import adaptive_sampling as ads
from adaptive_sampling.ab import TrainingData

def stored(path="store"):
    \"\"\"Forty documents of sentences, and twenty of the same tokens in no order.\"\"\"
    rng = np.random.default_rng(0)
    sentences = rng.integers(1, 59, (30, 10))
    text = [sentences[rng.integers(0, 30, 10)].reshape(-1) for _ in range(40)]
    soup = [rng.permutation(np.concatenate(text))[:100] for _ in range(20)]
    if not Path(path).exists():
        ads.TokenStore.write(path, [*text, *soup], vocab_size=60, eos_id=59, keys=[f"{i}" for i in range(60)])
    dataset = ads.WindowDataset(ads.TokenStore.open(path), ads.WindowConfig(16))
    return TrainingData(dataset, {"a": DataLoader(dataset, batch_size=6)}, batch_size=4)
"""


def test_adaptive_arms_on_a_token_store_know_what_recurs(folder: Path) -> None:
    (folder / "a_users_store.py").write_text(STORE)
    arms = [
        {"name": "uniform"},
        {"name": "adaptive", "update_every": 1},
        {"name": "without", "kind": "adaptive", "priors": "none", "update_every": 1},
        {"name": "alone", "kind": "scarcity", "scarcity": "none", "priors": "recurrence", "update_every": 1},
    ]
    assert cli.main(["ab", write(folder, arms=arms, data="a_users_store.stored")]) == 0
    (path,) = (folder / "out" / "analysis").glob("recurrence-*.npy")
    prior = np.load(path)
    assert set(prior) == {0.1, 1.0}
    assert (prior == 0.1).mean() == pytest.approx(1 / 3, abs=0.05)
    runs = json.loads((folder / "out" / "results.json").read_text())["runs"]
    policies = {run["arm"]: run["settings"]["arm"].get("policy") for run in runs}
    assert len(set(policies.values())) == 4


def test_ab_takes_priors_from_a_file(folder: Path) -> None:
    np.save(folder / "mine.npy", np.linspace(0.5, 1.5, 48))
    arms = [{"name": "uniform"}, {"name": "a", "kind": "adaptive", "priors": "mine.npy", "update_every": 1}]
    assert cli.main(["ab", write(folder, arms=arms)]) == 0
    assert not list((folder / "out" / "analysis").glob("recurrence*"))


def test_ab_prints_a_command_per_run_that_does_that_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write(folder, arms=[ARMS[0], ARMS[2]])
    assert cli.main(["ab", config, "--print-commands", "--set", "seeds=2", "--set", "module.arguments.lr=0.3"]) == 0
    printed = capsys.readouterr()
    commands = [shlex.split(line) for line in printed.out.splitlines()]
    assert [command[-1] for command in commands] == ["uniform:0", "loss only:0", "uniform:1", "loss only:1"]
    assert "adaptive-sampling report out" in printed.err
    assert not (folder / "out").exists()
    assert commands[0][0] == "adaptive-sampling"
    assert cli.main(commands[1][1:]) == 0
    assert [path.parent.name for path in (folder / "out").glob("*/run.json")] == ["loss only-seed0"]
    assert "3 of 4 runs have not ended" in (folder / "out" / "report.md").read_text()
    for command in (commands[0], *commands[2:]):
        assert cli.main(command[1:]) == 0
    capsys.readouterr()
    assert cli.main(["report", "out"]) == 0
    assert "preliminary, 2 seeds" in capsys.readouterr().out
    assert (
        json.loads((folder / "out" / "results.json").read_text())["runs"][0]["settings"]["module"]["attributes"]["lr"]
        == 0.3
    )


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"arms": [{"kind": "uniform"}]}, ["`name`", "arm 1 in ab.yaml", "None"]),
        ({"arms": [{"name": ""}]}, ["`name`", "''"]),
        ({"arms": [{"name": "uniform"}, {"name": "uniform"}]}, ["different names", "'uniform' twice"]),
        (
            {"arms": [{"name": "uniform"}, {"name": "Uniform", "kind": "uniform"}]},
            ["whatever their case", "'uniform' twice"],
        ),
        ({"arms": [{"name": "uniform"}, {"name": "p", "placebo_of": "gone"}]}, ["`placebo_of`", "'gone'", "'p'"]),
        ({"arms": [{"name": "a", "kind": "loss"}]}, ["uniform arm", "Add Arm('uniform')"]),
        ({"arms": [{"name": "uniform"}, {"name": "x"}]}, ["`kind`", "arm 'x'", "got None"]),
        ({"arms": [{"name": "uniform", "polcy": 3}]}, ["`polcy`", "Did you mean `policy`"]),
        ({"arms": [{"name": "uniform", "policy": {"cap": 3}, "kind": "uniform"}]}, ["`policy`", "left out"]),
        (
            {"arms": [{"name": "uniform"}, {"name": "loss", "policy": {"capp": 3}}]},
            ["'loss'", "`capp`", "Did you mean `cap`?"],
        ),
        ({"arms": [{"name": "uniform"}, {"name": "loss", "policy": {"cap": 0.5}}]}, ["'loss'", "`cap`", "0.5"]),
        ({"arms": [{"name": "uniform"}, {"name": "a", "policy": "gone:make"}]}, ["`policy` of arm 'a'", "'gone'"]),
        ({"arms": [{"name": "uniform"}, {"name": "loss", "groups": "zones"}]}, ["`groups`", "'zones'"]),
        (
            {"arms": [{"name": "uniform"}, {"name": "loss", "groups": "none.npy"}]},
            ["`groups` of arm 'loss' in ab.yaml", "'none.npy'", "Check the path"],
        ),
        ({"arms": [{"name": "uniform"}, {"name": "loss", "groups": "sources"}]}, ["`groups`", "sources()"]),
        (
            {"arms": [{"name": "uniform"}, {"name": "a", "policy": {"cap": 3}, "scarcity": {"threshold": 1.5}}]},
            ["`threshold`", "'a'", "1.5"],
        ),
        (
            {"arms": [{"name": "uniform"}, {"name": "a", "policy": {"cap": 3}, "scarcity": {"treshold": 0.9}}]},
            ["`scarcity`", "`threshold`", "treshold"],
        ),
        ({"arms": [{"name": "uniform"}, {"name": "loss", "groups": {"clusters": 0}}]}, ["`clusters`", "'loss'", "0"]),
        ({"arms": [{"name": "uniform"}, {"name": "adaptive", "priors": "all"}]}, ["`priors`", "recurrence", "'all'"]),
        ({"arms": [{"name": "uniform"}, {"name": "adaptive", "priors": {"ngram": 3}}]}, ["`priors`", "ngram"]),
        ({"arms": [{"name": "uniform"}, {"name": "adaptive", "priors": "recurrence"}]}, ["`priors`", "token store"]),
        ({"arms": []}, ["`arms`", "[]"]),
        ({"arms": ["uniform"]}, ["arm 1", "mapping"]),
        ({"modul": 1}, ["`modul`", "Did you mean `module`"]),
        ({"module": None}, ["`module`", "Add"]),
        ({"module": "a_users_gpt.Gone"}, ["`module`", "'Gone'", "Model"]),
        ({"module": "no_such_module.Model"}, ["`module`", "'no_such_module'", "Start the command where it lies"]),
        ({"module": "Model"}, ["`module`", "import path", "'Model'"]),
        ({"module": "a_users_gpt:NUMBER"}, ["`module`", "which is 3"]),
        ({"module": {"path": "a_users_gpt.Model", "arguments": {"rl": 1}}}, ["`module`", "'rl'", "Change `arguments`"]),
        ({"module": {"path": "a_users_gpt.Model", "args": {}}}, ["`args`", "arguments"]),
        ({"module": "a_users_gpt.Data"}, ["`make_module`", "Data"]),
        ({"data": "a_users_gpt.Model"}, ["`data`", "Model", "TrainingData"]),
        ({"data": "a_users_gpt.Wrong"}, ["`data`", "val_dataloader"]),
        ({"data": "a_users_gpt.Tuples"}, ["`data`", "tuple", "'window_id'"]),
        ({"max_steps": "many"}, ["`max_steps`", "'many'"]),
        ({"seeds": "two"}, ["`seeds`", "'two'"]),
        ({"seeds": 0}, ["`seeds`", "got 0"]),
        ({"backend": "slurm"}, ["`backend`", "'slurm'"]),
        ({"trainer": {"max_epochs": 3}}, ["`trainer`", "'max_epochs'"]),
        ({"trainer": {"accelerater": "cpu"}}, ["`trainer`", "'accelerater'", "Did you mean `accelerator`?"]),
        ({"trainer": 3}, ["`trainer`", "mapping"]),
    ],
)
def test_ab_refuses_bad_configurations_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], parts: list[str]
) -> None:
    assert_one_line(capsys, cli.main(["ab", write(folder, **changes)]), *parts)
    assert not list(folder.glob("out/*/run.json"))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"max_steps": 0}, ["`max_steps`", "got 0"]),
        ({"max_steps": "1e2"}, ["`max_steps`", "got '1e2'", "Write 100."]),
        ({"eval_every": 9}, ["`eval_every`", "`max_steps`, 8", "got 9"]),
        ({"checkpoint_every": 0}, ["`checkpoint_every`", "got 0"]),
        ({"jobs": 0}, ["`jobs`", "got 0"]),
        ({"backend": "slurm"}, ["`backend`", "'slurm'"]),
        ({"trainer": {"acelerator": "cpu"}}, ["`trainer`", "'acelerator'", "Did you mean `accelerator`?"]),
        ({"trainer": {"self": 1}}, ["`trainer`", "'self'"]),
        ({"seeds": [[1]]}, ["`seeds`", "[1]"]),
        ({"out": 5}, ["`out`", "got 5"]),
        ({"title": 5}, ["`title`", "got 5"]),
        ({"scarcity": "nowhere.npy"}, ["`scarcity` of arm 'loss' in ab.yaml", "'nowhere.npy'"]),
        ({"scarcity": "empty.npy"}, ["`scarcity` of arm 'loss' in ab.yaml", "empty.npy", "numpy.save"]),
        ({"scarcity": "square.npy"}, ["`scarcity` of arm 'loss'", "square.npy", "(3, 3)"]),
        ({"scarcity": "nan.npy"}, ["'loss'", "nan.npy", "`scarcity`", "window 1"]),
        ({"update_every": 0}, ["arm 'loss'", "`update_every`", "0"]),
    ],
)
def test_ab_refuses_what_cannot_run_before_anything_is_computed(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], parts: list[str]
) -> None:
    (folder / "empty.npy").touch()
    np.save(folder / "square.npy", np.ones((3, 3)))
    np.save(folder / "nan.npy", np.array([1.0, np.nan]))
    of_arm = {key: value for key, value in changes.items() if key in ("scarcity", "update_every")}
    others = {key: value for key, value in changes.items() if key not in of_arm}
    config = write(folder, **{"arms": [ARMS[0], {"name": "loss", "groups": "clusters", **of_arm}], **others})
    for more in (["--print-commands"], []):
        assert_one_line(capsys, cli.main(["ab", config, *more]), *parts)
    assert not (folder / "out").exists()


def test_ab_names_a_missing_file_once_per_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write(folder, arms=[ARMS[0], {"name": "loss", "scarcity": "nowhere.npy"}])
    assert cli.main(["ab", config]) == 2
    assert capsys.readouterr().err.count(str(folder)) == 1


def test_ab_names_arm_and_file_of_another_length_before_clusters(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(folder / "q.npy", np.ones(40))
    config = write(folder, arms=[ARMS[0], {"name": "loss", "scarcity": "q.npy"}])
    parts = ["arm 'loss'", "`scarcity`", "(48)", "got 40", str(folder / "q.npy")]
    assert_one_line(capsys, cli.main(["ab", config]), *parts)
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"arms": [ARMS[0], {"name": "mine", "policy": "a_users_gpt:boom"}]},
            "`policy` of arm 'mine' (a_users_gpt:boom) raised RuntimeError: no such mood.",
        ),
        ({"module": "a_users_gpt:boom"}, "`module` (a_users_gpt:boom) raised RuntimeError: no such mood."),
        ({"data": "a_users_gpt:boom"}, "`data` (a_users_gpt:boom) raised RuntimeError: no such mood."),
        ({"data": "a_users_gpt.Cellar"}, "`data` (a_users_gpt.Cellar) raised FileNotFoundError: "),
    ],
)
def test_ab_names_the_users_code_that_raised_below_its_traceback(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], line: str
) -> None:
    assert cli.main(["ab", write(folder, **changes)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith(f"adaptive-sampling: error: {line}")
    assert said[0] == "Traceback (most recent call last):"
    assert "a_users_gpt.py" in said[1]  # none of our frames before


def test_ab_shows_where_importing_the_users_module_failed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "broken_gpt.py").write_text("size = 1\nsize / 0\n")
    assert cli.main(["ab", write(folder, module="broken_gpt.Model"), "--print-commands"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert 'broken_gpt.py", line 2' in said[1]
    assert "`module` must be importable, got 'broken_gpt.Model': ZeroDivisionError: division by zero. " in said[-1]


def test_ab_returns_1_where_some_runs_failed_and_shows_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["ab", write(folder, module="a_users_gpt.Hidden", arms=ARMS[:2])]) == 1
    said = capsys.readouterr()
    assert "adaptive, seed 0: failed" in said.err
    assert "no finished run" in said.out
    assert (folder / "out" / "report.html").exists()


def test_ab_ends_sentences_once_where_all_runs_fail(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ab", write(folder, module="a_users_gpt.Silent")]) == 2
    said = capsys.readouterr().err
    assert "a run that failed has an error.txt" in said
    assert ".." not in said


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["ab"], ["CONFIG"]),
        (["ab", "gone.yaml"], ["gone.yaml", "No such file"]),
        (["ab", "a_users_gpt.py"], ["a_users_gpt.py", "YAML"]),
        (["ab", "ab.yaml", "--only", "uniform"], ["`--only`", "ARM:SEED"]),
        (["ab", "ab.yaml", "--only", "gone:0"], ["`only`", "'gone'"]),
        (["ab", "ab.yaml", "--only", "uniform:7"], ["`only`", "7"]),
        (["ab", "ab.yaml", "--jobs", "0"], ["`jobs`", "0"]),
        (["ab", "ab.yaml", "--set", "seeds"], ["`--set`", "'seeds'"]),
        (["ab", "ab.yaml", "--set", "sedes=3"], ["`sedes`", "`seeds`"]),
        (["report", "gone"], ["`FOLDER`", "'gone'"]),
        (["report", "."], ["results.json"]),
    ],
)
def test_ab_and_report_refuse_bad_arguments_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], parts: list[str]
) -> None:
    write(folder)
    assert_one_line(capsys, cli.main(arguments), *parts)


def assert_one_line(capsys: pytest.CaptureFixture[str], code: int, *parts: str) -> None:
    captured = capsys.readouterr()
    assert code == 2, captured.err
    assert captured.out == ""
    assert captured.err.startswith("adaptive-sampling: error: ")
    assert captured.err.count("\n") == 1
    for part in parts:
        assert part in captured.err


def test_help_shows_a_whole_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ab", "--help"]) == 0
    assert "module: my_gpt.MyGPT" in capsys.readouterr().out
    assert cli.main(["report", "--help"]) == 0
