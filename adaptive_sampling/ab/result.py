"""`Result`: all runs of a comparison and what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adaptive_sampling._files import write_json
from adaptive_sampling.ab.record import RunRecord
from adaptive_sampling.ab.statistics import MIN_SEEDS, Comparison, Interval, compare, mean_interval, percent

RESULT_VERSION = 1


@dataclass(frozen=True)
class Result:
    """All runs of a comparison.

    Attributes:
        arms: names, in the order given.
        baseline: the arm that the others are compared with.
        max_steps: optimizer steps per run.
        runs: the record of every run.
        comparisons: arm name → comparison with the baseline.
        losses: arm name → final held-out loss per target over the seeds; arms without a finished run are absent.
        source_losses: arm name → validation loader → the same per loader.
        macro_losses: arm name → the plain mean over loaders.
    """

    arms: tuple[str, ...]
    baseline: str
    max_steps: int
    runs: tuple[RunRecord, ...]
    comparisons: Mapping[str, Comparison]
    losses: Mapping[str, Interval]
    source_losses: Mapping[str, Mapping[str, Interval]]
    macro_losses: Mapping[str, Interval]

    @property
    def verdicts(self) -> dict[str, str]:
        """Arm name → verdict, without the baseline."""
        return {name: comparison.verdict for name, comparison in self.comparisons.items()}

    @property
    def sources(self) -> list[str]:
        """Names of the validation loaders."""
        return list(self.runs[0].settings["validation"]) if self.runs else []

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs."""
        return sorted({run.seed for run in self.runs})

    def runs_of(self, arm: str) -> list[RunRecord]:
        """Runs of an arm, by seed."""
        return sorted((run for run in self.runs if run.arm == arm), key=lambda run: run.seed)

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            "version": RESULT_VERSION,
            "baseline": self.baseline,
            "arms": list(self.arms),
            "seeds": self.seeds,
            "max_steps": self.max_steps,
            "preliminary": len(self.seeds) < MIN_SEEDS,
            "verdicts": self.verdicts,
            "losses": {name: asdict(value) for name, value in self.losses.items()},
            "macro_losses": {name: asdict(value) for name, value in self.macro_losses.items()},
            "source_losses": {
                name: {source: asdict(value) for source, value in row.items()}
                for name, row in self.source_losses.items()
            },
            "comparisons": {name: asdict(value) for name, value in self.comparisons.items()},
            "runs": [asdict(run) for run in self.runs],
        }

    def save(self, path: Path) -> None:
        """Write the result as JSON without NaN."""
        write_json(path, self.as_dict())

    def __str__(self) -> str:
        return format_table(self)


def summarise(runs: Sequence[RunRecord], arms: Sequence[str], baseline: str, max_steps: int) -> Result:
    """Compare all arms with the baseline."""
    by_arm = {name: [run for run in runs if run.arm == name] for name in arms}
    finished = {name: [run for run in by_arm[name] if run.finished] for name in arms}
    finished = {name: rows for name, rows in finished.items() if rows}
    return Result(
        tuple(arms),
        baseline,
        max_steps,
        tuple(runs),
        {name: compare(by_arm[name], by_arm[baseline]) for name in arms if name != baseline},
        {name: mean_interval([run.final_loss for run in rows]) for name, rows in finished.items()},
        {
            name: {source: mean_interval([run.final_losses[source] for run in rows]) for source in rows[0].final_losses}
            for name, rows in finished.items()
        },
        {
            name: mean_interval([sum(run.final_losses.values()) / len(run.final_losses) for run in rows])
            for name, rows in finished.items()
        },
    )


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
        raise ValueError(f"{path} has version {version!r}, this package reads {RESULT_VERSION}. Run run_ab again.")
    return summarise([RunRecord(**run) for run in raw["runs"]], raw["arms"], raw["baseline"], raw["max_steps"])


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
