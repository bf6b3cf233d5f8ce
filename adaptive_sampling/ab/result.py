"""`Result`: all runs of a comparison and what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adaptive_sampling._files import write_json
from adaptive_sampling.ab.comparison import Comparison, compare, percent
from adaptive_sampling.ab.held_out import too_little
from adaptive_sampling.ab.record import HELD_OUT, MACRO, RunRecord
from adaptive_sampling.ab.statistics import MIN_SEEDS, Interval, mean_interval
from adaptive_sampling.sampling.sampler import LAG

RESULT_VERSION = 2


@dataclass(frozen=True)
class Result:
    """All runs of a comparison.

    Attributes:
        arms: names, in the order given.
        baseline: the arm that the others are compared with.
        max_steps: optimizer steps per run.
        seeds: seeds asked for.
        runs: the record of every run that has ended.
        comparisons: arm name → comparison with the baseline.
        measures: arm name → measure → final loss over the seeds, nats per target; arms without a finished run are
            absent.
        notes: what must be known beside the verdicts, whatever the arm.
        title: of the report.
    """

    arms: tuple[str, ...]
    baseline: str
    max_steps: int
    seeds: tuple[int, ...]
    runs: tuple[RunRecord, ...]
    comparisons: Mapping[str, Comparison]
    measures: Mapping[str, Mapping[str, Interval]]
    notes: tuple[str, ...]
    title: str

    @property
    def verdicts(self) -> dict[str, str]:
        """Arm name → verdict, without the baseline."""
        return {name: comparison.verdict for name, comparison in self.comparisons.items()}

    @property
    def losses(self) -> dict[str, Interval]:
        """Arm name → final held-out loss per target over the seeds."""
        return {name: row[HELD_OUT] for name, row in self.measures.items()}

    @property
    def sources(self) -> list[str]:
        """Names of the sources whose held-out loss counts."""
        return list(next((run.curve[-1]["losses"] for run in self.runs if run.curve), {}))

    @property
    def source_losses(self) -> dict[str, dict[str, Interval]]:
        """Arm name → source → final held-out loss over the seeds."""
        return {
            name: {source: row[f"source {source}"] for source in self.sources if f"source {source}" in row}
            for name, row in self.measures.items()
        }

    @property
    def macro_losses(self) -> dict[str, Interval]:
        """Arm name → plain mean over sources."""
        return {name: row.get(MACRO, row[HELD_OUT]) for name, row in self.measures.items()}

    def runs_of(self, arm: str) -> list[RunRecord]:
        """Runs of an arm, by seed."""
        return sorted((run for run in self.runs if run.arm == arm), key=lambda run: run.seed)

    def as_dict(self) -> dict[str, Any]:
        """All but the times, as JSON values: the same for the same settings, however often the runs were broken off."""
        return {
            "version": RESULT_VERSION,
            "title": self.title,
            "baseline": self.baseline,
            "arms": list(self.arms),
            "seeds": list(self.seeds),
            "max_steps": self.max_steps,
            "preliminary": len(self.seeds) < MIN_SEEDS,
            "verdicts": self.verdicts,
            "notes": list(self.notes),
            "measures": {
                name: {measure: asdict(value) for measure, value in row.items()} for name, row in self.measures.items()
            },
            "comparisons": {name: value.as_dict() for name, value in self.comparisons.items()},
            "runs": [run.as_dict() for run in self.runs],
        }

    def timing(self) -> dict[str, Any]:
        """Wall-clock of all runs, and of the arms against the baseline, as JSON values."""
        return {
            "version": RESULT_VERSION,
            "runs": {f"{run.arm}-seed{run.seed}": asdict(run.timing) for run in self.runs},
            "training_against_baseline": {
                name: None if value.seconds_change is None else asdict(value.seconds_change)
                for name, value in self.comparisons.items()
            },
            "training_to_same_loss": {
                name: None if value.seconds_to_target is None else asdict(value.seconds_to_target)
                for name, value in self.comparisons.items()
            },
        }

    def save(self, folder: Path) -> None:
        """Write `results.json` and `timing.json`, without NaN."""
        write_json(folder / "timing.json", self.timing())
        write_json(folder / "results.json", self.as_dict())

    def __str__(self) -> str:
        return format_table(self)


def summarise(
    runs: Sequence[RunRecord],
    arms: Sequence[str],
    baseline: str,
    max_steps: int,
    *,
    seeds: Sequence[int] | None = None,
    title: str = "Comparison of window choices",
) -> Result:
    """Compare all arms with the baseline."""
    by_arm = {name: [run for run in runs if run.arm == name] for name in arms}
    finished = {name: [run for run in by_arm[name] if run.finished] for name in arms}
    finished = {name: rows for name, rows in finished.items() if rows}
    asked = tuple(sorted({run.seed for run in runs}) if seeds is None else seeds)
    comparisons = {
        name: compare(by_arm[name], by_arm[baseline], name=name)
        for name in arms
        if name != baseline and by_arm[baseline]
    }
    return Result(
        tuple(arms),
        baseline,
        max_steps,
        asked,
        tuple(runs),
        comparisons,
        {
            name: {
                measure: mean_interval([values[-1] for run in rows if (values := run.measure(measure)) is not None])
                for measure in rows[0].measures
            }
            for name, rows in finished.items()
        },
        _notes(runs, arms, asked),
        title,
    )


def _notes(runs: Sequence[RunRecord], arms: Sequence[str], seeds: Sequence[int]) -> tuple[str, ...]:
    notes = []
    shown = next((run for run in runs if run.curve), None)
    if shown is not None:
        notes += shown.settings.get("notes", [])
        targets = sum(shown.curve[-1]["targets"].values())
        windows = shown.settings.get("held_out_windows")
        if windows is not None and (short := too_little(targets, windows)) is not None:
            notes.append(short)
    notes += _unlearned(runs)
    absent = len(arms) * len(seeds) - len(runs)
    if absent > 0:
        notes.append(f"{absent} of {len(arms) * len(seeds)} runs have not ended: this is how things stand.")
    return tuple(notes)


def _unlearned(runs: Sequence[RunRecord]) -> list[str]:
    """Adaptive arms whose training is over before anything that was learned counts."""
    short = {}
    for run in runs:
        arm, steps = run.settings.get("arm", {}), run.settings.get("max_steps", 0)
        if arm.get("kind") == "adaptive" and 0 < steps <= arm["update_every"] + LAG:
            short[run.arm] = (
                f"{run.arm}: its weights are those known beforehand alone. Runs have {steps} steps, and what the first "
                f"update, after step {arm['update_every']}, has learned counts {LAG} steps later. Take more steps, or "
                "lower update_every."
            )
    return list(short.values())


def load_result(out_dir: Path | str) -> Result:
    """The result that `run_ab` left in a folder, computed again from the records in `results.json`.

    Raises:
        ValueError: if there is none, or one of another version.
    """
    path = Path(out_dir) / "results.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        version = raw["version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"`out_dir` must hold a readable results.json, got {path} ({error}). Run run_ab first."
        ) from error
    if version != RESULT_VERSION:
        raise ValueError(
            f"{path} must have version {RESULT_VERSION}, got {version!r}. "
            "Call run_ab again, or read it with the package version that wrote it."
        )
    times = path.with_name("timing.json")
    timing = json.loads(times.read_text(encoding="utf-8"))["runs"] if times.exists() else {}
    return summarise(
        [RunRecord.from_dict(run, timing.get(f"{run['arm']}-seed{run['seed']}")) for run in raw["runs"]],
        raw["arms"],
        raw["baseline"],
        raw["max_steps"],
        seeds=raw["seeds"],
        title=raw["title"],
    )


def interval_text(value: Interval, digits: int = 4) -> str:
    """Mean ± half the interval's width."""
    half = value.half_width
    return f"{value.mean:.{digits}f}" + ("" if half is None else f" ± {half:.{digits}f}")


def token_text(comparison: Comparison) -> str:
    """Change in tokens for the same loss, in per cent, with its interval."""
    change = comparison.token_change
    if change is None:
        return "–"
    text = f"{percent(change.mean)} %"
    return (
        text
        if change.low is None or change.high is None
        else f"{text} ({percent(change.low)} to {percent(change.high)})"
    )


def table_rows(result: Result) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table: losses with their 95 % intervals, tokens for the baseline's loss, verdict."""
    sources = result.sources
    several = len(sources) > 1
    header = ["arm", "held-out loss", *(sources if several else []), "tokens to same loss", "verdict"]
    rows = []
    for name in result.arms:
        if name in result.losses:
            cells = [interval_text(result.losses[name])]
            cells += [interval_text(result.source_losses[name][source], 3) for source in sources if several]
        else:
            cells = ["no finished run"] + ["–" for _ in sources if several]
        comparison = result.comparisons.get(name)
        tail = ["0 %", "baseline"] if comparison is None else [token_text(comparison), comparison.verdict]
        rows.append([name, *cells, *tail])
    return header, rows


def format_table(result: Result) -> str:
    """The result as a table of plain text, in the style of Markdown."""
    header, rows = table_rows(result)
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [header, *rows]]
    rule = "-|-".join("-" * width for width in widths)
    return "\n".join([f"| {lines[0]} |", f"|-{rule}-|", *(f"| {line} |" for line in lines[1:])])
