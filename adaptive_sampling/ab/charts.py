"""Two drawings as inline SVG, in colours that the page's style sheet sets: loss curves and weights over time."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adaptive_sampling.ab.record import RunRecord

_WIDTH, _HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 14, 44


@dataclass(frozen=True)
class Curve:
    """Mean of an arm's curves, with the lowest and the highest of its seeds at each point."""

    name: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def arm_curve(name: str, runs: Sequence[RunRecord]) -> Curve | None:
    """Curve of the finished runs of an arm; None without one."""
    runs = [run for run in runs if run.finished]
    if not runs:
        return None
    points = list(zip(*(run.losses for run in runs), strict=True))
    tokens = list(zip(*(run.tokens for run in runs), strict=True))
    return Curve(
        name,
        tuple(sum(point) / len(point) for point in tokens),
        tuple(sum(point) / len(point) for point in points),
        tuple(min(point) for point in points),
        tuple(max(point) for point in points),
    )


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round values within [low, high], about `count` of them.

    Example:
        >>> nice_ticks(0.0, 1.0)
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) + 0.0 for k in range(first, math.floor(high / step + 1e-9) + 1)]


def short_number(value: float) -> str:
    """A count with a suffix.

    Example:
        >>> short_number(1500), short_number(2_000_000)
        ('1.5k', '2M')
    """
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def loss_chart(curves: Sequence[Curve]) -> str:
    """Held-out loss over tokens trained on; the band spans the seeds."""
    if not curves:
        return "<p>No run finished.</p>"
    # The first evaluation is far above the rest, where arms differ; it may leave the frame.
    later = [value for curve in curves for value in (*curve.low[1:], *curve.high[1:])]
    values = later or [value for curve in curves for value in (*curve.low, *curve.high)]
    y_low, y_high = min(values), max(values)
    margin = 0.06 * (y_high - y_low) or 0.5
    y_low, y_high = y_low - margin, y_high + margin
    x_high = max(curve.x[-1] for curve in curves)

    def place(x: float, y: float) -> str:
        across = _LEFT + (x / x_high) * (_WIDTH - _LEFT - _RIGHT)
        down = _TOP + (y_high - y) / (y_high - y_low) * (_HEIGHT - _TOP - _BOTTOM)
        return f"{across:.1f},{down:.1f}"

    parts = [_axes(nice_ticks(0.0, x_high), nice_ticks(y_low, y_high), x_high, y_low, y_high)]
    parts.append(
        f'<clipPath id="frame"><rect x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _LEFT - _RIGHT}" '
        f'height="{_HEIGHT - _TOP - _BOTTOM}"/></clipPath><g clip-path="url(#frame)">'
    )
    for k, curve in enumerate(curves):
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
        f'<span class="key"><i class="swatch c{k % 6}"></i>{html.escape(c.name)}</span>' for k, c in enumerate(curves)
    )
    return f'<div class="legend">{legend}</div>{_svg(parts, "Held-out loss over tokens trained on")}'


def _axes(x_ticks: Sequence[float], y_ticks: Sequence[float], x_high: float, y_low: float, y_high: float) -> str:
    parts = []
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for value in y_ticks:
        y = _TOP + (y_high - value) / (y_high - y_low) * (bottom - _TOP)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    for value in x_ticks:
        x = _LEFT + value / x_high * (right - _LEFT)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{short_number(value)}</text>')
    middle = (_LEFT + right) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">tokens trained on</text>')
    return "".join(parts)


def weight_chart(edges: Sequence[float], history: Sequence[Mapping[str, Sequence[int]]], name: str) -> str:
    """Share of the windows per weight (upwards) at each evaluation (rightwards), darker = more."""
    used = [k for k in range(len(edges) - 1) if any(row["counts"][k] for row in history)]
    low, high = max(0, min(used) - 1), min(len(edges) - 2, max(used) + 1)
    rows, columns = high - low + 1, len(history)
    height = _HEIGHT - _TOP - _BOTTOM
    cell_width, cell_height = (_WIDTH - _LEFT - _RIGHT) / columns, height / rows
    parts = []
    for column, row in enumerate(history):
        total = sum(row["counts"])
        for k in range(low, high + 1):
            share = row["counts"][k] / total
            if share > 0:
                # The square root keeps the few heavy windows visible beside the bulk.
                x, y, opacity = (
                    _LEFT + column * cell_width,
                    _TOP + (high - k) * cell_height,
                    max(0.06, math.sqrt(share)),
                )
                parts.append(
                    f'<rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{cell_width:.1f}" height="{cell_height:.1f}" '
                    f'fill-opacity="{opacity:.2f}">'
                    f"<title>step {row['step']}: weight {edges[k]:.2g} to {edges[k + 1]:.2g}, "
                    f"{100 * share:.1f} % of windows</title></rect>"
                )
        if column % max(1, columns // 5) == 0 or column == columns - 1:
            x = _LEFT + (column + 0.5) * cell_width
            parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 17}" text-anchor="middle">{row["step"]}</text>')
    span = math.log(edges[high + 1] / edges[low])
    for value in (0.05, 0.1, 0.2, 0.5, 1, 2, 4, 10, 20):
        if edges[low] <= value <= edges[high + 1]:
            y = _TOP + math.log(edges[high + 1] / value) / span * height
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 6}" text-anchor="middle">step</text>')
    return f"<h3>{html.escape(name)}</h3>{_svg(parts, f'Weight over mean weight per step, {name}')}"


def _svg(parts: Sequence[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(label, quote=True)}">'
        f"{''.join(parts)}</svg>"
    )
