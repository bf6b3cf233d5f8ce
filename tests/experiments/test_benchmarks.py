import pytest

from experiments.benchmarks import draws, step_time


@pytest.mark.parametrize("benchmark", [draws, step_time])
def test_benchmarks_run_and_give_positive_ratios(benchmark, monkeypatch):
    small = {"NUM_WINDOWS": 20_000, "NUM_DRAWS": 20_000, "STEPS": 12, "ROUNDS": 1, "SEQ_LEN": 16, "VOCAB_SIZE": 64}
    for name, value in small.items():
        if hasattr(benchmark, name):
            monkeypatch.setattr(benchmark, name, value)
    rows = list(benchmark.rows())
    assert rows
    for row in rows:
        assert row.ratio > 0
        assert row.what
