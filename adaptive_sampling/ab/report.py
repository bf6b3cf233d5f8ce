"""One self-contained HTML page: the verdict first, then what it rests on; and the same in Markdown."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from adaptive_sampling._files import atomic_writer
from adaptive_sampling.ab import tables
from adaptive_sampling.ab.bars import draw_bars, token_bars
from adaptive_sampling.ab.charts import arm_curve, difference_curve, loss_chart, weight_chart
from adaptive_sampling.ab.evaluation import MOST_DRAWS_SHOWN
from adaptive_sampling.ab.record import HELD_OUT, MACRO
from adaptive_sampling.ab.result import Result, format_table, table_rows
from adaptive_sampling.ab.statistics import BOOTSTRAP_SEEDS, MIN_SEEDS

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
figure{overflow-x:auto}svg{min-width:34rem}
svg text{fill:var(--soft);font-size:14px}.grid{stroke:var(--line)}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}
.line{fill:none;stroke:var(--c);stroke-width:2}.dot{fill:var(--c)}.band{fill:var(--c);fill-opacity:.16}
.cell{fill:var(--c1)}.bar{fill:var(--c)}.whisker{stroke:var(--text);stroke-width:1.5}
.unity{stroke:var(--soft);stroke-dasharray:4 3}.window{margin:.4rem 0;white-space:pre-wrap;overflow-wrap:anywhere}
.remark{border-left:3px solid var(--c5);padding-left:.75rem;margin:.5rem 0}
.legend{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;margin:.25rem 0 .5rem}
.swatch{display:inline-block;width:.9em;height:.9em;border-radius:2px;background:var(--c);margin-right:.4em}
pre{overflow-x:auto;font-size:.85rem;background:var(--card);border:1px solid var(--line);border-radius:6px;
padding:.75rem}
figure{margin:0}
"""


def write_report(result: Result, path: Path | str) -> None:
    """Write the page, whole or not at all."""
    with atomic_writer(path, "w") as file:
        file.write(render(result))


def write_markdown(result: Result, path: Path | str) -> None:
    """Write the Markdown, whole or not at all."""
    with atomic_writer(path, "w") as file:
        file.write(render_markdown(result))


def render(result: Result) -> str:
    """The page as text; it loads nothing from anywhere, and all names and texts in it are escaped."""
    title = html.escape(result.title)
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        # Without it a browser asks a server for one.
        '<link rel="icon" href="data:,">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        _verdicts(result),
        "<h2>Results</h2>",
        _table(table_rows(result)),
        f'<p class="note">{html.escape(_reading(result))}</p>',
        "<h2>Held-out loss</h2><figure>",
        loss_chart([curve for name in result.arms if (curve := _curve(result, name)) is not None]),
        "<figcaption>Mean over seeds; the band spans them.</figcaption></figure>",
        _differences(result),
        _bars(result),
        "<h2>Per source and set</h2>",
        _table(tables.measures(result)),
        _section("Fixed target", tables.targets(result)),
        _section("Noise", tables.noise(result), _NOISE),
        _weights(result),
        _draws(result),
        _windows(result),
        _section("Time", tables.times(result), "Training includes our overhead, and leaves out evaluations."),
        _section("Fairness", tables.fairness(result), _FAIRNESS),
        _section("Runs without a result", tables.failures(result)),
        "<h2>Settings</h2>",
        f"<pre>{html.escape(json.dumps(_settings(result), indent=2, ensure_ascii=False))}</pre>",
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def render_markdown(result: Result) -> str:
    """The verdict and all tables, without pictures."""
    lines = [f"# {result.title}", ""]
    lines += [f"**{name}**: {verdict}" + "\n" for name, verdict in result.verdicts.items()] or [_NOTHING, ""]
    lines += [f"> {text}" + "\n" for text in _remarks(result)]
    lines += [_basis(result), "", format_table(result), "", _reading(result), ""]
    for title, table in (
        ("Per source and set", tables.measures(result)),
        ("Fixed target", tables.targets(result)),
        ("Noise", tables.noise(result)),
        ("Time", tables.times(result)),
        ("Fairness", tables.fairness(result)),
        ("Runs without a result", tables.failures(result)),
    ):
        if table[1]:
            lines += [f"## {title}", "", tables.markdown(table), ""]
    return "\n".join(lines)


_NOTHING = "Nothing to compare: one arm."
_NOISE = (
    "Standard deviations over seeds of the differences paired by seed. The last columns: further seeds with which such "
    "an effect would be seen four times in five."
)
_FAIRNESS = "Hashed in every run, and compared while it trains: an arm that differs in one of these is refused."


def _reading(result: Result) -> str:
    kind = "bootstrap" if len(result.seeds) >= BOOTSTRAP_SEEDS else "t"
    return (
        f"Losses in nats per target, ± half of the 95 % {kind} interval over seeds. Tokens to the same loss: compared "
        f"with {result.baseline}, paired by seed."
    )


def _basis(result: Result) -> str:
    seeds = len(result.seeds)
    hint = "" if seeds >= MIN_SEEDS else f" Preliminary: {MIN_SEEDS} seeds or more make a verdict."
    return f"Against {result.baseline}; {seeds} seed{'s' if seeds > 1 else ''}, {result.max_steps} steps each.{hint}"


def _remarks(result: Result) -> list[str]:
    own = [f"{name}: {remark}" for name, c in result.comparisons.items() for remark in c.remarks]
    return [*own, *result.notes]


def _verdicts(result: Result) -> str:
    lines = [
        f'<p class="verdict"><b>{html.escape(name)}</b>: {html.escape(verdict)}</p>'
        for name, verdict in result.verdicts.items()
    ] or [f'<p class="verdict">{_NOTHING}</p>']
    lines += [f'<p class="remark">{html.escape(text)}</p>' for text in _remarks(result)]
    return "\n".join([*lines, f'<p class="note">{html.escape(_basis(result))}</p>'])


def _table(table: tables.Table) -> str:
    header, rows = table
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "\n".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _section(title: str, table: tables.Table, note: str = "") -> str:
    if not table[1]:
        return ""
    return f"<h2>{title}</h2>{_table(table)}" + (f'<p class="note">{html.escape(note)}</p>' if note else "")


def _colours(result: Result) -> dict[str, int]:
    return {name: number for number, name in enumerate(result.arms)}


def _curve(result: Result, name: str) -> Any:
    return arm_curve(name, result.runs_of(name), _colours(result)[name])


def _differences(result: Result) -> str:
    base, colours = result.runs_of(result.baseline), _colours(result)
    found = [difference_curve(name, result.runs_of(name), base, colours[name]) for name in result.comparisons]
    curves = [curve for curve in found if curve is not None]
    if not curves:
        return ""
    label = f"Held-out loss minus that of {result.baseline}"
    caption = "Paired by seed: mean and span over seeds; below 0 is better. Noise common to both is gone."
    drawing = loss_chart(curves, label, zero=True)
    return f"<h3>{html.escape(label)}</h3><figure>{drawing}<figcaption>{caption}</figcaption></figure>"


def _bars(result: Result) -> str:
    changes = {
        name: {
            measure: c.differences[measure].token_change for measure in (HELD_OUT, MACRO) if measure in c.differences
        }
        for name, c in result.comparisons.items()
    }
    if not any(changes.values()):
        return ""
    caption = f"Tokens to the same loss as {html.escape(result.baseline)}, with the 95 % interval; shorter is better."
    drawing = token_bars(changes, result.baseline, _colours(result))
    return f"<h2>Tokens to the same loss</h2><figure>{drawing}<figcaption>{caption}</figcaption></figure>"


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


def _draws(result: Result) -> str:
    counts = {
        name: run.draw_counts
        for name in result.arms
        if (run := next((run for run in result.runs_of(name) if sum(run.draw_counts)), None)) is not None
    }
    if not counts:
        return ""
    legend = "".join(
        f'<span class="key"><i class="swatch c{_colours(result)[name] % 6}"></i>{html.escape(name)}</span>'
        for name in counts
    )
    drawing = draw_bars(counts, MOST_DRAWS_SHOWN, _colours(result))
    caption = "Share of the training windows by how often each was drawn in the whole run; first seed."
    return (
        f'<h2>Draws per window</h2><figure><div class="legend">{legend}</div>{drawing}'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _windows(result: Result) -> str:
    parts: list[str] = []
    for name in result.arms:
        run = next((run for run in result.runs_of(name) if run.extremes), None)
        if run is None:
            continue
        for kind in ("most", "least"):
            shown = "".join(
                f'<pre class="window"><b>{row["draws"]} draws</b>, window {row["id"]}'
                f"{', ' + html.escape(row['source']) if row['source'] else ''}\n{html.escape(row['text'])}</pre>"
                for row in run.extremes.get(kind, [])
            )
            label = f"{html.escape(name)}, seed {run.seed}: drawn {kind}"
            parts.append(f"<details{' open' if not parts else ''}><summary>{label}</summary>{shown}</details>")
    return f"<h2>Most and least drawn windows</h2>{''.join(parts)}" if parts else ""


def _settings(result: Result) -> dict[str, Any]:
    """What all runs share, and what the arms choose."""
    if not result.runs:
        return {}
    own = ("arm", "seed", "initial_parameters", "comparison", "notes")
    shared = {k: v for k, v in result.runs[0].settings.items() if k not in own}
    return {**shared, "arms": {run.arm: run.settings["arm"] for run in result.runs}, "seeds": list(result.seeds)}
