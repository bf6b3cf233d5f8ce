from types import SimpleNamespace

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

import adaptive_sampling as ads
from adaptive_sampling.callbacks import AdaptiveSampling, SamplingMonitor
from adaptive_sampling.callbacks._epochwise import EpochwiseSampler

NUM_ITEMS = 40


class Items(Dataset):
    def __len__(self):
        return NUM_ITEMS

    def __getitem__(self, index):
        return {"x": torch.tensor([1.0, float(index >= 30)]), "y": torch.tensor(index % 2), "window_id": index}


class Classifier(pl.LightningModule):
    """Items from 30 on share one input and carry both labels: their loss stays high."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.epochs = []

    def on_train_epoch_start(self):
        self.epochs.append([])

    def training_step(self, batch, batch_idx):
        self.epochs[-1] += batch["window_id"].tolist()
        hard = batch["x"][:, 1] > 0
        return F.cross_entropy(self.layer(batch["x"]), torch.where(hard, batch["y"], 1))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)


def fit(tmp_path, sampler, callback, epochs=6, ckpt_path=None, **settings):
    module = Classifier()
    trainer = pl.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        max_epochs=epochs,
        callbacks=[callback],
        **settings,
    )
    trainer.fit(module, DataLoader(Items(), batch_size=8, sampler=sampler), ckpt_path=ckpt_path)
    return module, trainer


def own_sampler(**settings):
    generator = torch.Generator().manual_seed(0)
    return WeightedRandomSampler(np.r_[np.zeros(5), np.ones(35)], 400, generator=generator, **settings)


def make_callback(sampler=None):
    policy = ads.WeightPolicy(warmup=0, cooldown=0, power=3.0, floor=0.01, shrinkage=0.0)
    return AdaptiveSampling(sampler, policy, update_every=5)


@pytest.mark.parametrize("given", [False, True])
def test_weights_of_a_torch_sampler_take_effect_in_the_next_epoch_and_this_is_said(tmp_path, given):
    torch.manual_seed(0)
    sampler = own_sampler()
    with pytest.warns(UserWarning, match="take effect at the start of each epoch"):
        module, _ = fit(tmp_path, sampler, make_callback(sampler if given else None))
    share_of_hard = [np.mean(np.array(epoch) >= 30) for epoch in module.epochs]
    # Uniform over 35 items of which 10 are hard, 400 draws: .286 with a standard deviation of .023.
    assert abs(share_of_hard[0] - 10 / 35) < 0.09
    assert share_of_hard[-1] > 0.6
    # The user's own zeros stay in force.
    assert min(min(epoch) for epoch in module.epochs) >= 5


@pytest.mark.filterwarnings("ignore:WeightedRandomSampler draws")
def test_policy_weights_are_multiplied_with_the_users_own(tmp_path):
    torch.manual_seed(0)
    sampler, callback = own_sampler(), make_callback()
    given = sampler.weights.numpy().copy()
    fit(tmp_path, sampler, callback)
    assert callback.sampler.torch_sampler is sampler
    np.testing.assert_allclose(sampler.weights.numpy(), given * callback.policy.weights)
    monitor = SamplingMonitor()
    monitor.on_train_start(SimpleNamespace(train_dataloader=DataLoader(Items(), sampler=sampler)), None)
    assert monitor.sampler is callback.sampler
    np.testing.assert_array_equal(monitor.sampler.weights, sampler.weights.float().numpy())


@pytest.mark.filterwarnings("ignore:WeightedRandomSampler draws")
def test_weights_come_back_from_a_checkpoint(tmp_path):
    torch.manual_seed(0)
    sampler = own_sampler()
    _, trainer = fit(tmp_path, sampler, make_callback(), epochs=3)
    trainer.save_checkpoint(tmp_path / "three.ckpt")
    again = own_sampler()
    fit(tmp_path, again, make_callback(), epochs=3, ckpt_path=tmp_path / "three.ckpt")
    assert torch.equal(again.weights, sampler.weights)
    two_items = WeightedRandomSampler([1.0, 1.0], 2)
    smaller = EpochwiseSampler(two_items)
    with pytest.raises(ads.StateMismatchError, match="holds 40 weights"):
        smaller.load_full_state(EpochwiseSampler(sampler).full_state())


@pytest.mark.filterwarnings("ignore:WeightedRandomSampler draws")
def test_one_epoch_is_too_short_and_this_is_said(tmp_path):
    with pytest.warns(UserWarning, match="training has one epoch"):
        fit(tmp_path, own_sampler(), make_callback(), epochs=1)


def test_more_ranks_and_too_many_draws_without_replacement_are_refused():
    sampler = own_sampler()
    with pytest.raises(MisconfigurationException, match="got 2 of them"):
        EpochwiseSampler(sampler).bind(0, 2)
    with pytest.raises(MisconfigurationException, match="num_samples=400 and 35 positive"):
        EpochwiseSampler(own_sampler(replacement=False))
