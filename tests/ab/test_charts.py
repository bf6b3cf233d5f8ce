from __future__ import annotations

import re
from itertools import pairwise

import pytest

from adaptive_sampling.ab._svg import HEIGHT, WIDTH
from adaptive_sampling.ab.bars import token_bars
from adaptive_sampling.ab.charts import Curve, loss_chart
from adaptive_sampling.ab.statistics import Interval


def heights(drawing: str) -> list[float]:
    return [float(y) for y in re.findall(r'cy="([-\d.]+)"', drawing)]


def curve(losses: list[float]) -> Curve:
    values = tuple(losses)
    return Curve("arm", tuple(1000.0 * (k + 1) for k in range(len(values))), values, values, values)


@pytest.mark.parametrize("losses", [[5.0], [5.0, 4.0], [6.0, 4.0, 3.9]])
def test_few_evaluations_all_lie_within_the_frame(losses: list[float]) -> None:
    drawn = heights(loss_chart([curve(losses)]))
    assert len(drawn) == len(losses)
    assert all(0 < y < HEIGHT for y in drawn)
    assert all(before < after for before, after in pairwise(drawn))  # a falling loss goes down the page


def test_the_first_of_many_evaluations_leaves_the_frame_to_the_others() -> None:
    first, *later = heights(loss_chart([curve([9.0, 4.0, 3.9, 3.8, 3.7])]))
    assert first < 0
    assert max(later) - min(later) > HEIGHT / 2


@pytest.mark.parametrize("change", [0.5, 0.43, 1.0, -0.2])
def test_labels_of_ticks_stand_whole(change: float) -> None:
    drawing = token_bars({"arm": {"natural": Interval(change, change, change, 3)}}, "uniform", {"arm": 1})
    labels = re.findall(r'<text x="([\d.]+)"[^>]*text-anchor="middle">(\d+ %)</text>', drawing)
    assert labels
    # Digits are some 7 units wide at the size of the page.
    assert all(float(x) + 7 * len(text) / 2 <= WIDTH + 1e-9 for x, text in labels)
