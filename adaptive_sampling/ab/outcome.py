"""From the folders of runs to the result and its reports; can be done again at any time."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

from adaptive_sampling.ab.fairness import FairnessError, check_points
from adaptive_sampling.ab.record import RunRecord
from adaptive_sampling.ab.report import write_markdown, write_report
from adaptive_sampling.ab.result import Result, load_result, summarise
from adaptive_sampling.errors import clause

COMPARISON_FILE = "comparison.json"


def collect(out_dir: Path | str) -> Result:
    """The result of all runs in a folder that have ended.

    A folder that holds `results.json` alone, without the runs, will do too.

    Raises:
        ValueError: if the folder holds no comparison, or no run of it has ended.
        FairnessError: if runs of one seed differ in more than the order of windows.
    """
    out = Path(out_dir)
    path = out / COMPARISON_FILE
    if not path.exists():
        return load_result(out)
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
        names = [(arm, seed) for seed in plan["seeds"] for arm in plan["arms"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} must say what is compared, got {clause(error)}. Call run_ab again.") from error
    found = [RunRecord.load(out / f"{arm}-seed{seed}") for arm, seed in names]
    runs = [record for record in found if record is not None and record.status != "running"]
    if not runs:
        raise ValueError(f"{out} must hold a run that has ended, got none of {len(names)}. Wait for the first.")
    check_all(runs)
    return summarise(runs, plan["arms"], plan["baseline"], plan["max_steps"], seeds=plan["seeds"], title=plan["title"])


def write_outcome(out_dir: Path | str) -> Result:
    """Write `results.json`, `timing.json`, `report.html` and `report.md` for the runs that have ended."""
    out = Path(out_dir)
    result = collect(out)
    result.save(out)
    write_report(result, out / "report.html")
    write_markdown(result, out / "report.md")
    return result


def check_all(runs: list[RunRecord]) -> None:
    """Hold the runs of each seed against each other, step by step.

    Raises:
        FairnessError: naming the arms, the step and both sides.
    """
    for seed in {run.seed for run in runs}:
        begun = [run for run in runs if run.seed == seed and run.curve]
        for run, peer in combinations(begun, 2):
            if run.optimizers != peer.optimizers or run.settings.get("comparison") != peer.settings.get("comparison"):
                raise FairnessError(
                    f"arms must share all but their sampler, got {run.arm!r} and {peer.arm!r} with other settings or "
                    f"optimizers, seed {seed}. Delete the folder of the wrong one and run it again."
                )
            points = {point["step"]: point for point in peer.curve}
            for point in run.curve:
                if point["step"] in points:
                    check_points(run, point, peer, points[point["step"]])
