"""Loss curves and weights over time as inline SVG, in colours that the page's style sheet sets."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adaptive_sampling.ab._svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    nice_ticks,
    short_number,
    svg,
    within_width,
)
from adaptive_sampling.ab.record import RunRecord

_MANY = 4


@dataclass(frozen=True)
class Curve:
    """Mean of an arm's curves, with the lowest and the highest of its seeds at each point."""

    name: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    colour: int = 0


def arm_curve(name: str, runs: Sequence[RunRecord], colour: int = 0) -> Curve | None:
    """Curve of the finished runs of an arm; None without one."""
    runs = [run for run in runs if run.finished]
    if not runs:
        return None
    return _spanned(name, [run.tokens for run in runs], [run.losses for run in runs], colour)


def difference_curve(
    name: str, runs: Sequence[RunRecord], baseline: Sequence[RunRecord], colour: int = 0
) -> Curve | None:
    """Held-out loss of an arm minus the baseline's, paired by seed; None without a pair."""
    base = {run.seed: run for run in baseline if run.finished}
    pairs = [(run, base[run.seed]) for run in runs if run.finished and run.seed in base]
    if not pairs:
        return None
    apart = [[mine - its for mine, its in zip(run.losses, other.losses, strict=True)] for run, other in pairs]
    return _spanned(name, [run.tokens for run, _ in pairs], apart, colour)


def _spanned(name: str, tokens: Sequence[Sequence[float]], values: Sequence[Sequence[float]], colour: int) -> Curve:
    points = list(zip(*values, strict=True))
    return Curve(
        name,
        tuple(sum(point) / len(point) for point in zip(*tokens, strict=True)),
        tuple(sum(point) / len(point) for point in points),
        tuple(min(point) for point in points),
        tuple(max(point) for point in points),
        colour,
    )


def loss_chart(
    curves: Sequence[Curve], label: str = "Held-out loss over tokens trained on", *, zero: bool = False
) -> str:
    """Held-out loss over tokens trained on, or a difference of such, with 0 in sight; the band spans the seeds."""
    if not curves:
        return "<p>No run finished.</p>"
    # The first of many evaluations is far above the rest, where arms differ; it may leave the frame.
    first = 1 if min(len(curve.x) for curve in curves) >= _MANY else 0
    values = [value for curve in curves for value in (*curve.low[first:], *curve.high[first:])]
    if zero:
        values.append(0.0)
    y_low, y_high = min(values), max(values)
    margin = 0.06 * (y_high - y_low) or 0.5
    y_low, y_high = y_low - margin, y_high + margin
    x_high = max(curve.x[-1] for curve in curves)

    frame = "".join(letter for letter in label if letter.isalnum())

    def place(x: float, y: float) -> str:
        across = LEFT + (x / x_high) * (WIDTH - LEFT - RIGHT)
        down = TOP + (y_high - y) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return f"{across:.1f},{down:.1f}"

    parts = [_axes(nice_ticks(0.0, x_high), nice_ticks(y_low, y_high), x_high, y_low, y_high)]
    parts.append(
        f'<clipPath id="{frame}"><rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" '
        f'height="{HEIGHT - TOP - BOTTOM}"/></clipPath><g clip-path="url(#{frame})">'
    )
    for curve in curves:
        k = curve.colour
        band = [place(x, y) for x, y in zip(curve.x, curve.high, strict=True)]
        band += [place(x, y) for x, y in reversed(list(zip(curve.x, curve.low, strict=True)))]
        line = " ".join(place(x, y) for x, y in zip(curve.x, curve.mean, strict=True))
        parts.append(f'<polygon class="band c{k % 6}" points="{" ".join(band)}"/>')
        parts.append(
            f'<polyline class="line c{k % 6}" points="{line}"><title>{html.escape(curve.name)}</title></polyline>'
        )
        parts += [
            f'<circle class="dot c{k % 6}" cx="{place(x, y).split(",")[0]}" cy="{place(x, y).split(",")[1]}" r="3">'
            f"<title>{html.escape(curve.name)}: {y:.4f} at {short_number(x)} tokens</title></circle>"
            for x, y in zip(curve.x, curve.mean, strict=True)
        ]
    parts.append("</g>")
    legend = "".join(
        f'<span class="key"><i class="swatch c{c.colour % 6}"></i>{html.escape(c.name)}</span>' for c in curves
    )
    return f'<div class="legend">{legend}</div>{svg(parts, label)}'


def _axes(x_ticks: Sequence[float], y_ticks: Sequence[float], x_high: float, y_low: float, y_high: float) -> str:
    parts = []
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value in y_ticks:
        y = TOP + (y_high - value) / (y_high - y_low) * (bottom - TOP)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{f"{value:.4g}".replace("-", "−")}</text>'
        )
    for value in x_ticks:
        x = within_width(LEFT + value / x_high * (right - LEFT))
        parts.append(f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{short_number(value)}</text>')
    middle = (LEFT + right) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">tokens trained on</text>')
    return "".join(parts)


def weight_chart(edges: Sequence[float], history: Sequence[Mapping[str, Sequence[int]]], name: str) -> str:
    """Share of the windows per weight (upwards) at each evaluation (rightwards), darker = more."""
    used = [k for k in range(len(edges) - 1) if any(row["counts"][k] for row in history)]
    low, high = max(0, min(used) - 1), min(len(edges) - 2, max(used) + 1)
    rows, columns = high - low + 1, len(history)
    height = HEIGHT - TOP - BOTTOM
    cell_width, cell_height = (WIDTH - LEFT - RIGHT) / columns, height / rows
    parts = []
    for column, row in enumerate(history):
        total = sum(row["counts"])
        for k in range(low, high + 1):
            share = row["counts"][k] / total
            if share > 0:
                # The square root keeps the few heavy windows visible beside the bulk.
                x, y, opacity = (
                    LEFT + column * cell_width,
                    TOP + (high - k) * cell_height,
                    max(0.06, math.sqrt(share)),
                )
                parts.append(
                    f'<rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{cell_width:.1f}" height="{cell_height:.1f}" '
                    f'fill-opacity="{opacity:.2f}">'
                    f"<title>step {row['step']}: weight {edges[k]:.2g} to {edges[k + 1]:.2g}, "
                    f"{100 * share:.1f} % of windows</title></rect>"
                )
        if column % max(1, columns // 5) == 0 or column == columns - 1:
            x = LEFT + (column + 0.5) * cell_width
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{row["step"]}</text>')
    span = math.log(edges[high + 1] / edges[low])
    for value in (0.05, 0.1, 0.2, 0.5, 1, 2, 4, 10, 20):
        if edges[low] <= value <= edges[high + 1]:
            y = TOP + math.log(edges[high + 1] / value) / span * height
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">step</text>')
    return f"<h3>{html.escape(name)}</h3>{svg(parts, f'Weight over mean weight per step, {name}')}"
