"""The campaign behind docs/evidence.md: every scenario, stage by stage: `python -m experiments.evidence`.

A stage adds arms or seeds to the runs that are there. The campaign can be broken off and started again at any time, and
the tables can be written from what has ended (`--tables`).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adaptive_sampling.ab import Result, run_ab
from adaptive_sampling.ab.config import load_config
from adaptive_sampling.ab.tables import markdown
from experiments import signal_arms
from experiments.evidence_tables import load_all, summary, write_page

CONFIGS = Path(__file__).parent / "configs"
PAGE = Path("docs/evidence.md")
FIRST_ARMS = ("uniform", "adaptive", "placebo")
SCENARIOS = ("redundant", "real", "manuals", "small", "noisy", "tail", "clean", "licences", "larger")
"""In the order in which they run. No default was chosen by a look at the last two."""
OWN_TEXT = ("corpora",)
"""Need text that has to be brought along; they run with `--only` alone."""
SIGNAL_SCENARIOS = ("real", "noisy", "tail")
"""Where each signal has an arm of its own, beside those of the configuration."""
SEEDS, MORE_SEEDS = 3, 5
_WIDE = 0.1
"""Half a width of the interval of tokens to the same loss beyond which two further seeds are worth their time."""


@dataclass(frozen=True)
class Stage:
    """Runs of one scenario that belong together.

    Attributes:
        scenario: stem of its configuration.
        arms: names of arms, those of earlier stages included; None: all.
        seeds: number of seeds.
        if_wide: whether it is left out where the interval of "adaptive" is narrow already.
    """

    scenario: str
    arms: tuple[str, ...] | None
    seeds: int
    if_wide: bool = False


def stages(scenarios: Sequence[str]) -> list[Stage]:
    """First three arms everywhere, then all arms, then more seeds where the answer is still open."""
    return [
        *(Stage(name, FIRST_ARMS, SEEDS) for name in scenarios),
        *(Stage(name, None, SEEDS) for name in scenarios),
        *(Stage(name, None, MORE_SEEDS, if_wide=True) for name in scenarios),
    ]


def is_wide(result: Result) -> bool:
    """Whether the interval of tokens to the same loss is too wide to be read, for adaptive against uniform."""
    comparison = result.comparisons.get("adaptive")
    change = None if comparison is None else comparison.token_change
    return change is None or change.half_width is None or change.half_width > _WIDE


def run_stage(stage: Stage, out: Path, jobs: int) -> Result:
    """Run what is missing of a stage.

    Raises:
        ValueError: if the configuration is wrong, or `out` holds runs of other settings.
    """
    folder = out / stage.scenario
    config = load_config(
        CONFIGS / f"{stage.scenario}.yaml",
        [f"seeds={stage.seeds}", f"out={folder}", f"jobs={jobs}", f"data.arguments.root={out / 'text'}"],
    )
    arms = [arm for arm in config.full_arms() if stage.arms is None or arm.name in stage.arms]
    if stage.arms is None and stage.scenario in SIGNAL_SCENARIOS:
        settings = config.settings
        training = signal_arms.Training(config.module, settings["max_steps"], settings.get("trainer_settings", {}))
        arms += signal_arms.arms(config.data(), folder.absolute() / "analysis", training)
    return run_ab(arms, config.module, config.data, out_dir=folder, **config.settings)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse arguments, run stages until they or the time are used up, write the tables."""
    parser = argparse.ArgumentParser(prog="python -m experiments.evidence", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/evidence"), help="folder (default: %(default)s)")
    parser.add_argument(
        "--only", nargs="+", choices=SCENARIOS + OWN_TEXT, default=SCENARIOS, metavar="SCENARIO", help="some alone"
    )
    parser.add_argument("--stages", type=int, choices=(1, 2, 3), default=3, help="stop behind this stage")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="runs at a time")
    parser.add_argument("--hours", type=float, default=float("inf"), help="begin no scenario after this long")
    parser.add_argument("--tables", action="store_true", help="run nothing; write the page from what has ended")
    parser.add_argument(
        "--page",
        type=Path,
        default=None,
        help=f"page whose tables are written (default: {PAGE}, unless --only leaves scenarios out)",
    )
    args = parser.parse_args(arguments)
    if args.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {args.jobs}")
    started = time.monotonic()
    try:
        if not args.tables:
            for stage in stages(args.only)[: args.stages * len(args.only)]:
                if time.monotonic() - started > 3600 * args.hours:
                    break
                _say(f"\n{stage.scenario}: {', '.join(stage.arms or ('all arms',))}, {stage.seeds} seeds")
                first = Stage(stage.scenario, stage.arms, SEEDS)
                if stage.if_wide and not is_wide(run_stage(first, args.out, args.jobs)):
                    _say(f"narrow enough with {SEEDS} seeds")
                    continue
                run_stage(stage, args.out, args.jobs)
        if args.tables or args.page is not None or set(args.only) == set(SCENARIOS):
            page = args.page or PAGE
            _say(f"{page}: {write_page(page, args.out, SCENARIOS + OWN_TEXT)} scenarios")
        else:  # a page of a part would lose the tables of the others
            print(markdown(summary(load_all(args.out, args.only))))
    except (ValueError, OSError) as error:
        print(f"evidence: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("evidence: interrupted; the same command goes on", file=sys.stderr)
        return 130
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
