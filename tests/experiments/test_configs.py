from pathlib import Path

import pytest

from adaptive_sampling.ab.config import load_config
from experiments import evidence, text_runs

CONFIGS = sorted((Path(__file__).parents[2] / "experiments" / "configs").glob("*.yaml"))


def test_every_scenario_has_a_configuration():
    assert {path.stem for path in CONFIGS} == set(evidence.SCENARIOS) >= set(text_runs.SCENARIOS)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configuration_names_its_scenario_and_arms(path, monkeypatch):
    monkeypatch.chdir(path.parents[2])
    config = load_config(path)
    assert config.data.source.arguments["scenario"] == (path.stem if path.stem in text_runs.SCENARIOS else "real")
    assert [arm.name for arm in config.arms][:3] == ["uniform", "adaptive", "placebo"]
    steps = config.settings["max_steps"]
    assert config.module.arguments["max_steps"] == steps
    assert config.module.arguments["vocab_size"] == text_runs.VOCAB_SIZE
    if path.stem == "small":
        assert 4 * config.data.source.arguments["tokens"] == steps * text_runs.BATCH_SIZE * text_runs.SEQ_LEN
