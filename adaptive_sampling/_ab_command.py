"""The subcommands `ab` and `report`; what they stand on, Lightning above all, is loaded when they run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from adaptive_sampling.errors import clause

_EXAMPLE = """\
example of CONFIG:

  module: my_gpt.MyGPT                 # or my_gpt:make_module, or {path: my_gpt.MyGPT, arguments: {layers: 2}}
  data: my_gpt:make_data               # () -> TrainingData, or a LightningDataModule
  max_steps: 2000                      # of each run
  seeds: 3                             # or a list of seeds
  out: runs/my_gpt                     # default: runs/<name of CONFIG>
  trainer: {accelerator: auto}         # arguments of lightning.Trainer
  arms:
    - name: uniform
    - {name: adaptive, update_every: 20}         # near-copies and losses; `policy: {cap: 3}` changes its settings
    - {name: loss only, kind: loss}              # kinds: uniform, adaptive, loss, scarcity, multinomial, placebo
    - {name: scarcity only, kind: scarcity}
    - {name: mine, policy: my_gpt:make_policy}   # () -> WeightPolicy
    - {name: placebo, placebo_of: adaptive}

further keys: eval_every, checkpoint_every, jobs, backend (processes or ray), title; of an arm: draws, update_every,
sampler_seed, coupled, scarcity (near-copies, none, a .npy file, or {threshold: 0.85}) and groups (clusters, sources,
documents, none, a .npy file, or {clusters: 64}).
"""


def add_ab(subparsers: Any) -> None:
    """Register `ab`."""
    parser = subparsers.add_parser(
        "ab",
        help="compare ways to draw windows on your own model and data",
        description="Train every arm with every seed, and say in words what each gains or loses against uniform draws. "
        "The same command goes on after an interrupt, and repeats no run that has ended.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", metavar="CONFIG", help="YAML file, see below")
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at a time, each in a process of its own")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of CONFIG, for example seeds=5"
    )
    parser.add_argument("--only", metavar="ARM:SEED", help="do this run alone, beside other processes that do others")
    parser.add_argument(
        "--print-commands",
        "--dry-run",
        action="store_true",
        help="check CONFIG, print one command per run (for Slurm and the like) and train nothing",
    )
    parser.set_defaults(run=_run_ab)


def add_report(subparsers: Any) -> None:
    """Register `report`."""
    parser = subparsers.add_parser(
        "report",
        help="sum up the runs in a folder again",
        description="Write results.json, timing.json, report.html and report.md for the runs in FOLDER that ended.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="`out` of a comparison")
    parser.set_defaults(run=_run_report)


COMMANDS: dict[str, Callable[[Any], None]] = {"ab": add_ab, "report": add_report}


def _run_ab(arguments: argparse.Namespace) -> None:
    from adaptive_sampling.ab import format_table, run_ab
    from adaptive_sampling.ab.config import load_config
    from adaptive_sampling.ab.runner import run_commands

    jobs = [] if arguments.jobs is None else [f"jobs={arguments.jobs}"]
    config = load_config(arguments.config, [*arguments.set, *jobs])
    if arguments.print_commands:
        command = ["adaptive-sampling", "ab", arguments.config]
        command += [part for override in arguments.set for part in ("--set", override)]
        print("\n".join(run_commands(command, config.bare_arms, config.settings["seeds"])))
        # On the other stream, so that the commands can be piped into a scheduler.
        print(f"when all have ended: adaptive-sampling report {config.out}", file=sys.stderr)
        return
    only = None if arguments.only is None else _parse_only(arguments.only)
    try:
        result = run_ab(
            config.full_arms(), config.module, config.data, out_dir=config.out, only=only, **config.settings
        )
    except KeyboardInterrupt:
        print(f"what was done is kept in {config.out}: the same command goes on from there", file=sys.stderr)
        raise
    failed = [run for run in result.runs if not run.finished]
    if failed and len(failed) == len(result.runs):
        raise ValueError(
            f"no run in {config.out} finished, the first ended with: {clause(failed[0].error)}. Look into its folder, "
            "where a run that failed has an error.txt, and give the same command again."
        )
    for run in failed:
        print(f"{run.arm}, seed {run.seed}: {run.status}: {run.error}", file=sys.stderr)
    print(format_table(result))
    print(f"{config.out / 'report.html'}, report.md, results.json, timing.json")
    if failed:  # what was asked for was not done, as a scheduler must see
        raise SystemExit(1)


def _parse_only(text: str) -> tuple[str, int]:
    arm, colon, seed = text.rpartition(":")
    if not colon or not arm or not seed.isdecimal():
        raise ValueError(f"`--only` must be ARM:SEED, got {text!r}. Write for example --only adaptive:0.")
    return arm, int(seed)


def _run_report(arguments: argparse.Namespace) -> None:
    from pathlib import Path

    from adaptive_sampling.ab import format_table, write_outcome

    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise ValueError(f"`FOLDER` must be the `out` of a comparison, got no folder {arguments.folder!r}.")
    result = write_outcome(folder)
    print(format_table(result))
    for name, verdict in result.verdicts.items():
        print(f"{name}: {verdict}")
    print(f"{folder / 'report.html'}, report.md, results.json, timing.json")
