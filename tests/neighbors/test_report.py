import re

import numpy as np
import pytest

from adaptive_sampling.neighbors import find_near_copies, read_threshold
from adaptive_sampling.neighbors.report import histogram_chart, largest_sets, render, scarcest


@pytest.fixture
def copies():
    rng = np.random.default_rng(0)
    places = rng.standard_normal((300, 32))
    return find_near_copies(np.concatenate([places, np.repeat(places[:3], [4, 9, 2], axis=0)]))


def test_the_largest_sets_come_first_and_rows_alone_are_no_sets(copies):
    sets = largest_sets(copies)
    assert [len(members) for members in sets] == [10, 5, 3]
    assert sets[0].tolist() == [1, *range(304, 313)]
    assert len(largest_sets(copies, 2)) == 2


def test_the_scarcest_rows_are_those_least_like_any_other(copies):
    scarcity = 1 / copies.sizes
    rows = scarcest(copies, scarcity)
    assert (copies.sizes[rows] == 1).all()
    assert (np.diff(copies.nearest_similarity[rows]) >= 0).all()
    assert copies.nearest_similarity[rows].max() <= np.sort(copies.nearest_similarity[copies.sizes == 1])[20]


def test_the_page_shows_sets_and_rows_with_their_text_escaped_and_loads_nothing(copies):
    asked = []

    def describe(row):
        asked.append(row)
        return f"book <{row}>", f"text of {row} & <script>alert(1)</script> " + "x" * (700 if row == 1 else 0)

    page = render(copies, 1 / copies.sizes, describe, title="Windows <all>")
    assert "<script>" not in page
    assert "src=" not in page
    assert "href=" not in page
    assert "<title>Windows &lt;all&gt;</title>" in page
    assert [int(n) for n in re.findall(r"<h3>\d+\. (\d+) windows</h3>", page)] == [10, 5, 3]
    assert page.count("<pre>") == len(asked) == 3 + 3 + 3 + 20
    assert "x" * 700 not in page
    assert "5.7 % of 315 windows are near-copies, in 3 sets" in page


def test_the_histogram_has_a_bar_per_bin_and_the_threshold_on_it():
    similarity = np.concatenate([np.full(300, 0.503), np.full(100, 0.951)])
    histogram = read_threshold(similarity)
    chart = histogram_chart(histogram)
    bars = re.findall(r'<rect class="(\w+)".*?height="([\d.]+)"><title>(\d+) windows', chart)
    assert [(kind, count) for kind, _, count in bars] == [("bar", "300"), ("copy", "100")]
    assert float(bars[0][1]) == pytest.approx(3 * float(bars[1][1]), rel=1e-3)
    assert f"{histogram.threshold:.3f}</text>" in chart


def test_a_page_without_copies_or_rows_says_so():
    alone = find_near_copies(np.eye(4))
    page = render(alone, np.ones(4), lambda row: ("", ""), title="none")
    assert "No window is a near-copy of another" in page
    empty = find_near_copies(np.empty((0, 3)))
    assert "0.0 % of 0 windows" in render(empty, np.empty(0), lambda row: ("", ""), title="empty")
