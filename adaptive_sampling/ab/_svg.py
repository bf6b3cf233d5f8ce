"""What all drawings share: a frame, round ticks, short numbers, the outer element."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 44
_HALF_LABEL = 20


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


def within_width(x: float) -> float:
    """Where the middle of a tick's label at `x` stands whole."""
    return min(x, WIDTH - _HALF_LABEL)


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


def svg(parts: Sequence[str], label: str, height: float = HEIGHT) -> str:
    """The drawing, as wide as its place; `label` is what screen readers say."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{html.escape(label, quote=True)}">'
        f"{''.join(parts)}</svg>"
    )
