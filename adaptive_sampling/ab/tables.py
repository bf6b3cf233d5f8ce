"""The tables of a report, as header and rows of text, for the page and for Markdown alike."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_sampling.ab.comparison import percent
from adaptive_sampling.ab.record import AS_SPLIT, HELD_OUT, MACRO, SCARCEST, WORST, RunRecord
from adaptive_sampling.ab.result import Result, interval_text
from adaptive_sampling.ab.statistics import Interval, reach

Table = tuple[list[str], list[list[str]]]

_MOST = 10.0  # an interval that reaches further, as a change, says nothing

_MEANING = {
    HELD_OUT: "all, without near-copies of training text: carries the verdict",
    AS_SPLIT: "all, as split",
    MACRO: "plain mean over sources",
    WORST: "the source with the highest loss",
    SCARCEST: "the tenth least like training text",
}


def change_text(change: Interval | None) -> str:
    """A change in per cent with its interval."""
    if change is None:
        return "–"
    text = f"{percent(change.mean)} %"
    if change.low is None or change.high is None:
        return text
    if change.high > _MOST:
        return f"{text} (too wide to be read)"
    return f"{text} ({percent(change.low)} to {percent(change.high)})"


def signed(value: Interval | None) -> str:
    """A difference with its sign, ± half its interval."""
    if value is None:
        return "–"
    half = value.half_width
    return (f"{value.mean:+.4f}" + ("" if half is None else f" ± {half:.4f}")).replace("-", "−")


def measures(result: Result) -> Table:
    """Per way to sum up, and per source: final losses, differences from the baseline, tokens to the same loss."""
    arms = [name for name in result.arms if name in result.measures]
    others = list(result.comparisons)
    header = ["held-out text", "targets", *(f"{name}: loss" for name in arms)]
    header += [cell for name in others for cell in (f"{name} − {result.baseline}", f"{name}: tokens")]
    names = list(dict.fromkeys(name for arm in arms for name in result.measures[arm]))
    point = next((run.curve[-1] for run in result.runs if run.finished), None)
    rows = []
    for name in names:
        label = name.removeprefix("source ")
        cells = [interval_text(row) if (row := result.measures[arm].get(name)) is not None else "–" for arm in arms]
        for other in others:
            difference = result.comparisons[other].differences.get(name)
            cells.append(signed(None if difference is None else difference.loss_difference))
            cells.append(change_text(None if difference is None else difference.token_change))
        rows.append([_MEANING.get(name, label), _targets(name, point), *cells])
    return header, rows


def _targets(name: str, point: dict[str, dict[str, dict[str, int]]] | None) -> str:
    if point is None:
        return "–"
    if name == HELD_OUT:
        return str(sum(point["targets"].values()))  # type: ignore[arg-type]
    if name == AS_SPLIT:
        return str(sum(point["as_split"]["targets"].values()))
    if name == SCARCEST:
        return str(point["scarce"]["targets"])
    return str(point["targets"].get(name.removeprefix("source "), ""))


def targets(result: Result) -> Table:
    """Per arm and seed: tokens, steps and seconds to the baseline's final loss, or that it was never reached."""
    rows = []
    for name, comparison in result.comparisons.items():
        runs = {run.seed: run for run in result.runs_of(name)}
        base = {run.seed: run for run in result.runs_of(result.baseline)}
        for target in comparison.targets:
            row = [name, str(target.seed), f"{target.loss:.4f}"]
            if target.tokens is None or target.steps is None:
                row += [f"never reached (ended at {target.ended_at:.4f})", "–", "–", "–"]
            else:
                share = percent(target.tokens / target.baseline_tokens - 1.0)
                row += [f"{target.tokens:.0f}", f"{share} %", f"{target.steps:.0f}"]
                row.append(_seconds(runs[target.seed], base[target.seed]))
            rows.append(row)
    header = ["arm", "seed", f"{result.baseline}'s final loss", "tokens", "against baseline", "steps", "training time"]
    return header, rows


def _seconds(run: RunRecord, base: RunRecord) -> str:
    if not run.seconds or not base.seconds:
        return "–"
    mine, its = reach(run.seconds, run.losses, base.final_loss), base.seconds[-1]
    return "–" if mine is None else f"{mine:.1f} s against {its:.1f} s"


def noise(result: Result) -> Table:
    """Scatter over seeds and the further seeds that effects of some sizes would need."""
    effects = next((list(c.noise.more_seeds) for c in result.comparisons.values() if c.noise is not None), [])
    header = [
        "arm",
        "seeds",
        "loss difference, sd",
        "tokens, sd",
        *(f"seeds to see {effect} fewer" for effect in effects),
    ]
    rows = []
    for name, comparison in result.comparisons.items():
        if comparison.noise is None:
            continue
        needed = [f"{n} more" if n else "enough" for n in comparison.noise.more_seeds.values()]
        spread = [f"{comparison.noise.loss:.4f} nats", f"±{100 * comparison.noise.tokens:.0f} %"]
        rows.append([name, str(len(comparison.seeds)), *spread, *needed])
    return header, rows


def times(result: Result) -> Table:
    """Wall-clock per run, training and evaluation apart, and against the baseline."""
    rows = []
    for name in result.arms:
        runs = [run for run in result.runs_of(name) if run.finished and run.seconds]
        if not runs:
            continue
        train = sum(run.timing.train_seconds for run in runs) / len(runs)
        evaluation = sum(run.timing.eval_seconds for run in runs) / len(runs)
        comparison = result.comparisons.get(name)
        change = None if comparison is None else comparison.seconds_change
        to_loss = None if comparison is None else comparison.seconds_to_target
        per_step = 1000.0 * train / result.max_steps
        rows.append(
            [name, f"{train:.1f} s", f"{per_step:.1f} ms", f"{evaluation:.1f} s", change_text(change)]
            + [change_text(to_loss)]
        )
    header = ["arm", "training", "per step", "evaluation", "training against baseline", "time to same loss"]
    return header, rows


def fairness(result: Result) -> Table:
    """What the arms of a seed share, as hashed in their runs."""
    rows = []
    for seed in result.seeds:
        runs = [run for run in result.runs if run.seed == seed and run.curve]
        for name, values in (
            ("initial parameters", [run.settings.get("initial_parameters") for run in runs]),
            ("optimizers", [run.optimizers for run in runs]),
            ("schedule and batch sizes, all steps", [run.curve[-1].get("schedule") for run in runs if run.finished]),
            ("windows", [run.curve[-1].get("windows") for run in runs if run.finished]),
            ("tokens", [int(run.tokens[-1]) for run in runs if run.finished]),
            ("validation", [_validation(run) for run in runs]),
        ):
            different = list(dict.fromkeys(values))
            same = "the same" if len(different) == 1 else "within 1 %" if name == "tokens" else "different"
            if different:
                rows.append([str(seed), name, " / ".join(map(str, different)), f"{same} in {len(values)} runs"])
    return ["seed", "what", "value or digest", "arms"], rows


def _validation(run: RunRecord) -> str:
    """Digests of the validation sets of a run."""
    return " ".join(str(value.get("fingerprint", "")) for value in run.settings.get("validation", {}).values())


def failures(result: Result) -> Table:
    """Runs that gave no result, and why."""
    rows = [[run.arm, str(run.seed), run.status, run.error or ""] for run in result.runs if not run.finished]
    return ["arm", "seed", "status", "what happened"], rows


def markdown(table: Table) -> str:
    """A table in Markdown."""
    header, rows = table
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = (cell.replace("|", "\\|").ljust(width) for cell, width in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    return "\n".join([line(header), f"|-{'-|-'.join('-' * width for width in widths)}-|", *map(line, rows)])
