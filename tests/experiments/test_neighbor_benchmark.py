import json
import sys

import numpy as np
import pytest

import adaptive_sampling as ads
from experiments.benchmarks import _environment, neighbors


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setattr(neighbors, "NUM_WINDOWS", 600)
    monkeypatch.setattr(neighbors, "PEER_WINDOWS", 300)
    tokens = np.random.default_rng(0).integers(1, 200, (5, 800))
    return ads.TokenStore.write(tmp_path / "store", tokens, vocab_size=200, eos_id=0).path


def test_neighbors_give_rows_and_say_why_peers_are_missing(small, monkeypatch):
    def refuse(requirements):
        raise _environment.PeerMissingError("not installed: no network")

    monkeypatch.setattr(neighbors._environment, "peer_python", refuse)
    rows = list(neighbors.rows(small))
    assert len(rows) == 5
    assert all("M tokens/s" in row.ours for row in rows[:2])
    assert all("recall 1.000 (exact, all rows)" in row.ours for row in rows[2:4])
    assert rows[-1].peer == "scikit-learn, hnswlib: not installed: no network"


def test_peers_are_compared_by_time(small, monkeypatch, tmp_path):
    script = tmp_path / "python"
    figures = {"peer": {"seconds": 1e6, "recall": 1.0}}
    script.write_text(f"#!{sys.executable}\nprint('a line of a log')\nprint({json.dumps(json.dumps(figures))})\n")
    script.chmod(0o755)
    monkeypatch.setattr(neighbors._environment, "peer_python", lambda requirements: script)
    row = list(neighbors.rows(small))[-1]
    assert 0 < row.ratio < 1e-3
    assert "(peer)" in row.peer
