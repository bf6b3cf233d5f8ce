"""`run_ab`: every arm with every seed, each run in its own folder, finished runs never repeated."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import torch

from adaptive_sampling.ab._lock import folder_lock
from adaptive_sampling.ab._seeding import seeded
from adaptive_sampling.ab.arms import Arm, check_arms, fresh_policy, policy_source
from adaptive_sampling.ab.evaluation import evaluation_steps
from adaptive_sampling.ab.fingerprint import (
    dataset_settings,
    differences,
    digest,
    module_settings,
    parameters_digest,
    settings_digest,
)
from adaptive_sampling.ab.progress import Progress, print_line
from adaptive_sampling.ab.record import FILE_NAME, RunRecord
from adaptive_sampling.ab.report import write_report
from adaptive_sampling.ab.result import Result, summarise
from adaptive_sampling.ab.run import MakeData, MakeModule, RunPlan, execute

_OWNED_BY_RUNNER = {
    "max_steps", "max_epochs", "logger", "callbacks", "enable_checkpointing", "enable_progress_bar",
    "enable_model_summary", "num_sanity_val_steps", "limit_val_batches",
}  # fmt: skip


def run_ab(
    arms: Sequence[Arm],
    make_module: MakeModule,
    make_data: MakeData,
    *,
    max_steps: int,
    seeds: Sequence[int] = (0, 1, 2),
    out_dir: str | os.PathLike[str],
    eval_every: int | None = None,
    jobs: int = 1,
    trainer_settings: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] = print_line,
) -> Result:
    """Train every arm with every seed and compare them with the first uniform arm, paired by seed.

    All arms of a seed start from the same parameters and see the same number of steps, windows per step, evaluations;
    they differ in the order of windows alone. Each run leaves `run.json` and a logger's files in
    `out_dir/<arm>-seed<k>`; the whole leaves `results.json` and `report.html` in `out_dir`. A second call with the same
    settings repeats no run that has ended; what was broken off starts anew.

    Args:
        arms: at least a uniform one.
        make_module: makes the LightningModule of one run, a plain module whose `validation_step` returns its loss. The
            global seed is set before the call.
        make_data: makes the `TrainingData` of one run.
        max_steps: optimizer steps of each run.
        seeds: one run of each arm per seed.
        out_dir: folder for all of it, for one process at a time.
        eval_every: optimizer steps between evaluations; default: ten evaluations. The last step is always one.
        jobs: runs at a time, each in a process of its own; functions and policies must then be importable.
        trainer_settings: further arguments of the `Trainer`, such as accelerator or precision.
        progress: receives one line of text at a time.

    Returns:
        Records of all runs and the comparisons.

    Raises:
        ValueError: on settings that cannot be compared, or on runs of other settings in `out_dir`.
        FairnessError: if `make_module` makes other parameters for the same seed.
        FolderInUseError: if another process works in `out_dir`.

    Determinism:
        On one machine and device the runs of a seed are the same again, with any `jobs`, as far as the module is.
    """
    check_arms(arms)
    seeds = _checked_seeds(seeds)
    for name, value in (
        ("max_steps", max_steps),
        ("jobs", jobs),
        ("eval_every", 1 if eval_every is None else eval_every),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must be a positive integer, got {value!r}.")
    trainer_settings = dict(trainer_settings or {})
    if owned := sorted(_OWNED_BY_RUNNER & set(trainer_settings)):
        raise ValueError(f"`trainer_settings` must leave {owned[0]!r} to run_ab, got {owned!r}. Take them out.")
    out = Path(out_dir)
    with folder_lock(out):
        plans = _plans(arms, make_module, make_data, max_steps, seeds, out, eval_every, trainer_settings)
        pending = [plan for plan in plans if not _has_ended(plan)]
        if kept := len(plans) - len(pending):
            progress(f"{kept} of {len(plans)} runs are already in {out} and are kept")
        shown = Progress(progress, [plan.name for plan in pending], max_steps)
        if jobs == 1 or len(pending) <= 1:
            for plan in pending:
                shown.ended(execute(plan, make_module, make_data, shown.update))
        elif pending:
            _run_parallel(pending, make_module, make_data, min(jobs, len(pending)), shown)
        records = [RunRecord.load(plan.folder) for plan in plans]
        result = summarise(
            [r for r in records if r is not None], [arm.name for arm in arms], _baseline(arms), max_steps
        )
        result.save(out / "results.json")
        write_report(result, out / "report.html")
    return result


def _checked_seeds(given: Sequence[Any]) -> tuple[int, ...]:
    seeds = tuple(given)
    if not seeds or len(set(seeds)) < len(seeds) or any(not _is_seed(s) for s in seeds):
        raise ValueError(f"`seeds` must hold different integers of 0 or more, got {seeds!r}. Write (0, 1, 2).")
    return tuple(int(seed) for seed in seeds)


def _is_seed(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32


def _baseline(arms: Sequence[Arm]) -> str:
    return next(arm.name for arm in arms if arm.kind == "uniform")


def _plans(
    arms: Sequence[Arm],
    make_module: MakeModule,
    make_data: MakeData,
    max_steps: int,
    seeds: Sequence[int],
    out: Path,
    eval_every: int | None,
    trainer_settings: Mapping[str, Any],
) -> list[RunPlan]:
    """The plan of every run, seed by seed, so that a comparison broken off has whole seeds."""
    steps = evaluation_steps(max_steps, eval_every)
    shared: dict[str, Any] = {}
    plans = []
    for seed in seeds:
        with seeded(seed):
            module = make_module()
            initial = parameters_digest(module)
            if not shared:
                data = make_data()
                shared = {
                    "max_steps": max_steps,
                    "evaluation_steps": steps,
                    "batch_size": data.batch_size,
                    "loader": digest(data.dataloader_settings),
                    "trainer": {name: repr(value) for name, value in sorted(trainer_settings.items())},
                    "dataset": dataset_settings(data.dataset),
                    "validation": {name: dataset_settings(load.dataset) for name, load in data.validation.items()},
                    "module": module_settings(module),
                }
        for arm in arms:
            source = policy_source(arm, arms)
            choice: dict[str, Any] = {"kind": arm.kind}
            if source is not None:
                with seeded(seed):
                    policy = digest(fresh_policy(source))
                choice |= {"policy": policy, "draws": arm.draws, "update_every": arm.update_every}
            settings = {**shared, "seed": seed, "initial_parameters": initial, "arm": choice}
            folder = out / f"{arm.name}-seed{seed}"
            fingerprint = settings_digest(settings)
            plans.append(
                RunPlan(arm, source, seed, max_steps, tuple(steps), fingerprint, settings, trainer_settings, folder)
            )
    return plans


def _has_ended(plan: RunPlan) -> bool:
    """Is this very run there already, with a result? A failed one is tried again.

    Raises:
        ValueError: if the folder holds something else.
    """
    if not plan.folder.exists():
        return False
    record = RunRecord.load(plan.folder)
    if record is None:
        if not plan.folder.is_dir() or any(plan.folder.iterdir()):
            raise ValueError(
                f"{plan.folder} must be absent or hold a run, got a folder without {FILE_NAME}. "
                "Choose another `out_dir`, or move it away."
            )
        return False
    if record.fingerprint != plan.fingerprint:
        changed = "; ".join(differences(record.settings, plan.settings)) or "the same settings"
        raise ValueError(
            f"{plan.folder} must hold a run of these settings, {plan.fingerprint}, "
            f"got {record.fingerprint} ({changed}). Choose another `out_dir`, or delete the folder."
        )
    return record.status in ("finished", "diverged")


def _set_threads(threads: int) -> None:
    torch.set_num_threads(threads)


def _run_parallel(
    pending: Sequence[RunPlan], make_module: MakeModule, make_data: MakeData, jobs: int, shown: Progress
) -> None:
    threads = max(1, (os.cpu_count() or 1) // jobs)
    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_set_threads, initargs=(threads,)
    )
    try:
        waiting = {pool.submit(execute, plan, make_module, make_data): plan for plan in pending}
        while waiting:
            done, _ = wait(waiting, timeout=2.0, return_when=FIRST_COMPLETED)
            for future in done:
                del waiting[future]
                shown.ended(future.result())
            for plan in waiting.values():
                # What a process has written is all that this one knows of it.
                if (record := RunRecord.load(plan.folder)) is not None and record.fingerprint == plan.fingerprint:
                    shown.update(record)
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a process of a run was ended from outside, perhaps for lack of memory. Runs that have ended are kept: "
            "call again, with fewer `jobs`. If the calling script has no `if __name__ == '__main__':`, give it one."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
