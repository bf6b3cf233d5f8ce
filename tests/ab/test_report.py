from __future__ import annotations

from html.parser import HTMLParser

import pytest

from adaptive_sampling.ab.record import RunRecord, Timing
from adaptive_sampling.ab.report import render
from adaptive_sampling.ab.result import Result, format_table, summarise
from adaptive_sampling.ab.statistics import Interval
from adaptive_sampling.ab.tables import change_text


class Page(HTMLParser):
    """Checks that every tag is closed in order, and collects text and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> without a start"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def result(name: str = "adaptive") -> Result:
    def run(arm: str, seed: int, shift: float) -> RunRecord:
        losses = [5.0 - shift, 4.0 - shift, 3.5 - shift + 0.01 * seed]
        settings = {"validation": {"code": {}, "prose": {}}, "arm": {"kind": "x"}, "seed": seed}
        curve = [
            {
                "step": 10 * (k + 1),
                "tokens": 1000 * (k + 1),
                "loss": loss,
                "losses": {"code": loss, "prose": loss + 1},
                "targets": {"code": 64, "prose": 64},
                "windows": 10 * (k + 1),
                "schedule": f"s{k}",
                "as_split": None,
                "scarce": None,
            }
            for k, loss in enumerate(losses)
        ]
        record = RunRecord(arm, seed, "f", settings, "finished", curve=curve, draw_counts=[3, 4, 1])
        record.timing = Timing(2.0 + shift, 0.5, [[10 * (k + 1), (2.0 + shift) * (k + 1) / 3, 0.1] for k in range(3)])
        if arm != "uniform":
            record.weight_edges = [0.5, 0.9, 1.1, 2.0, 4.0]
            record.weight_history = [{"step": 10 * (k + 1), "counts": [k, 8 - 2 * k, k, 0]} for k in range(3)]
            window = {"id": 7, "draws": 2, "source": "code", "text": "if a < b: return '</pre><script>'"}
            record.extremes = {"most": [window], "least": [{**window, "id": 3, "draws": 0}]}
        return record

    runs = [run(arm, seed, shift) for arm, shift in (("uniform", 0.0), (name, 0.3)) for seed in range(3)]
    return summarise(runs, ["uniform", name], "uniform", 30)


def test_render_is_well_formed_and_begins_with_the_verdict() -> None:
    made = result()
    text = render(made)
    page = Page()
    page.feed(text)
    assert page.open == []
    body = text.split("<body>")[1]
    assert "fewer tokens" in made.verdicts["adaptive"]
    assert made.verdicts["adaptive"] in body.split("<h2>")[0]
    assert text.count("<svg") == 5
    assert "prefers-color-scheme:dark" in text
    assert 'name="viewport"' in text


def test_render_loads_nothing() -> None:
    page = Page()
    text = render(result())
    page.feed(text)
    assert page.links == ["data:,"]
    for word in ("http", "url(//", "@import", "<script"):
        assert word not in text


def test_render_escapes_every_name() -> None:
    name = "<b onload='x'>&"
    text = render(result(name))
    assert name not in text
    assert "<b onload" not in text
    page = Page()
    page.feed(text)
    assert page.open == []


def test_render_of_no_finished_run_still_stands() -> None:
    broken = RunRecord("uniform", 0, "f", {"validation": {"code": {}}, "arm": {}}, "failed", error="out of memory")
    text = render(summarise([broken], ["uniform"], "uniform", 30))
    assert "out of memory" in text
    assert "No run finished" in text


def test_format_table_has_a_row_per_arm_and_equal_widths() -> None:
    lines = format_table(result()).splitlines()
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1
    assert [cell.strip() for cell in lines[0].strip("|").split("|")] == [
        "arm", "held-out loss", "code", "prose", "tokens to same loss", "verdict",
    ]  # fmt: skip
    assert "baseline" in lines[2]
    assert "fewer tokens" in lines[3]


def test_summarise_computes_means_by_hand() -> None:
    made = result()
    assert made.losses["uniform"].mean == pytest.approx(3.51)
    assert made.source_losses["adaptive"]["prose"].mean == pytest.approx(4.21)
    assert made.macro_losses["uniform"].mean == pytest.approx(4.01)
    assert made.comparisons["adaptive"].loss_difference is not None
    assert made.comparisons["adaptive"].loss_difference.mean == pytest.approx(-0.3)
    assert made.comparisons["adaptive"].seconds_change is not None
    assert made.comparisons["adaptive"].seconds_change.mean == pytest.approx(0.15)


def test_an_arm_that_ends_before_it_has_learned_is_noted() -> None:
    made = result()
    for run in made.runs:
        kind = "adaptive" if run.arm == "adaptive" else "uniform"
        run.settings.update(max_steps=30, arm={"kind": kind, "update_every": 20})
    noted = summarise(made.runs, ["uniform", "adaptive"], "uniform", 30).notes
    assert [note for note in noted if "known beforehand" in note] == [
        "adaptive: its weights are those known beforehand alone. Runs have 30 steps, and what the first update, after "
        "step 20, has learned counts 32 steps later. Take more steps, or lower update_every."
    ]
    for run in made.runs:
        run.settings["max_steps"] = 53
    assert not any("known beforehand" in note for note in summarise(made.runs, made.arms, "uniform", 53).notes)


def test_an_interval_beyond_reason_is_not_printed() -> None:
    assert change_text(Interval(0.1, -0.2, 0.4, 3)) == "+10 % (−20 to +40)"
    assert change_text(Interval(11.9, -137.7, 161.5, 2)) == "+1190 % (too wide to be read)"
