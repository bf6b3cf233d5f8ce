import json
import sys

import pytest

from experiments.benchmarks import _environment, draws, policy, preparing, step_time, windows
from experiments.benchmarks._row import best_seconds, seconds_text


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small sizes, and no download of peers."""
    monkeypatch.setattr(draws, "SIZES", (20_000,))
    monkeypatch.setattr(draws, "REPEATS", 2)
    for name, value in {"STEPS": 12, "ROUNDS": 1, "SEQ_LEN": 16, "VOCAB_SIZE": 64, "SIZES": (20_000,)}.items():
        monkeypatch.setattr(step_time, name, value)


def test_step_time_gives_a_positive_ratio():
    assert [row.ratio > 0 for row in step_time.rows()] == [True, True]


def test_policy_gives_a_row_for_an_update_and_one_for_a_full_pass(monkeypatch):
    monkeypatch.setattr(policy, "NUM_WINDOWS", 20_000)
    update, full_pass = policy.rows()
    assert update.what.startswith("4,096 observations")
    assert full_pass.what.startswith("full pass")
    assert update.ratio > 0
    assert full_pass.ratio > 0


def test_preparing_gives_speed_and_memory_and_says_why_a_peer_is_missing(monkeypatch):
    def refuse(requirements):
        raise _environment.PeerMissingError("not installed: no network")

    monkeypatch.setattr(preparing, "peer_python", refuse)
    for name, value in {"TEXT_BYTES": 40_000, "ROUNDS": 1, "VOCAB_SIZE": 300, "FILES": 2}.items():
        monkeypatch.setattr(preparing, name, value)
    bare, missing, memory = preparing.rows()
    assert bare.ratio > 0
    assert missing.peer == "datatrove: not installed: no network"
    assert missing.ratio is None
    assert memory.ratio > 0.5


def test_draws_give_a_row_per_measure_and_peer_and_say_why_one_is_missing(monkeypatch):
    def refuse(requirements):
        raise _environment.PeerMissingError("not installed: no network")

    monkeypatch.setattr(draws, "peer_python", refuse)
    rows = list(draws.rows())
    missing = [row for row in rows if row.ratio is None]
    assert [row.peer for row in missing] == ["TorchRL: not installed: no network"]
    assert all(row.ratio > 0 for row in rows if row not in missing)
    for peer in ("torch.multinomial", "WeightedRandomSampler", "NumPy Generator.choice"):
        assert sum(peer in row.peer for row in rows) >= 3
    assert any(row.what.startswith("bytes per window") and 12 < float(row.ours) < 100 for row in rows)


def test_draws_take_the_figures_of_a_peer_in_another_environment(monkeypatch, tmp_path):
    script = tmp_path / "python"
    figures = {"TorchRL tree": {"draw 32": 1e-6, "bytes": 10.0}}
    script.write_text(f"#!{sys.executable}\nprint('a line of a log')\nprint({json.dumps(json.dumps(figures))})\n")
    script.chmod(0o755)
    monkeypatch.setattr(draws, "peer_python", lambda requirements: script)
    assert draws.torchrl_figures(20_000) == figures
    script.write_text(f"#!{sys.executable}\nraise MemoryError('too large')\n")
    assert draws.torchrl_figures(20_000) == {"TorchRL": {"draw 8192": "failed: MemoryError: too large"}}


def test_more_than_2_to_24_categories_are_refused_by_torch_and_the_row_says_so():
    def refuse():
        raise RuntimeError("number of categories cannot exceed 2^24\nat line 1")

    figures = draws._figures_or_refusal({"draw 32": refuse})
    row = draws._row("what", "draw 32", 1e-6, "torch.multinomial", figures["draw 32"])
    assert row.peer == "torch.multinomial: refuses: number of categories cannot exceed 2^24"
    assert row.ratio is None


def test_an_environment_that_pip_cannot_install_says_why(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(_environment.PeerMissingError, match=r"not installed: ERROR.*no-such-package"):
        _environment.peer_python(("no-such-package==1",))
    # Half an environment is never taken for a whole one.
    with pytest.raises(_environment.PeerMissingError):
        _environment.peer_python(("no-such-package==1",))


def test_times_are_the_best_run_within_the_budget():
    runs = []
    assert best_seconds(lambda: runs.append(1), 5) < 1
    assert len(runs) == 5
    best_seconds(lambda: runs.append(1), 5, budget=0)
    assert len(runs) == 6
    assert [seconds_text(s) for s in (2.5, 0.0123, 4.2e-5)] == ["2.5 s", "12.3 ms", "42 µs"]


def test_windows_are_read_against_each_peer_that_is_there(monkeypatch):
    small = {"NUM_TOKENS": 20_000, "SEQ_LEN": 16, "BATCHES": 2, "REPEATS": 1, "PLAN_DOCUMENTS": 2_000}
    for name, value in {**small, "PLAN_WINDOWS_EACH": 3}.items():
        monkeypatch.setattr(windows, name, value)
    rows = list(windows.rows())
    assert [row.ratio > 0 for row in rows] == [True] * len(rows)
    peers = " ".join(row.peer for row in rows)
    assert "nanoGPT-style loop" in peers
    assert "torchdata" in peers
