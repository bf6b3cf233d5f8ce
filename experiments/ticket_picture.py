"""Counts per window after 20 epochs, tickets against multinomial draws: `python -m experiments.ticket_picture`."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling import AdaptiveSampler
from adaptive_sampling._files import atomic_writer

NUM_WINDOWS = 2000
EPOCHS = 20
WIDTH, HEIGHT, MARGIN = 720, 300, 44


def deviations(draws: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Expected counts and counts minus expectation, float64 `[N]` each, after `EPOCHS` epochs of fixed weights."""
    weights = np.sort(np.random.default_rng(1).gamma(2.0, 1.0, NUM_WINDOWS))
    sampler = AdaptiveSampler.from_weights(weights, draws=draws, seed=0)
    counts = np.bincount(sampler.draw(EPOCHS * NUM_WINDOWS), minlength=NUM_WINDOWS)
    expected = weights / weights.sum() * EPOCHS * NUM_WINDOWS
    return expected, counts - expected


def picture() -> str:
    """The picture as SVG, readable on light and dark pages."""
    series = {"multinomial": deviations("multinomial"), "systematic": deviations("systematic")}
    widest = float(np.ceil(np.abs(series["multinomial"][1]).max()))
    most = float(series["multinomial"][0].max())

    def x(expected: float) -> float:
        return MARGIN + expected / most * (WIDTH - 2 * MARGIN)

    def y(deviation: float) -> float:
        return HEIGHT / 2 - deviation / widest * (HEIGHT / 2 - MARGIN)

    colours = {"multinomial": "#9aa3ad", "systematic": "#c2410c"}
    head = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {head}>', '<rect width="100%" height="100%" fill="#fff"/>']
    for name, (expected, deviation) in series.items():
        dots = "".join(
            f'<circle cx="{x(e):.1f}" cy="{y(d):.1f}" r="1.2"/>' for e, d in zip(expected, deviation, strict=True)
        )
        parts.append(f'<g fill="{colours[name]}" fill-opacity="0.7">{dots}</g>')
    for value in (-widest, 0.0, widest):
        parts.append(f'<text x="6" y="{y(value) + 4:.0f}">{value:+.0f}</text>')
    for number, (name, (_, deviation)) in enumerate(series.items()):
        text = f"{name}: standard deviation {deviation.std():.2f}, largest {np.abs(deviation).max():.2f}"
        parts.append(f'<text x="{MARGIN}" y="{18 + 16 * number}" fill="{colours[name]}">{text}</text>')
    parts.append(
        f'<text x="{MARGIN}" y="{HEIGHT - 10}">expected draws of a window after {EPOCHS} epochs, 0 to {most:.0f}; '
        "upwards: draws minus expectation</text></svg>"
    )
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/tickets.svg"))
    out = parser.parse_args().out
    with atomic_writer(out, "w") as file:
        file.write(picture())
    print(out)


if __name__ == "__main__":
    main()
