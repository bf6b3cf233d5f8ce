"""Which kinds of windows each signal prefers, as a table and a picture: `python -m experiments.signal_shares`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling import WeightPolicy
from adaptive_sampling._files import atomic_writer
from adaptive_sampling.weights import CombinedSignal, CurriculumSignal, ExcessLossSignal, Signal
from experiments.simulated_learner import KINDS, SimulatedLearner, share_of_each_kind

NUM_WINDOWS = 12_000
SEEDS = 3
PASSES = (1.0, 4.0)
WIDTH, ROW, LEFT, TOP = 760, 24, 190, 56
COLOURS = ("#9aa3ad", "#2563eb", "#059669", "#c2410c", "#a16207")


def with_signal(signal: str | Signal, learner: SimulatedLearner, **settings: object) -> WeightPolicy:
    """The default policy with clusters as groups, near-copy scarcity, and this signal."""
    return WeightPolicy(signal, groups=learner.cluster, scarcity=learner.scarcity, **settings)  # type: ignore[arg-type]


ARMS: dict[str, Callable[[SimulatedLearner], WeightPolicy]] = {
    "loss (the default)": lambda learner: with_signal("loss", learner),
    "loss, power 2": lambda learner: with_signal("loss", learner, power=2.0),
    "loss without gate": lambda learner: with_signal("loss", learner, gate=0.0),
    "loss without groups": lambda learner: WeightPolicy(scarcity=learner.scarcity),
    "log_loss": lambda learner: with_signal("log_loss", learner),
    "uncertainty": lambda learner: with_signal("uncertainty", learner),
    "progress": lambda learner: with_signal("progress", learner),
    "excess": lambda learner: with_signal(ExcessLossSignal(learner.final_losses()), learner),
    "curriculum": lambda learner: with_signal(CurriculumSignal(learner.final_losses()), learner),
    "loss + 20·progress": lambda learner: with_signal(CombinedSignal({"loss": 1.0, "progress": 20.0}), learner),
}


def measured() -> dict[tuple[str, float], NDArray[np.float64]]:
    """Draws of each kind over those of uniform draws, by arm and number of passes."""
    return {
        (name, passes): share_of_each_kind(make, passes, NUM_WINDOWS, SEEDS)
        for name, make in ARMS.items()
        for passes in PASSES
    }


def table(rows: dict[tuple[str, float], NDArray[np.float64]]) -> str:
    """Markdown, one row per arm and number of passes."""
    head = ["signal", "passes", *(kind.name for kind in KINDS)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for (name, passes), shares in rows.items():
        lines.append(f"| {name} | {passes:g} | " + " | ".join(f"{share:.2f}" for share in shares) + " |")
    return "\n".join(lines)


def picture(rows: dict[tuple[str, float], NDArray[np.float64]]) -> str:
    """The table as SVG: a dot per kind, the line at 1 is uniform draws; readable on light and dark pages."""
    height = TOP + ROW * len(rows) + 30
    most = max(3.0, *(float(shares.max()) for shares in rows.values()))

    def x(share: float) -> float:
        return LEFT + share / most * (WIDTH - LEFT - 30)

    head = f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {head}>', '<rect width="100%" height="100%" fill="#fff"/>']
    for number, (kind, colour) in enumerate(zip(KINDS, COLOURS, strict=True)):
        left = LEFT + 105 * number
        parts.append(f'<circle cx="{left}" cy="16" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{left + 9}" y="20" fill="#111">{kind.name}</text>')
    for share in range(int(most) + 1):
        stroke = "#111" if share == 1 else "#ddd"
        parts.append(
            f'<line x1="{x(share):.1f}" x2="{x(share):.1f}" y1="{TOP - 16}" y2="{height - 24}" stroke="{stroke}"/>'
        )
        parts.append(f'<text x="{x(share):.1f}" y="{height - 8}" text-anchor="middle" fill="#111">{share}</text>')
    for number, ((name, passes), shares) in enumerate(rows.items()):
        y = TOP + ROW * number
        parts.append(f'<text x="8" y="{y + 4}" fill="#111">{name}, {passes:g}×</text>')
        for share, colour in zip(shares, COLOURS, strict=True):
            parts.append(f'<circle cx="{x(float(share)):.1f}" cy="{y}" r="5" fill="{colour}" fill-opacity="0.85"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/signals.svg"))
    out = parser.parse_args().out
    rows = measured()
    with atomic_writer(out, "w") as file:
        file.write(picture(rows))
    print(table(rows))
    print(out)


if __name__ == "__main__":
    main()
