from types import SimpleNamespace

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from experiments import evidence, signal_arms
from tests.experiments.test_evidence import campaign  # noqa: F401


class Constant(pl.LightningModule):
    """Predicts token 1 with a probability that it was made with, whatever it reads."""

    def __init__(self, probability=0.5):
        super().__init__()
        self.probability = probability

    def forward(self, input_ids):
        p = torch.full((*input_ids.shape, 2), 1 - self.probability)
        p[..., 1] = self.probability
        return p.log()


class Windows(torch.utils.data.Dataset):
    """Eight windows of ones, of four documents."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {"input_ids": torch.ones(3, dtype=torch.int64), "labels": torch.ones(3, dtype=torch.int64)}

    def documents(self):
        return np.repeat(np.arange(4), 2)

    def fingerprint(self):
        return "eight"


class Recorded(signal_arms.Training):
    """Trains nothing; what was seen in training says which probability the module has."""

    def on(self, dataset, batch_size, seed):
        self.settings["seen"].append(list(dataset.indices))
        return Constant(0.25 if 0 in dataset.indices else 0.5)


def test_each_window_is_judged_by_the_model_that_has_not_seen_its_document(tmp_path):
    training = Recorded(Constant, 1, {"seen": []})
    data = SimpleNamespace(dataset=Windows(), batch_size=2)
    path = signal_arms.reference_file(data, tmp_path, training)
    assert training.settings["seen"] == [[0, 1, 4, 5], [2, 3, 6, 7]]
    expected = np.log([2, 2, 4, 4, 2, 2, 4, 4])
    np.testing.assert_allclose(np.load(path), expected, rtol=1e-6)
    assert signal_arms.reference_file(data, tmp_path, training) == path
    assert len(training.settings["seen"]) == 2  # read, not computed again


@pytest.mark.parametrize("name", signal_arms.SIGNALS)
def test_an_arm_has_its_signal_and_the_groups(name, tmp_path):
    np.save(tmp_path / "groups.npy", np.arange(8) % 2)
    np.save(tmp_path / "reference.npy", np.arange(8, dtype=np.float32))
    policy = signal_arms.make_policy(name, tmp_path / "groups.npy", tmp_path / "reference.npy")
    policy.bind(8, 100)
    policy.update([0, 1], [3.0, 4.0])
    assert policy.state_dict()["settings"]["signal"]["name"] == name
    assert policy.needs == (("entropy",) if name == "uncertainty" else ("loss",))
    assert policy.num_windows == 8


@pytest.mark.soak
def test_the_campaign_runs_an_arm_per_signal(campaign, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(evidence, "SIGNAL_SCENARIOS", ("real",))
    monkeypatch.setattr(signal_arms, "UPDATE_EVERY", 1)
    assert evidence.main([*campaign, "--stages", "2"]) == 0
    page = (tmp_path / "page.md").read_text()
    for name in signal_arms.SIGNALS:
        assert f"| {name} " in page
        assert (tmp_path / "runs" / "real" / f"{name}-seed0" / "run.json").exists()
