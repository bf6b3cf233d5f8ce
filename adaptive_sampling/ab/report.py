"""One self-contained HTML page: the verdict first, then what it rests on."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from adaptive_sampling._files import atomic_writer
from adaptive_sampling.ab.charts import arm_curve, loss_chart, weight_chart
from adaptive_sampling.ab.result import Result, interval_text, table_rows
from adaptive_sampling.ab.statistics import MIN_SEEDS, Interval, percent

_STYLE = """
:root{color-scheme:light dark;--ground:#fbfbfa;--text:#1d1f21;--soft:#6a6e73;--line:#dcdddc;--card:#fff;
--c0:#6b7280;--c1:#c2410c;--c2:#2563a8;--c3:#3f7d3a;--c4:#7c3aa0;--c5:#a16207}
@media (prefers-color-scheme:dark){:root{--ground:#16181a;--text:#e6e6e3;--soft:#9a9ea3;--line:#34383c;--card:#1e2123;
--c0:#a3a8b0;--c1:#fb923c;--c2:#70aef0;--c3:#86c77f;--c4:#c69bea;--c5:#e2b84a}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem 1rem 3rem;max-width:60rem;background:var(--ground);color:var(--text);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.1rem;color:var(--soft);font-weight:600;margin:0 0 .5rem}
h2{font-size:1.15rem;margin:2rem 0 .5rem}h3{font-size:1rem;margin:1rem 0 .25rem}
.verdict{font-size:1.5rem;line-height:1.3;margin:.25rem 0}.verdict b{font-weight:650}
.note,figcaption{color:var(--soft);font-size:.9rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem}
th,td{text-align:left;padding:.35rem .9rem .35rem 0;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:600}
svg{display:block;width:100%;height:auto;background:var(--card);border:1px solid var(--line);border-radius:6px}
svg text{fill:var(--soft);font-size:13px}.grid{stroke:var(--line)}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}
.line{fill:none;stroke:var(--c);stroke-width:2}.dot{fill:var(--c)}.band{fill:var(--c);fill-opacity:.16}
.cell{fill:var(--c1)}.legend{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;margin:.25rem 0 .5rem}
.swatch{display:inline-block;width:.9em;height:.9em;border-radius:2px;background:var(--c);margin-right:.4em}
pre{overflow-x:auto;font-size:.85rem;background:var(--card);border:1px solid var(--line);border-radius:6px;
padding:.75rem}
figure{margin:0}
"""


def write_report(result: Result, path: Path | str, *, title: str = "Comparison of window choices") -> None:
    """Write the page, whole or not at all."""
    with atomic_writer(path, "w") as file:
        file.write(render(result, title=title))


def render(result: Result, *, title: str = "Comparison of window choices") -> str:
    """The page as text; it loads nothing from anywhere, and all names in it are escaped."""
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
        _verdicts(result),
        "<h2>Results</h2>",
        _table(*table_rows(result)),
        f'<p class="note">Losses in nats per target, ± half of the 95 % interval over seeds. Tokens to the same loss: '
        f"compared with {html.escape(result.baseline)}, paired by seed.</p>",
        "<h2>Held-out loss</h2><figure>",
        loss_chart([curve for name in result.arms if (curve := arm_curve(name, result.runs_of(name))) is not None]),
        "<figcaption>Mean over seeds; the band spans them.</figcaption></figure>",
        _weights(result),
        "<h2>Per source</h2>",
        _sources(result),
        "<h2>Time</h2>",
        _time(result),
        _failures(result),
        "<h2>Settings</h2>",
        f"<pre>{html.escape(json.dumps(_settings(result), indent=2, ensure_ascii=False))}</pre>",
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _verdicts(result: Result) -> str:
    lines = [
        f'<p class="verdict"><b>{html.escape(name)}</b>: {html.escape(verdict)}</p>'
        for name, verdict in result.verdicts.items()
    ]
    if not lines:
        lines = ['<p class="verdict">Nothing to compare: one arm.</p>']
    seeds = len(result.seeds)
    hint = "" if seeds >= MIN_SEEDS else f" Preliminary: {MIN_SEEDS} seeds or more make a verdict."
    steps = f"{seeds} seed{'s' if seeds > 1 else ''}, {result.max_steps} steps each."
    return "\n".join([*lines, f'<p class="note">Against {html.escape(result.baseline)}; {steps}{hint}</p>'])


def _table(header: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "\n".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _weights(result: Result) -> str:
    charts = []
    for name in result.arms:
        run = next((run for run in result.runs_of(name) if run.weight_history), None)
        if run is not None:
            charts.append(weight_chart(run.weight_edges, run.weight_history, f"{name}, seed {run.seed}"))
    if not charts:
        return ""
    caption = "Weight over mean weight (upwards) at each evaluation (rightwards); darker = more windows."
    return f"<h2>Weights over time</h2><figure>{''.join(charts)}<figcaption>{caption}</figcaption></figure>"


def _signed(value: Interval | None) -> str:
    if value is None:
        return "–"
    half = value.half_width
    return (f"{value.mean:+.4f}" + ("" if half is None else f" ± {half:.4f}")).replace("-", "−")


def _sources(result: Result) -> str:
    header = ["source", "targets", *(f"{name}: loss" for name in result.arms if name in result.losses)]
    header += [f"{name} − {result.baseline}" for name in result.comparisons]
    targets: dict[str, int] = next((run.curve[-1]["targets"] for run in result.runs if run.finished), {})
    rows = []
    for source in result.sources:
        cells = [interval_text(row[source]) for row in result.source_losses.values()]
        cells += [_signed(c.source_differences.get(source)) for c in result.comparisons.values()]
        rows.append([source, str(targets.get(source, "–")), *cells])
    for label, losses in (("all, per target", result.losses), ("mean over sources", result.macro_losses)):
        all_targets = str(sum(targets.values())) if label.startswith("all") else ""
        differences = [_signed(c.loss_difference) if all_targets else "" for c in result.comparisons.values()]
        rows.append([label, all_targets, *(interval_text(value) for value in losses.values()), *differences])
    return _table(header, rows)


def _time(result: Result) -> str:
    rows = []
    for name in result.arms:
        runs = [run for run in result.runs_of(name) if run.finished]
        if runs:
            train, evaluation = (
                sum(getattr(r, k) for r in runs) / len(runs) for k in ("train_seconds", "eval_seconds")
            )
            change = result.comparisons[name].seconds_change if name in result.comparisons else None
            text = "–"
            if change is not None:
                text = f"{percent(change.mean)} %"
                if change.low is not None and change.high is not None:
                    text += f" ({percent(change.low)} to {percent(change.high)})"
            rows.append([name, f"{train:.1f} s", f"{evaluation:.1f} s", text])
    return _table(["arm", "training", "evaluation", "training against baseline"], rows)


def _failures(result: Result) -> str:
    rows = [[run.arm, str(run.seed), run.status, run.error or ""] for run in result.runs if not run.finished]
    return "<h2>Runs without a result</h2>" + _table(["arm", "seed", "status", "what happened"], rows) if rows else ""


def _settings(result: Result) -> dict[str, Any]:
    """What all runs share, and what the arms choose."""
    if not result.runs:
        return {}
    shared = {k: v for k, v in result.runs[0].settings.items() if k not in ("arm", "seed", "initial_parameters")}
    return {**shared, "arms": {run.arm: run.settings["arm"] for run in result.runs}, "seeds": result.seeds}
