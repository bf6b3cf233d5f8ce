from pathlib import Path

import pytest

from adaptive_sampling.ab.config import load_config
from experiments import evidence, text_runs

CONFIGS = sorted((Path(__file__).parents[2] / "experiments" / "configs").glob("*.yaml"))


def test_every_scenario_has_a_configuration():
    assert {path.stem for path in CONFIGS} == {*evidence.SCENARIOS, *evidence.OWN_TEXT} >= set(text_runs.SCENARIOS)


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


@pytest.mark.parametrize("path", sorted((CONFIGS[0].parent / "sweeps").glob("*.yaml")), ids=lambda path: path.stem)
def test_sweep_changes_one_arm_after_the_other_on_seeds_of_its_own(path, monkeypatch):
    monkeypatch.chdir(path.parents[3])
    config = load_config(path)
    assert [arm.name for arm in config.arms][:2] == ["uniform", "default"]
    assert min(config.settings["seeds"]) > evidence.MORE_SEEDS
    assert config.module.arguments["max_steps"] == config.settings["max_steps"]
    if config.data.source.arguments["scenario"] == "small":
        tokens = config.settings["max_steps"] * text_runs.BATCH_SIZE * text_runs.SEQ_LEN
        assert 4 * config.data.source.arguments["tokens"] == tokens
