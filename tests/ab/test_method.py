"""The method tested on itself: it says no where there is nothing, sees harm, and refuses what is not fair."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from simulated import Table, data, soup_policy

from adaptive_sampling.ab import Arm, FairnessError, run_ab
from adaptive_sampling.ab.arms import even_policy

STEPS = 90


def quiet(line: str) -> None:
    pass


def compare(out: Path, arms: list[Arm], module: Any = Table, **settings: Any) -> Any:
    settings = {"max_steps": STEPS, "eval_every": 15, "checkpoint_every": 10**6, "progress": quiet, **settings}
    return run_ab(arms, module, data, out_dir=out, **settings)


def no_difference(out: Path, repetitions: int) -> int:
    """Repetitions in which two uniform arms that differ in their sampler's seed are told apart by nothing but noise."""
    said = 0
    for repetition in range(repetitions):
        arms = [Arm("uniform"), Arm("again", sampler_seed=1)]
        seeds = tuple(range(3 * repetition, 3 * repetition + 3))
        result = compare(out / str(repetition), arms, seeds=seeds)
        change = result.comparisons["again"].loss_difference
        assert change.mean != 0.0  # the orders do differ
        said += result.verdicts["again"].startswith("no difference seen")
    return said


def test_two_uniform_arms_show_no_difference(tmp_path: Path) -> None:
    # A 95 % interval is wrong once in 20 times; two of four would be rare (0.014).
    assert no_difference(tmp_path, 4) >= 3


@pytest.mark.soak
def test_two_uniform_arms_show_no_difference_in_18_of_20_repetitions(tmp_path: Path) -> None:
    assert no_difference(tmp_path, 20) >= 18


@pytest.mark.filterwarnings("ignore:no learned weight can count")
def test_a_coupled_uniform_arm_is_a_shuffle_in_the_order_of_weighted_arms(tmp_path: Path) -> None:
    # No update falls into these steps: one re-deals what is left of the epoch.
    arms = [Arm("uniform", coupled=True), Arm("even", even_policy), Arm("torch")]
    result = compare(tmp_path, arms, seeds=(0,), max_steps=75, eval_every=25)
    assert result.baseline == "uniform"
    assert result.comparisons["even"].loss_difference.mean == 0.0
    assert result.comparisons["torch"].loss_difference.mean != 0.0
    # 75 steps of 4: an epoch but for the three windows that fill no batch.
    assert [run.draw_counts for run in result.runs] == [[3, 300]] * 3


def test_an_arm_that_trains_on_a_tenth_of_random_tokens_is_found_worse(tmp_path: Path) -> None:
    result = compare(tmp_path, [Arm("uniform"), Arm("soup", soup_policy)])
    assert result.verdicts["soup"].startswith("worse: ")
    assert result.comparisons["soup"].not_reached == (0, 1, 2)
    assert "Target never reached" in result.comparisons["soup"].remarks[0]
    draws = result.runs_of("soup")[0].extremes["most"]
    assert {row["id"] for row in draws[:3]} == {300, 301, 302}


class Scheduled(Table):
    """Its learning rate falls; how fast depends on something outside the module."""

    ends = itertools.repeat(1.0)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
        end = next(self.ends)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - end * step / STEPS)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def test_an_arm_with_another_schedule_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = [Arm("uniform"), Arm("other", sampler_seed=1)]
    assert compare(tmp_path / "same", arms, Scheduled, seeds=(0,)).verdicts
    monkeypatch.setattr(Scheduled, "ends", iter([1.0, 0.5]))
    with pytest.raises(
        FairnessError, match=r"same learning-rate schedule.*'other' and arm 'uniform', seed 0, at step 15"
    ):
        compare(tmp_path / "differ", arms, Scheduled, seeds=(0,))
    # What had ended is kept.
    assert json.loads((tmp_path / "differ" / "uniform-seed0" / "run.json").read_text())["status"] == "finished"


class Optimized(Table):
    """Another optimizer each time."""

    decays = iter([0.0, 0.1])

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=0.05, weight_decay=next(self.decays))


def test_an_arm_with_another_optimizer_is_refused_before_its_first_step(tmp_path: Path) -> None:
    with pytest.raises(FairnessError, match="same optimizers"):
        compare(tmp_path, [Arm("uniform"), Arm("other", sampler_seed=1)], Optimized, seeds=(0,))


def test_an_arm_with_another_module_is_refused_before_its_first_step(tmp_path: Path) -> None:
    rates = iter([0.1, 0.1, 0.2])

    def make() -> Table:
        module = Table()
        module.rate = next(rates)
        return module

    with pytest.raises(FairnessError, match=r"in arm 'other', seed 0: module\.attributes\.rate: 0\.1 → 0\.2"):
        compare(tmp_path, [Arm("uniform"), Arm("other", sampler_seed=1)], make, seeds=(0,))
