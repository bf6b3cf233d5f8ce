"""An audit of windows as one picture: a strip along the store, four histograms, figures above and warnings below."""

from __future__ import annotations

import html
import textwrap

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.windows.audit import WindowAudit
from adaptive_sampling.windows.histograms import Histogram

_WIDTH, _MARGIN, _GAP = 960, 24, 28
_STRIP_HEIGHT, _PANEL_HEIGHT = 96, 150
_INK, _PALE, _BAR, _ALARM = "#1f2933", "#6b7785", "#3b6ea5", "#c2410c"


def audit_svg(found: WindowAudit, title: str = "Windows") -> str:
    """The picture as a self-contained SVG document.

    Args:
        found: Counts of the windows.
        title: Headline, such as the path of the store.

    Returns:
        The SVG; it loads nothing from anywhere.
    """
    notes = [line for note in found.warnings for line in textwrap.wrap(f"\u26a0 {note}", 130)]
    top = 96
    panels = top + 26 + _STRIP_HEIGHT + 62
    foot = panels + _PANEL_HEIGHT + 84
    height = foot + 19 * len(notes) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{_INK}" role="img">',
        f"<title>{html.escape(title)}</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        _text(_MARGIN, 28, title, size=17, weight="bold"),
        *(_text(_MARGIN, 50 + 18 * line, text, colour=_PALE) for line, text in enumerate(_figures(found))),
    ]
    parts += _strip(found, top + 26)
    width = (_WIDTH - 2 * _MARGIN - 3 * _GAP) / 4
    zero = found.target_counts.least == 0
    drawn: tuple[tuple[str, str, Histogram, set[int]], ...] = (
        ("Times a token is a target", "tokens", found.target_counts, {0} if zero else set()),
        ("Windows per document", "documents", found.windows_per_document, set()),
        ("Targets per window", "windows", found.lengths, _third(found)),
        ("Start within its document", "windows", found.starts, set()),
    )
    for number, (name, unit, histogram, marked) in enumerate(drawn):
        parts += _panel(_MARGIN + number * (width + _GAP), panels, width, name, unit, histogram, marked)
    for line, note in enumerate(notes):
        parts.append(_text(_MARGIN, foot + 19 * line, note, colour=_ALARM))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _figures(found: WindowAudit) -> tuple[str, str, str]:
    never = found.possible_targets - found.covered_targets
    inputs = found.tokens_read + found.padding
    digits = "" if found.digit_share is None else f"digits {found.digit_share:.1%}; "
    return (
        f"{found.windows:,} windows over {found.tokens:,} tokens in {found.documents:,} documents, of which "
        f"{found.documents_without:,} have no part in any; {found.windows_across_documents:,} windows across documents",
        f"Each token is read {found.read_ratio:.2f} times; {never:,} tokens ({found.never_share:.1%}) are never a "
        f"target; {found.overlap:.0%} of the targets are in another window too",
        f"Padding {found.padding / inputs if inputs else 0.0:.1%}; {digits}"
        f"the 100 most frequent 8-grams are {found.top_ngrams:.1%} of all",
    )


def _strip(found: WindowAudit, top: float) -> list[str]:
    """Mean times a target along the store."""
    wide = _WIDTH - 2 * _MARGIN
    parts = [_text(_MARGIN, top - 8, "Along the store: how often a token is a target, on average", weight="bold")]
    most = float(found.coverage.max(initial=0.0))
    bottom = top + _STRIP_HEIGHT
    parts.append(_line(_MARGIN, bottom, _MARGIN + wide, bottom))
    if most:
        parts += _bars(found.coverage, _MARGIN, bottom, wide, _STRIP_HEIGHT, most, set(), gap=0.0)
    for at, label in ((0.0, "0"), (0.5, f"token {found.tokens // 2:,}"), (1.0, f"{found.tokens:,}")):
        anchor = ("start", "middle", "end")[round(2 * at)]
        parts.append(_text(_MARGIN + at * wide, bottom + 16, label, colour=_PALE, anchor=anchor))
    parts.append(_text(_MARGIN + wide, top - 8, f"highest {most:.2f}", colour=_PALE, anchor="end"))
    return parts


def _panel(
    left: float, top: float, width: float, name: str, unit: str, histogram: Histogram, marked: set[int]
) -> list[str]:
    bottom = top + _PANEL_HEIGHT
    most = int(histogram.counts.max(initial=0))
    parts = [_text(left, top - 8, name, weight="bold"), _line(left, bottom, left + width, bottom)]
    if most:
        parts += _bars(histogram.counts, left, bottom, width, _PANEL_HEIGHT, float(most), marked, gap=1.0)
    low, high = float(histogram.edges[0]), float(histogram.edges[-1])
    whole = histogram.least is not None
    if histogram.most is not None:
        high = float(histogram.most)
    parts.append(_text(left, bottom + 16, _number(low, whole), colour=_PALE))
    parts.append(_text(left + width, bottom + 16, _number(high, whole), colour=_PALE, anchor="end"))
    parts.append(_text(left, bottom + 34, f"tallest bar: {most:,} {unit}", colour=_PALE))
    if histogram.median is not None:
        doubling = "" if len(np.unique(np.diff(histogram.edges))) == 1 else "; bars of doubling width"
        parts.append(_text(left, bottom + 51, f"median {histogram.median:,}{doubling}", colour=_PALE))
    return parts


def _bars(
    values: NDArray[np.float64] | NDArray[np.int64],
    left: float,
    bottom: float,
    width: float,
    height: float,
    most: float,
    marked: set[int],
    *,
    gap: float,
) -> list[str]:
    each = width / len(values)
    parts = []
    for at, value in enumerate(values.tolist()):
        if not value:
            continue
        tall = max(value / most * (height - 6), 1.0)  # a bar that is there is seen
        colour = _ALARM if at in marked else _BAR
        parts.append(
            f'<rect x="{left + at * each:.2f}" y="{bottom - tall:.2f}" width="{max(each - gap, 0.5):.2f}" '
            f'height="{tall:.2f}" fill="{colour}"/>'
        )
    return parts


def _third(found: WindowAudit) -> set[int]:
    if found.third_length_peak is None:
        return set()
    return {int(np.searchsorted(found.lengths.edges, found.third_length_peak, side="right")) - 1}


def _number(value: float, whole: bool) -> str:
    return f"{value:,.0f}" if whole else f"{value:g}"


def _text(
    x: float,
    y: float,
    text: str,
    *,
    colour: str = _INK,
    anchor: str = "start",
    size: int = 12,
    weight: str = "normal",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" font-size="{size}" '
        f'font-weight="{weight}">{html.escape(text)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{_PALE}"/>'
