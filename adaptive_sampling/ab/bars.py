"""Bars as inline SVG: tokens to the same loss per arm, and how often windows were drawn."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from adaptive_sampling.ab._svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, nice_ticks, svg, within_width
from adaptive_sampling.ab.statistics import Interval

_ROW = 34
_NAMES = 216


def token_bars(changes: Mapping[str, Mapping[str, Interval]], baseline: str, colours: Mapping[str, int]) -> str:
    """Tokens for the same loss, as a share of the baseline's, with its interval.

    Args:
        changes: arm → measure → change in tokens.
        baseline: name of the arm that stands for 100 %.
        colours: number of each arm's colour.
    """
    rows = [(arm, measure, change) for arm, row in changes.items() for measure, change in row.items()]
    if not rows:
        return "<p>No pair of runs finished.</p>"
    ends = [1.0 + end for _, _, change in rows for end in (change.mean, change.high) if end is not None]
    # A whisker may leave the frame rather than squeeze all bars to a line.
    most = min(max(1.0, *ends), 2.5) * 1.05
    height = TOP + _ROW * len(rows) + BOTTOM

    def place(share: float) -> float:
        return _NAMES + min(share, most) / most * (WIDTH - _NAMES - RIGHT)

    bottom = height - BOTTOM
    parts = []
    for tick in nice_ticks(0.0, most):
        parts.append(f'<line class="grid" x1="{place(tick):.1f}" x2="{place(tick):.1f}" y1="{TOP}" y2="{bottom}"/>')
        x = within_width(place(tick))
        parts.append(f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{100 * tick:.0f} %</text>')
    for number, (arm, measure, change) in enumerate(rows):
        y = TOP + _ROW * number
        share = 1.0 + change.mean
        name = html.escape(f"{arm}, {measure}")
        parts.append(
            f'<text x="{_NAMES - 8}" y="{y + 21}" text-anchor="end">{_short(arm)}, {html.escape(measure)}</text>'
        )
        parts.append(
            f'<rect class="bar c{colours[arm] % 6}" x="{_NAMES}" y="{y + 6}" width="{place(share) - _NAMES:.1f}" '
            f'height="{_ROW - 12}"><title>{name}: {100 * share:.1f} % of the tokens</title></rect>'
        )
        if change.low is not None and change.high is not None:
            low, high, middle = place(1.0 + change.low), place(1.0 + change.high), y + _ROW / 2
            parts.append(f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>')
            parts += [
                f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{middle - 5}" y2="{middle + 5}"/>'
                for x in (low, high)
            ]
    parts.append(f'<line class="unity" x1="{place(1):.1f}" x2="{place(1):.1f}" y1="{TOP}" y2="{bottom}"/>')
    parts.append(
        f'<text x="{WIDTH / 2}" y="{height - 6}" text-anchor="middle">tokens, {_short(baseline)} = 100 %</text>'
    )
    return svg(parts, f"Tokens to the same held-out loss as a share of {baseline}", height)


def draw_bars(counts: Mapping[str, Sequence[int]], last: int, colours: Mapping[str, int]) -> str:
    """Share of the windows drawn 0, 1, 2, … times, the arms side by side.

    Args:
        counts: arm → windows drawn k times.
        last: the k that also counts all windows drawn more often.
        colours: number of each arm's colour.
    """
    groups = max(len(row) for row in counts.values())
    shares = {arm: [n / sum(row) for n in row] for arm, row in counts.items()}
    most = max(max(row) for row in shares.values())
    wide = (WIDTH - LEFT - RIGHT) / groups
    bottom = HEIGHT - BOTTOM
    parts = []
    for tick in nice_ticks(0.0, most):
        y = bottom - tick / most * (bottom - TOP)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{100 * tick:.3g} %</text>')
    each = 0.8 * wide / len(shares)
    for number, (arm, row) in enumerate(shares.items()):
        for k, share in enumerate(row):
            if share > 0:
                height = share / most * (bottom - TOP)
                x = LEFT + k * wide + 0.1 * wide + number * each
                times = f"{k} or more" if k == last else f"{k}"
                parts.append(
                    f'<rect class="bar c{colours[arm] % 6}" x="{x:.1f}" y="{bottom - height:.1f}" width="{each:.1f}" '
                    f'height="{height:.1f}"><title>{html.escape(arm)}: {100 * share:.1f} % of the windows drawn '
                    f"{times} times</title></rect>"
                )
    for k in range(0, groups, max(1, groups // 12)):
        label = f"≥{k}" if k == last else f"{k}"
        parts.append(f'<text x="{LEFT + (k + 0.5) * wide:.1f}" y="{bottom + 17}" text-anchor="middle">{label}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">times drawn</text>')
    return svg(parts, "Share of the windows by how often they were drawn")


def _short(name: str) -> str:
    return html.escape(name if len(name) <= 14 else name[:13] + "…")
