"""`run_ab`: every arm with every seed, each run in its own folder; ended runs are kept, broken ones go on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.model_helpers import is_overridden

from adaptive_sampling._files import checked_path, write_json
from adaptive_sampling.ab._lock import folder_lock
from adaptive_sampling.ab._seeding import seeded
from adaptive_sampling.ab.arms import Arm, TrainingData, check_arms, like_what_they_imitate, policy_source
from adaptive_sampling.ab.evaluation import evaluation_steps
from adaptive_sampling.ab.fairness import shared_settings
from adaptive_sampling.ab.fingerprint import differences, digest, settings_digest
from adaptive_sampling.ab.held_out import HeldOutSplit, split_held_out
from adaptive_sampling.ab.outcome import COMPARISON_FILE, write_outcome
from adaptive_sampling.ab.policy_fit import fitting_digest
from adaptive_sampling.ab.pools import run_local, run_on_ray, run_parallel
from adaptive_sampling.ab.progress import Progress, print_line
from adaptive_sampling.ab.record import FILE_NAME, RunRecord
from adaptive_sampling.ab.result import Result
from adaptive_sampling.ab.run import MakeData, MakeModule, RunPlan
from adaptive_sampling.ab.settings import Backend, check_seeds, check_settings

_LEAST_FREE_BYTES = 64 * 2**20


def run_ab(
    arms: Sequence[Arm],
    make_module: MakeModule,
    make_data: MakeData,
    *,
    max_steps: int,
    seeds: Sequence[int] = (0, 1, 2),
    out_dir: str | os.PathLike[str],
    eval_every: int | None = None,
    checkpoint_every: int | None = None,
    jobs: int = 1,
    backend: Backend = "processes",
    only: tuple[str, int] | None = None,
    title: str = "Comparison of window choices",
    trainer_settings: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] = print_line,
) -> Result:
    """Train every arm with every seed and compare them with the first uniform arm, paired by seed.

    All arms of a seed start from the same parameters and see the same number of steps, windows per step, learning
    rates and evaluations; they differ in the order of windows alone. Each run leaves `run.json`, `time.json` and a
    logger's files in `out_dir/<arm>-seed<k>`; the whole leaves `results.json`, `timing.json`, `report.html` and
    `report.md` in `out_dir`. A second call with the same settings repeats no run that has ended and goes on with those
    that were broken off, from their last checkpoint: `results.json` is the one that an unbroken call would have left.

    Args:
        arms: at least a uniform one.
        make_module: makes the LightningModule of one run, a plain module whose `validation_step` returns its loss. The
            global seed is set before the call.
        make_data: makes the `TrainingData` of one run.
        max_steps: optimizer steps of each run.
        seeds: one run of each arm per seed.
        out_dir: folder for all of it, for one process at a time.
        eval_every: optimizer steps between evaluations, at most `max_steps`; default: ten evaluations. The last step
            is always one.
        checkpoint_every: optimizer steps between checkpoints; default: ten per run. Ctrl-C saves one too.
        jobs: runs at a time, each in a process of its own; functions and policies must then be importable.
        backend: "processes" on this machine, or "ray": tasks of the cluster that Ray is connected to, which must see
            `out_dir`; without one, a local Ray of `jobs` workers.
        only: (arm, seed): do this run alone, beside other processes that do others; then the result holds what is
            there by then.
        title: of the report.
        trainer_settings: further arguments of the `Trainer`, such as accelerator or precision.
        progress: receives one line of text at a time.

    Returns:
        Records of all runs and the comparisons.

    Raises:
        ValueError: on settings that cannot be compared, or on runs of other settings in `out_dir`.
        FairnessError: if an arm differs in more than the order of windows: parameters, data, batch size, optimizers,
            learning rates, tokens, validation. Runs that had ended are kept.
        DiskFullError: if a run cannot be written; runs that had ended are kept.
        FolderInUseError: if another process works in `out_dir`.

    Determinism:
        On one machine and device the runs of a seed are the same again, with any `jobs`, broken off or not, as far as
        the module is; random numbers drawn by data workers are not continued.
    """
    check_settings(
        arms,
        max_steps=max_steps,
        seeds=seeds,
        eval_every=eval_every,
        checkpoint_every=checkpoint_every,
        jobs=jobs,
        backend=backend,
        title=title,
        trainer_settings=trainer_settings,
    )
    arms, seeds = like_what_they_imitate(arms), check_seeds(seeds)
    _check_only(only, arms, seeds)
    _check_makers(make_module, make_data)
    trainer_settings = dict(trainer_settings or {})
    out = checked_path("out_dir", out_dir).absolute()
    with folder_lock(out, shared=only is not None):
        _check_room(out, progress)
        plans = _plans(
            arms, make_module, make_data, max_steps, seeds, out, eval_every, checkpoint_every, trainer_settings
        )
        wanted = [plan for plan in plans if only is None or (plan.arm.name, plan.seed) == only]
        pending = [plan for plan in wanted if not _has_ended(plan)]
        write_json(
            out / COMPARISON_FILE,
            {
                "arms": [arm.name for arm in arms],
                "baseline": _baseline(arms),
                "max_steps": max_steps,
                "seeds": list(seeds),
                "title": title,
            },
        )
        if kept := len(wanted) - len(pending):
            progress(f"{kept} of {len(wanted)} runs are already in {out} and are kept")
        for note in plans[0].settings["notes"]:
            progress(note)
        shown = Progress(progress, [plan.name for plan in pending], plans[0].steps, jobs)
        if pending and backend == "ray":
            run_on_ray(pending, make_module, make_data, jobs, shown)
        elif jobs == 1 or len(pending) <= 1:
            run_local(pending, make_module, make_data, shown)
        else:
            run_parallel(pending, make_module, make_data, min(jobs, len(pending)), shown)
        result = write_outcome(out)
        for note in result.notes:
            if note not in plans[0].settings["notes"]:
                progress(note)
        return result


def run_commands(command: Sequence[str], arms: Sequence[Arm], seeds: Sequence[int]) -> list[str]:
    """One shell command per run, seed by seed: `command` with `--only ARM:SEED` behind it.

    Raises:
        ValueError: if the arms or seeds cannot be compared.
    """
    import shlex

    check_arms(arms)
    return [shlex.join([*command, "--only", f"{arm.name}:{seed}"]) for seed in check_seeds(seeds) for arm in arms]


def _check_only(only: tuple[str, int] | None, arms: Sequence[Arm], seeds: Sequence[int]) -> None:
    if only is not None and (only[0] not in [arm.name for arm in arms] or only[1] not in seeds):
        raise ValueError(
            f"`only` must be one of the arms {[arm.name for arm in arms]} with one of the seeds {list(seeds)}, "
            f"got {only!r}."
        )


def _check_room(out: Path, progress: Callable[[str], None]) -> None:
    free = shutil.disk_usage(out).free
    if free < _LEAST_FREE_BYTES:
        progress(f"only {free / 2**20:.0f} MiB are free where {out} lies: a run may not find room for its files")


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
    checkpoint_every: int | None,
    trainer_settings: Mapping[str, Any],
) -> list[RunPlan]:
    """The plan of every run, seed by seed, so that a comparison broken off has whole seeds."""
    steps = evaluation_steps(max_steps, eval_every)
    every = max(1, max_steps // 10) if checkpoint_every is None else checkpoint_every
    plans = []
    split = None
    for seed in seeds:
        with seeded(seed):
            module = _checked_module(make_module())
            data = make_data()
            if not isinstance(data, TrainingData):
                raise TypeError(f"`make_data` must make a TrainingData, got {type(data).__name__}. Return one from it.")
            making = shared_settings(module, data)
            if split is None:
                split = split_held_out(data)
        shared = {
            "max_steps": max_steps,
            "evaluation_steps": steps,
            "trainer": {name: repr(value) for name, value in sorted(trainer_settings.items())},
            "near_copies": None if split.kinds is None else digest(split.kinds),
            "notes": list(split.notes),
            "held_out_windows": _counted_windows(data, split),
            **making,
        }
        comparison = settings_digest(shared)
        for arm in arms:
            source = policy_source(arm, arms)
            choice: dict[str, Any] = {"kind": arm.kind, "sampler_seed": arm.sampler_seed}
            if source is not None:
                with seeded(seed):
                    policy = fitting_digest(arm, source, len(data.dataset))
                choice |= {"policy": policy, "draws": arm.draws, "update_every": arm.update_every}
            settings = {**shared, "comparison": comparison, "seed": seed, "arm": choice}
            peers = tuple(out / f"{other.name}-seed{seed}" for other in arms if other.name != arm.name)
            plans.append(
                RunPlan(
                    arm=arm,
                    source=source,
                    seed=seed,
                    max_steps=max_steps,
                    steps=tuple(steps),
                    checkpoint_every=every,
                    fingerprint=settings_digest(settings),
                    settings=settings,
                    trainer_settings=trainer_settings,
                    split=split,
                    folder=out / f"{arm.name}-seed{seed}",
                    peers=peers,
                )
            )
    return plans


def _check_makers(make_module: Any, make_data: Any) -> None:
    """Refuse what makes nothing; a module can be called, but that would be its forward pass."""
    for name, maker, made in (("make_module", make_module, "module"), ("make_data", make_data, "data")):
        if isinstance(maker, torch.nn.Module) or not callable(maker):
            raise TypeError(
                f"`{name}` must be a function or class that makes the {made} of a run, got the {type(maker).__name__} "
                f"{maker!r:.60}. Each run needs its own: write lambda: {type(maker).__name__}(…)."
            )


def _checked_module(module: Any) -> pl.LightningModule:
    if not isinstance(module, pl.LightningModule):
        raise TypeError(
            f"`make_module` must make a LightningModule, got {type(module).__name__}. Return the module from it."
        )
    if not is_overridden("validation_step", module):
        raise TypeError(
            f"`make_module` must make a module with a validation_step, got {type(module).__name__} without. "
            "Let it return the loss of a held-out batch."
        )
    return module


def _counted_windows(data: TrainingData, split: HeldOutSplit) -> int:
    """Held-out windows that count for the verdict."""
    held_out: Sequence[Any] = [loader.dataset for loader in data.validation.values()]
    return sum(len(dataset) for dataset in held_out) - split.count("copies")


def _has_ended(plan: RunPlan) -> bool:
    """Is this very run there already, with a result? A failed one is tried again.

    Raises:
        ValueError: if the folder holds something else.
    """
    if not plan.folder.exists():
        return False
    record = RunRecord.load(plan.folder)
    if record is None:
        # Hidden files are what a process that was killed had begun to write.
        if not plan.folder.is_dir() or any(not path.name.startswith(".") for path in plan.folder.iterdir()):
            raise ValueError(
                f"{plan.folder} must be absent or hold a run, got a folder without {FILE_NAME}. "
                "Choose another output folder, or move it away."
            )
        return False
    if record.fingerprint != plan.fingerprint:
        changed = "; ".join(differences(record.settings, plan.settings)) or "the same settings"
        raise ValueError(
            f"{plan.folder} must hold a run of these settings, {plan.fingerprint}, "
            f"got {record.fingerprint} ({changed}). Choose another output folder, or delete the folder."
        )
    return record.status in ("finished", "diverged")
