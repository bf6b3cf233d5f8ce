from __future__ import annotations

import fcntl
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_training import Bigram, Breaking, Diverging, Forgetful, other_data, tiny_data

from adaptive_sampling.ab import Arm, FairnessError, FolderInUseError, Result, load_result, run_ab
from adaptive_sampling.ab.evaluation import WEIGHT_EDGES, evaluation_steps, weight_counts
from adaptive_sampling.weights import WeightPolicy

# These trainings are too short on purpose for learned weights to count.
pytestmark = pytest.mark.filterwarnings("ignore:no learned weight can count")


ARMS = (
    Arm("uniform"),
    Arm("adaptive", WeightPolicy, update_every=3),
    Arm("placebo", placebo_of="adaptive", update_every=3),
)


def compare(out: Path, arms: Any = ARMS, module: Any = Bigram, data: Any = tiny_data, **settings: Any) -> Result:
    lines: list[str] = []
    settings = {"max_steps": 30, "seeds": (0, 1), "progress": lines.append, **settings}
    result = run_ab(arms, module, data, out_dir=out, **settings)
    vars(result)["lines"] = lines
    return result


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("ab")
    return out, compare(out)


def test_run_ab_leaves_records_results_and_report(finished: tuple[Path, Result]) -> None:
    out, result = finished
    assert sorted(run.status for run in result.runs) == ["finished"] * 6
    raw = json.loads((out / "results.json").read_text())
    assert raw["seeds"] == [0, 1]
    assert set(raw["verdicts"]) == {"adaptive", "placebo"}
    assert all(verdict.startswith("preliminary, 2 seeds") for verdict in raw["verdicts"].values())
    assert (out / "report.html").stat().st_size > 1000
    assert load_result(out).verdicts == result.verdicts
    for run in result.runs:
        assert list((out / f"{run.arm}-seed{run.seed}" / "tensorboard").glob("events*"))
        assert [point["step"] for point in run.curve] == list(range(3, 31, 3))
        assert run.curve[-1]["tokens"] == 30 * 4 * 8
        assert run.curve[-1]["targets"] == {"one": 9 * 8, "two": 6 * 8}
        assert run.timing.train_seconds > 0
        assert run.timing.eval_seconds > 0
        assert [point[0] for point in run.timing.points] == list(range(3, 31, 3))


def test_run_ab_weighs_the_overall_loss_by_targets(finished: tuple[Path, Result]) -> None:
    point = finished[1].runs[0].curve[-1]
    assert point["loss"] == pytest.approx((9 * point["losses"]["one"] + 6 * point["losses"]["two"]) / 15)


def test_run_ab_starts_all_arms_of_a_seed_alike(finished: tuple[Path, Result]) -> None:
    starts = {(run.seed, run.settings["initial_parameters"]) for run in finished[1].runs}
    assert len(starts) == 2
    assert len({start for _, start in starts}) == 2


def test_run_ab_keeps_weights_of_weighted_arms_alone(finished: tuple[Path, Result]) -> None:
    for run in finished[1].runs:
        assert len(run.weight_history) == (0 if run.arm == "uniform" else 10)
        assert all(sum(row["counts"]) == 40 for row in run.weight_history)


def test_run_ab_repeats_nothing_that_has_ended(finished: tuple[Path, Result]) -> None:
    out, first = finished
    times = {path: path.stat().st_mtime_ns for path in out.glob("*/run.json")}
    again = compare(out)
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/run.json")} == times
    assert "6 of 6 runs are already in" in vars(again)["lines"][0]
    assert again.as_dict() == first.as_dict()


def test_run_ab_does_anew_what_was_broken_off_and_gets_the_same(finished: tuple[Path, Result], tmp_path: Path) -> None:
    first = finished[1]
    compare(tmp_path, seeds=(0,))
    record = tmp_path / "adaptive-seed0" / "run.json"
    raw = json.loads(record.read_text())
    record.write_text(json.dumps({**raw, "status": "running", "curve": raw["curve"][:4]}))
    again = compare(tmp_path, seeds=(0,))
    assert "2 of 3" in vars(again)["lines"][0]
    assert [run.losses for run in again.runs] == [run.losses for run in first.runs if run.seed == 0]


@pytest.mark.parametrize(
    ("change", "shown"),
    [({"max_steps": 31}, "max_steps: 30 → 31"), ({"data": other_data}, "dataset.items: 40 → 44")],
)
def test_run_ab_refuses_a_folder_of_other_settings(finished: tuple[Path, Result], change: Any, shown: str) -> None:
    out, result = finished
    with pytest.raises(ValueError, match="another output folder") as caught:
        compare(out, **change)
    assert shown in str(caught.value)
    assert result.runs[0].fingerprint in str(caught.value)


def test_run_ab_refuses_another_policy_in_the_same_folder(finished: tuple[Path, Result]) -> None:
    arms = (Arm("uniform"), Arm("adaptive", WeightPolicy(cap=3.0), update_every=3))
    with pytest.raises(ValueError, match=r"arm\.policy"):
        compare(finished[0], arms)


def test_run_ab_refuses_a_folder_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "uniform-seed0").mkdir()
    (tmp_path / "uniform-seed0" / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="move it away"):
        compare(tmp_path)
    assert (tmp_path / "uniform-seed0" / "thesis.txt").read_text() == "mine"


def test_run_ab_refuses_a_module_that_starts_otherwise_in_another_arm(tmp_path: Path) -> None:
    calls = iter(range(100))

    def drifting() -> Bigram:
        module = Bigram()
        if next(calls) >= 3:  # two seeds looked at beforehand, one run of the first arm
            module.table.weight.data[0, 0] += 1.0
        return module

    with pytest.raises(FairnessError, match="'adaptive', seed 0"):
        compare(tmp_path, module=drifting)
    assert json.loads((tmp_path / "uniform-seed0" / "run.json").read_text())["status"] == "finished"


def test_run_ab_of_two_uniform_arms_differs_by_exactly_nothing(tmp_path: Path) -> None:
    result = compare(tmp_path, [Arm("uniform"), Arm("again")], seeds=(0, 1, 2), max_steps=12)
    assert result.comparisons["again"].loss_difference.mean == 0.0  # type: ignore[union-attr]
    assert result.verdicts == {"again": "no difference seen (0 to 0 %)"}
    assert [run.losses for run in result.runs_of("again")] == [run.losses for run in result.runs_of("uniform")]


def test_run_ab_marks_divergence_and_failure_and_goes_on(tmp_path: Path) -> None:
    diverged = compare(tmp_path / "nan", [Arm("uniform")], module=Diverging)
    assert [run.status for run in diverged.runs] == ["diverged", "diverged"]
    assert "after step 21" in str(diverged.runs[0].error)
    assert diverged.runs[0].curve[-1]["loss"] is None
    assert "NaN" not in (tmp_path / "nan" / "results.json").read_text()
    failed = compare(tmp_path / "broken", [Arm("uniform")], module=Breaking)
    assert [run.error for run in failed.runs] == ["RuntimeError: step ten is cursed"] * 2
    assert "step ten is cursed" in (tmp_path / "broken" / "report.html").read_text()


def test_run_ab_finds_a_validation_step_without_a_loss_before_the_first_step(tmp_path: Path) -> None:
    result = compare(tmp_path, module=Forgetful, seeds=(0,))
    assert {run.status for run in result.runs} == {"failed"}
    assert all("`return loss`" in str(run.error) for run in result.runs)
    assert Forgetful.trained == 0


def test_run_ab_keeps_what_has_ended_when_interrupted(tmp_path: Path) -> None:
    def stop_later(line: str) -> None:
        if line.startswith("[1/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(tmp_path, progress=stop_later)
    assert [path.parent.name for path in tmp_path.glob("*/run.json")] == ["uniform-seed0"]
    assert "1 of 6" in vars(compare(tmp_path))["lines"][0]


def test_run_ab_refuses_a_folder_in_use(tmp_path: Path) -> None:
    holder = (
        "import sys; from adaptive_sampling.ab._lock import folder_lock\n"
        f"with folder_lock({str(tmp_path)!r}): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(FolderInUseError, match=f"process {process.pid}"):
            compare(tmp_path)
        process.stdin.close()
    with open(tmp_path / ".lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the dead process holds nothing


def test_run_ab_gives_the_same_in_parallel_and_leaves_randomness_alone(
    finished: tuple[Path, Result], tmp_path: Path
) -> None:
    random.seed(1)
    torch.manual_seed(2)
    np.random.seed(3)  # noqa: NPY002
    before = (random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist())  # type: ignore[index]  # noqa: NPY002
    seed = os.environ.get("PL_GLOBAL_SEED")
    parallel = compare(tmp_path, ARMS[:2], jobs=2, seeds=(0,))
    compare(tmp_path, ARMS, seeds=(0,))
    assert before == (random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist())  # type: ignore[index]  # noqa: NPY002
    assert os.environ.get("PL_GLOBAL_SEED") == seed
    alone = [run for run in finished[1].runs if run.seed == 0]
    assert [run.losses for run in parallel.runs] == [run.losses for run in alone[:2]]


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"max_steps": 0}, "`max_steps`"),
        ({"seeds": ()}, "`seeds`"),
        ({"seeds": (1, 1)}, "(1, 1)"),
        ({"seeds": (-1,)}, "(-1,)"),
        ({"jobs": 0}, "`jobs`"),
        ({"trainer_settings": {"max_epochs": 3}}, "'max_epochs'"),
    ],
)
def test_run_ab_refuses_bad_settings(tmp_path: Path, change: dict[str, Any], shown: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        compare(tmp_path, **change)
    assert shown in str(caught.value)


@pytest.mark.parametrize("name", ["make_module", "make_data"])
@pytest.mark.parametrize("value", [None, torch.nn.Linear(1, 1)], ids=["none", "a module"])
def test_run_ab_refuses_what_makes_nothing(tmp_path: Path, name: str, value: Any) -> None:
    makers: dict[str, Any] = {"make_module": Bigram, "make_data": tiny_data, name: value}
    with pytest.raises(TypeError, match=rf"`{name}` must be a function or class that makes .* Each run needs its own"):
        run_ab(ARMS, **makers, max_steps=4, out_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_evaluation_steps_end_with_the_last() -> None:
    assert evaluation_steps(30, None) == list(range(3, 31, 3))
    assert evaluation_steps(4, None) == [1, 2, 3, 4]
    assert evaluation_steps(10, 4) == [4, 8, 10]


def test_weight_counts_are_relative_to_the_mean_and_lose_no_window() -> None:
    counts = weight_counts(np.array([1.0, 1.0, 1.0, 97.0, 0.0]))
    assert sum(counts) == 5
    assert counts[0] == 4  # 0.05 of the mean and less
    assert counts[int(np.searchsorted(WEIGHT_EDGES, 4.85)) - 1] == 1
