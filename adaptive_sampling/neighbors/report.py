"""One self-contained HTML page on near-copies: the histogram behind them, the largest sets, the scarcest rows."""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._files import atomic_writer
from adaptive_sampling.neighbors.near_copies import NearCopies
from adaptive_sampling.neighbors.threshold import SimilarityHistogram

SHOWN = 20
_MEMBERS = 3
_CHARACTERS = 600
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 280, 56, 16, 22, 42

Describe = Callable[[int], tuple[str, str]]
"""Row → where it is from, and its text."""

_STYLE = """
:root{color-scheme:light dark;--ground:#fbfbfa;--text:#1d1f21;--soft:#6a6e73;--line:#dcdddc;--card:#fff;--bar:#2563a8;
--copy:#c2410c}
@media (prefers-color-scheme:dark){:root{--ground:#16181a;--text:#e6e6e3;--soft:#9a9ea3;--line:#34383c;--card:#1e2123;
--bar:#70aef0;--copy:#fb923c}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem 1rem 3rem;max-width:60rem;background:var(--ground);color:var(--text);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.1rem;color:var(--soft);font-weight:600;margin:0 0 .5rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}
h3{font-size:1rem;margin:1.25rem 0 .25rem}
.first{font-size:1.5rem;line-height:1.3;margin:.25rem 0}
.note,figcaption{color:var(--soft);font-size:.9rem;overflow-wrap:anywhere}figure{margin:0}
svg{display:block;width:100%;height:auto;background:var(--card);border:1px solid var(--line);border-radius:6px}
svg text{fill:var(--soft);font-size:13px}.grid{stroke:var(--line)}.bar{fill:var(--bar)}.copy{fill:var(--copy)}
.threshold{stroke:var(--copy);stroke-width:2;stroke-dasharray:5 4}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.85rem;line-height:1.4;background:var(--card);
border:1px solid var(--line);border-radius:6px;padding:.6rem .75rem;margin:.15rem 0 .6rem}
"""


def write_report(
    copies: NearCopies, scarcity: NDArray[np.float64], describe: Describe, path: Path | str, *, title: str
) -> None:
    """Write the page, whole or not at all; arguments as `render`."""
    with atomic_writer(path, "w") as file:
        file.write(render(copies, scarcity, describe, title=title))


def render(copies: NearCopies, scarcity: NDArray[np.float64], describe: Describe, *, title: str) -> str:
    """The page as text; it loads nothing from anywhere, and all text in it is escaped.

    Args:
        copies: what was found.
        scarcity: float64 `[N]`.
        describe: row → where it is from, and its text; called for the rows shown alone.
        title: heading.
    """
    in_sets = copies.sizes > 1
    num_sets = len(np.unique(copies.sets[in_sets]))
    share = 100 * float(in_sets.mean()) if len(in_sets) else 0.0
    kind = "read from the histogram" if copies.histogram.estimated else "as set, or usual for so few rows"
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="first">{share:.1f} % of {len(copies.sets):,} windows are near-copies, in {num_sets:,} sets.</p>',
        f'<p class="note">Threshold {copies.threshold:.3f} ({kind}). {html.escape(str(copies.neighbors))}. '
        f"{copies.split} sets were taken apart because they hung together by a chain alone.</p>",
        "<h2>How similar each window is to its nearest one</h2><figure>",
        histogram_chart(copies.histogram),
        "<figcaption>Windows per similarity (cosine) to the nearest window of another document; from the dashed line "
        f"on they are near-copies. {copies.histogram.without:,} windows have no neighbour.</figcaption></figure>",
        f"<h2>The {SHOWN} largest near-copy sets</h2>",
        *_largest_sets(copies, describe),
        f"<h2>The {SHOWN} scarcest windows</h2>",
        *_scarcest(copies, scarcity, describe),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def largest_sets(copies: NearCopies, count: int = SHOWN) -> list[NDArray[np.int64]]:
    """Members of the largest sets of two or more, largest first; of equal sizes, the one with the smallest member."""
    sizes = np.bincount(copies.sets, minlength=len(copies.sets))
    order = np.argsort(-sizes, kind="stable")[:count]
    return [np.flatnonzero(copies.sets == label) for label in order if sizes[label] > 1]


def scarcest(copies: NearCopies, scarcity: NDArray[np.float64], count: int = SHOWN) -> NDArray[np.int64]:
    """Rows of the highest scarcity; of equal scarcity, those least similar to their nearest row first."""
    return np.lexsort((copies.nearest_similarity, -scarcity))[:count]


def _largest_sets(copies: NearCopies, describe: Describe) -> list[str]:
    parts = []
    for place, members in enumerate(largest_sets(copies), start=1):
        parts.append(f"<h3>{place}. {len(members):,} windows</h3>")
        # The first, the middle and the last: neighbours in the store are often neighbours in a document.
        shown = members[np.unique(np.linspace(0, len(members) - 1, _MEMBERS).round().astype(int))]
        parts += [_row(int(member), copies, describe) for member in shown]
    return parts or ['<p class="note">No window is a near-copy of another.</p>']


def _scarcest(copies: NearCopies, scarcity: NDArray[np.float64], describe: Describe) -> list[str]:
    return [_row(int(row), copies, describe, f"scarcity {scarcity[row]:.3f}, ") for row in scarcest(copies, scarcity)]


def _row(row: int, copies: NearCopies, describe: Describe, before: str = "") -> str:
    where, text = describe(row)
    similarity = float(copies.nearest_similarity[row])
    near = f"nearest at {similarity:.3f}" if math.isfinite(similarity) else "no neighbour"
    cut = text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + " …"
    return f'<p class="note">window {row}, {html.escape(where)}: {before}{near}</p><pre>{html.escape(cut)}</pre>'


def histogram_chart(histogram: SimilarityHistogram) -> str:
    """Bars of the counts, those of near-copies in another colour, and the threshold as a line; inline SVG."""
    counts, edges = histogram.counts, histogram.edges
    top = max(int(counts.max(initial=0)), 1)
    inner_width, inner_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    floor = _HEIGHT - _BOTTOM

    def across(similarity: float) -> float:
        return float(_LEFT + (similarity - edges[0]) / (edges[-1] - edges[0]) * inner_width)

    parts = []
    for share in (0.25, 0.5, 0.75, 1.0):
        y = floor - share * inner_height
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share * top:,.0f}</text>')
    for k in np.flatnonzero(counts):
        kind = "copy" if edges[k] >= histogram.threshold - 1e-9 else "bar"
        height = max(counts[k] / top * inner_height, 0.75)
        x, width = across(edges[k]), across(edges[k + 1]) - across(edges[k])
        parts.append(
            f'<rect class="{kind}" x="{x:.2f}" y="{floor - height:.2f}" width="{width:.2f}" height="{height:.2f}">'
            f"<title>{counts[k]:,} windows at {edges[k]:.3f} to {edges[k + 1]:.3f}</title></rect>"
        )
    for value in np.linspace(edges[0], edges[-1], 6):
        x = across(value)
        parts.append(f'<text x="{x:.1f}" y="{floor + 17}" text-anchor="middle">{value:g}</text>')
    x = across(histogram.threshold)
    parts.append(f'<line class="threshold" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{floor}"/>')
    parts.append(f'<text x="{x:.1f}" y="{_TOP - 7}" text-anchor="middle">{histogram.threshold:.3f}</text>')
    middle = _LEFT + inner_width / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{_HEIGHT - 7}" text-anchor="middle">similarity to the nearest window</text>'
    )
    label = "Histogram of nearest similarities with the threshold"
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
