import json

import pytest

from experiments import evidence
from experiments.evidence_tables import put_between

CONFIG = """
module: {{path: experiments.gpt.SmallGPT, arguments: {{vocab_size: 300, d_model: 8, layers: 1, max_steps: 36}}}}
data:
  path: experiments.text_runs:scenario_data
  arguments: {{scenario: real, text: {text}, embedded: false, vocab_size: 300}}
max_steps: 36
eval_every: 18
title: Words in no order
trainer: {{accelerator: cpu}}
arms:
  - {{name: uniform, coupled: true}}
  - {{name: adaptive, update_every: 1}}
  - {{name: placebo, placebo_of: adaptive, update_every: 1}}
  - {{name: scarcity only, kind: scarcity, update_every: 1}}
"""
PAGE = """# Page

<!-- summary: begin -->
yesterday
<!-- summary: end -->
kept
<!-- details: begin --><!-- details: end -->
"""


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    """Arguments of a campaign over one tiny scenario."""
    (tmp_path / "text").mkdir()
    for number in range(60):
        words = " ".join(f"w{number * k % 89}" for k in range(400))
        (tmp_path / "text" / f"a-{number}.txt").write_text(words)
    (tmp_path / "real.yaml").write_text(CONFIG.format(text=tmp_path / "text"))
    (tmp_path / "page.md").write_text(PAGE)
    monkeypatch.setattr(evidence, "CONFIGS", tmp_path)
    monkeypatch.setattr(evidence, "SIGNAL_SCENARIOS", ())
    monkeypatch.setattr(evidence, "SEEDS", 1)
    monkeypatch.setattr(evidence, "MORE_SEEDS", 1)
    return ["--only", "real", "--jobs", "1", "--out", str(tmp_path / "runs"), "--page", str(tmp_path / "page.md")]


def test_stages_add_arms_and_keep_what_has_ended(campaign, tmp_path, capfd):
    assert evidence.main([*campaign, "--stages", "1"]) == 0
    first = {p.parent.name: p.stat().st_mtime_ns for p in (tmp_path / "runs").glob("real/*/run.json")}
    assert set(first) == {f"{arm}-seed0" for arm in evidence.FIRST_ARMS}
    assert evidence.main([*campaign, "--stages", "2"]) == 0
    second = {p.parent.name: p.stat().st_mtime_ns for p in (tmp_path / "runs").glob("real/*/run.json")}
    assert set(second) - set(first) == {"scarcity only-seed0"}
    assert {name: second[name] for name in first} == first
    page = (tmp_path / "page.md").read_text()
    assert "yesterday" not in page
    assert "kept" in page
    assert "### Words in no order (`real`)" in page
    results = json.loads((tmp_path / "runs" / "real" / "results.json").read_text())
    change = results["comparisons"]["scarcity only"]["differences"]["held-out"]["loss_difference"]["mean"]
    row = next(line for line in page.splitlines() if line.startswith("| real") and "scarcity only" in line)
    assert f"{change:+.4f}".replace("-", "−") in row
    # A further stage, and the same command again, lose no arm.
    assert evidence.main(campaign) == 0
    assert evidence.main([*campaign, "--stages", "2"]) == 0
    assert (tmp_path / "page.md").read_text() == page
    # The page can be written again from what is there, and is the same then.
    assert evidence.main([*campaign, "--tables"]) == 0
    assert (tmp_path / "page.md").read_text() == page
    assert "1 scenarios" in capfd.readouterr().err


def test_campaign_without_a_run_or_a_mark_says_so(campaign, tmp_path, capsys):
    assert evidence.main([*campaign, "--tables"]) == 2
    assert "`out` must hold a comparison" in capsys.readouterr().err
    with pytest.raises(ValueError, match="`page` must hold"):
        put_between("nothing here", "summary", "table", tmp_path / "page.md")


def test_seeds_are_added_only_where_the_interval_is_wide():
    stages = evidence.stages(["real", "small"])
    assert [(s.scenario, s.arms is None, s.seeds, s.if_wide) for s in stages] == [
        ("real", False, 3, False),
        ("small", False, 3, False),
        ("real", True, 3, False),
        ("small", True, 3, False),
        ("real", True, 5, True),
        ("small", True, 5, True),
    ]
