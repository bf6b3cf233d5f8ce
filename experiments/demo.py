"""Adaptive against uniform sampling on real text, end to end: `python -m experiments.demo --out runs/demo`.

The text is the running interpreter's own standard library, so nothing is downloaded. It is compared once with half its
tokens near-copies of 1 % of the documents, as crawled text has them, beside a placebo, and once as found, where one
window in eight is a near-copy of another document's.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
import warnings
from pathlib import Path

from adaptive_sampling.ab import Arm, Result, format_table, run_ab
from adaptive_sampling.ab.text_arms import TextAnalysis, TextPolicy
from experiments import text_runs
from experiments.gpt import SmallGPT


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


def compare(title: str, arms: list[str], scenario: str, out: Path, args: argparse.Namespace) -> Result:
    """One comparison; runs that are there already are kept."""
    say(f"\n{title}: corpus, windows, near-copies and clusters …")
    make_data = functools.partial(text_runs.scenario_data, scenario, root=str(args.out / "text"))
    analysis = TextAnalysis(make_data(), out / "analysis")
    policy = TextPolicy({}, analysis.scarcity(), analysis.groups("clusters"))
    known = {
        "uniform": Arm("uniform", coupled=True),
        "adaptive": Arm("adaptive", policy=policy, update_every=20),
        "placebo": Arm("placebo", placebo_of="adaptive", update_every=20),
    }
    return run_ab(
        [known[name] for name in arms],
        functools.partial(SmallGPT, text_runs.VOCAB_SIZE, text_runs.SEQ_LEN, layers=2, max_steps=args.steps),
        make_data,
        max_steps=args.steps,
        seeds=tuple(range(args.seeds)),
        out_dir=out / "runs",
        eval_every=max(1, args.steps // 8),
        jobs=args.jobs,
        title=title,
        trainer_settings={"accelerator": "cpu", "gradient_clip_val": 1.0},
        progress=say,
    )


def main() -> int:
    """Parse arguments, run both comparisons, print both tables."""
    parser = argparse.ArgumentParser(prog="python -m experiments.demo", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("runs/demo"), help="folder for everything (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=1000, help="optimizer steps per run (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds per arm (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), help="runs at a time (default: %(default)s)"
    )
    args = parser.parse_args()
    for name in ("steps", "seeds", "jobs"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    started = time.monotonic()
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            with_copies = compare(
                "Text with copies", ["uniform", "adaptive", "placebo"], "redundant", args.out / "copied", args
            )
            found = compare("Text as found", ["uniform", "adaptive"], "real", args.out / "as-found", args)
    except (ValueError, OSError) as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("demo: interrupted; finished runs are kept, the same command goes on", file=sys.stderr)
        return 130
    tokens = args.steps * text_runs.BATCH_SIZE * text_runs.SEQ_LEN
    print(
        f"\n{args.seeds} seeds, {tokens / 1e6:.2f} M tokens per run; held-out text holds no near-copy of training text."
    )
    print("\nText with half its tokens near-copies of 1 % of the documents\n")
    print(format_table(with_copies))
    print("\nThe same text as found\n")
    print(format_table(found))
    print(
        f"\n{(time.monotonic() - started) / 60:.1f} minutes. Stores, results.json, report.html and TensorBoard files:"
    )
    print(f"  {args.out}/copied/runs/report.html\n  {args.out}/as-found/runs/report.html")
    print(f"  tensorboard --logdir {args.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
