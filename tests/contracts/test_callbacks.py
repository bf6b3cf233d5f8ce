"""What holds for every exported callback: where it can be built, what its state is made of, whom it disturbs."""

import inspect
import io

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import adaptive_sampling as ads
import adaptive_sampling.callbacks as callbacks
from adaptive_sampling.callbacks import AdaptiveSampling, SamplingMonitor, ScarcityRefresh
from tests.contracts.bigram import Bigram, Windows

WAYS = {
    "AdaptiveSampling": lambda: [AdaptiveSampling(update_every=2)],
    "SamplingMonitor": lambda: [AdaptiveSampling(update_every=2), SamplingMonitor(every_n_steps=2)],
    "ScarcityRefresh": lambda: [
        AdaptiveSampling(policy=ads.WeightPolicy(scarcity=np.ones(len(Windows()))), update_every=2),
        ScarcityRefresh("table", every_n_steps=4),
    ],
}
EXPORTED = [name for name in callbacks.__all__ if issubclass(getattr(callbacks, name), pl.Callback)]


def fit(tmp_path, name, **settings):
    torch.manual_seed(0)
    chosen, module, windows = WAYS[name](), Bigram(), Windows()
    sampler = ads.AdaptiveSampler(windows, seed=0)
    sampler.lag = 2
    quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(default_root_dir=tmp_path, callbacks=list(chosen), **{"max_epochs": 2, **quiet, **settings})
    trainer.fit(module, DataLoader(windows, batch_size=4, sampler=sampler))
    return trainer, module, chosen


def test_every_exported_callback_is_in_the_contract():
    assert set(EXPORTED) == set(WAYS)


@pytest.mark.parametrize("name", EXPORTED)
def test_settings_are_typed_keyword_only_and_documented(name):
    kind = getattr(callbacks, name)
    parameters = list(inspect.signature(kind).parameters.values())
    assert all(p.annotation is not inspect.Parameter.empty for p in parameters)
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters[2:])
    assert all(f"{p.name}:" in kind.__doc__ for p in parameters)


@pytest.mark.filterwarnings("ignore:.*does not have many workers|.*less than the logging interval")
@pytest.mark.parametrize("name", EXPORTED)
def test_states_load_with_weights_only_and_go_on(name, tmp_path):
    trainer, module, chosen = fit(tmp_path, name)
    file = io.BytesIO()
    torch.save([callback.state_dict() for callback in chosen], file)
    file.seek(0)
    again = WAYS[name]()
    for callback, state in zip(again, torch.load(file, weights_only=True), strict=True):
        callback.load_state_dict(state)
    path = tmp_path / "end.ckpt"
    trainer.save_checkpoint(path)
    torch.load(path, weights_only=True)
    assert len(module.trained) == 2 * len(Windows())


@pytest.mark.filterwarnings("ignore:.*does not have many workers|.*less than the logging interval")
@pytest.mark.parametrize("settings", [{"fast_dev_run": True}, {"barebones": True}, {"max_steps": 9}])
@pytest.mark.parametrize("name", EXPORTED)
def test_no_kind_of_training_is_disturbed(name, settings, tmp_path):
    trainer, module, chosen = fit(tmp_path, name, **settings)
    assert module.trained
    assert trainer.state.finished
    assert not any("training_step" in vars(trainer.strategy) for _ in chosen)
