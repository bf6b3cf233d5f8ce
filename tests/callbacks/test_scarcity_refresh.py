import lightning.pytorch as pl
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lightning.fabric.utilities.exceptions import MisconfigurationException
from tiny import Bigram, make_parts, make_trainer
from torch import nn
from torch.utils.data import DataLoader, Dataset

import adaptive_sampling as ads
from adaptive_sampling.callbacks import AdaptiveSampling, ScarcityRefresh
from adaptive_sampling.neighbors import module_features

pytestmark = pytest.mark.filterwarnings("ignore:no learned weight can count")
NUM_WINDOWS, SEQ_LEN, VOCAB = 48, 12, 40


class Windows(Dataset):
    """Windows from 24 on are copies of window 24, each with one token changed."""

    def __len__(self):
        return NUM_WINDOWS

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(min(index, 24))
        inputs = torch.randint(0, VOCAB, (SEQ_LEN,), generator=generator)
        inputs[index % SEQ_LEN] = index % VOCAB if index > 24 else inputs[index % SEQ_LEN]
        return {"input_ids": inputs, "labels": inputs.roll(-1), "window_id": index}


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(VOCAB, 16)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(16, VOCAB)
        self.trained = []

    def forward(self, ids):
        return self.head(self.drop(self.embed(ids)))

    def training_step(self, batch, batch_idx):
        assert self.training
        self.trained += batch["window_id"].tolist()
        return F.cross_entropy(self(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(refresh, *, steps=12, policy=None, model=None, accumulate=1, workers=0, folder=None, ckpt=None, callbacks=()):
    model = model or Model()
    sampler = ads.AdaptiveSampler(Windows(), seed=1)
    sampler.lag = 8
    adaptive = AdaptiveSampling(sampler, policy or ads.WeightPolicy(warmup=0, cooldown=0), update_every=2)
    trainer = pl.Trainer(
        max_steps=steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accumulate_grad_batches=accumulate,
        callbacks=[adaptive, *([refresh] if refresh else []), *callbacks],
        default_root_dir=folder,
    )
    trainer.fit(model, DataLoader(Windows(), batch_size=4, sampler=sampler, num_workers=workers), ckpt_path=ckpt)
    return trainer, adaptive, model


def test_scarcity_comes_from_the_module_and_reaches_the_weights():
    refresh = ScarcityRefresh("embed", every_n_steps=6, threshold=0.7)
    _, adaptive, model = fit(refresh, steps=12)
    assert refresh.num_refreshes == 2
    assert refresh.seconds > 0
    features = module_features(model, Windows(), layer="embed")
    expected = ads.scarcity_scores(features, threshold=0.7)
    scarcity = np.array([adaptive.policy.explain(i)["scarcity"] for i in range(NUM_WINDOWS)])
    np.testing.assert_allclose(scarcity, expected, atol=1e-6)
    assert scarcity[24:].max() < scarcity[:24].min()
    assert adaptive.policy.weights[24:].mean() < 0.5 * adaptive.policy.weights[:24].mean()
    assert adaptive.sampler.weights[24:].mean() < 0.5 * adaptive.sampler.weights[:24].mean()


@pytest.mark.parametrize(("accumulate", "every", "expected"), [(1, 5, 2), (3, 5, 2), (1, 13, 0)])
def test_the_schedule_counts_optimizer_steps(accumulate, every, expected):
    refresh = ScarcityRefresh("embed", every_n_steps=every)
    fit(refresh, steps=12, accumulate=accumulate)
    assert refresh.num_refreshes == expected


def test_the_schedule_can_be_overridden():
    class Once(ScarcityRefresh):
        def should_refresh(self, step):
            return step == 3

    refresh = Once("embed")
    fit(refresh)
    assert refresh.num_refreshes == 1


def test_a_refresh_that_changes_no_weight_changes_nothing_of_the_training():
    # Nearly equal rows of one group have no neighbours: scarcity is 1 for all.
    plain = fit(None)[2]
    refreshed = fit(ScarcityRefresh("embed", every_n_steps=2, groups=np.zeros(NUM_WINDOWS, int)))[2]
    assert refreshed.trained == plain.trained
    for ours, theirs in zip(refreshed.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_resumed_run_keeps_the_refreshed_scarcity(tmp_path):
    class SaveAt(pl.Callback):
        def on_train_batch_end(self, trainer, *args):
            if trainer.global_step == 7:
                trainer.save_checkpoint(tmp_path / "7.ckpt")

    def refresh():
        return ScarcityRefresh("embed", every_n_steps=5, threshold=0.7)

    def model_without_dropout():  # Lightning does not save the random state
        model = Model()
        model.drop.p = 0.0
        return model

    _, whole, model = fit(refresh(), callbacks=[SaveAt()], model=model_without_dropout())
    torch.load(tmp_path / "7.ckpt", weights_only=True)
    again = refresh()
    _, resumed, second = fit(again, ckpt=tmp_path / "7.ckpt", model=model_without_dropout())
    assert again.num_refreshes == 1
    assert second.trained == model.trained[7 * 4 :]
    np.testing.assert_array_equal(resumed.policy.weights, whole.policy.weights)


def test_a_failing_refresh_warns_once_and_training_goes_on():
    class Breaks(Model):
        def forward(self, ids):
            if not self.training and self.global_step:
                raise RuntimeError("no memory")
            return super().forward(ids)

    with pytest.warns(UserWarning, match="ScarcityRefresh failed after step 3.*no memory") as warned:
        trainer, _, _ = fit(ScarcityRefresh("embed", every_n_steps=3), model=Breaks())
    assert trainer.global_step == 12
    assert sum("ScarcityRefresh" in str(w.message) for w in warned) == 1


def test_workers_forked_after_a_search_do_not_hang():
    refresh = ScarcityRefresh("embed", every_n_steps=4)
    trainer, _, _ = fit(refresh, steps=30, workers=1)  # three epochs, each with new workers
    assert trainer.global_step == 30
    assert refresh.num_refreshes == 7


def test_what_cannot_work_is_refused_before_the_first_step():
    trained = Model()
    with pytest.raises(MisconfigurationException, match=r"cannot read the module: `layer`.*'rnn'. There are: embed"):
        fit(ScarcityRefresh("rnn"), model=trained)
    with pytest.raises(MisconfigurationException, match=r"needs the 48 windows.*a dataset of 3"):
        fit(ScarcityRefresh("embed", dataset=[Windows()[i] for i in range(3)]), model=trained)
    with pytest.raises(MisconfigurationException, match=r"one group per window \(48\), got 2"):
        fit(ScarcityRefresh("embed", groups=[1, 2]), model=trained)
    trainer = pl.Trainer(max_steps=1, accelerator="cpu", logger=False, callbacks=[ScarcityRefresh("embed")])
    with pytest.raises(MisconfigurationException, match="needs an AdaptiveSampling"):
        trainer.fit(trained, DataLoader(Windows(), batch_size=4))
    assert trained.trained == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layer": ""}, "`layer` must be the name"),
        ({"every_n_steps": 0}, "`every_n_steps` must be at least 1, got 0"),
        ({"batch_size": 0}, "`batch_size`"),
        ({"measure": "rarity"}, "`measure`.*'rarity'"),
        ({"index": "lsh"}, "`index`.*'lsh'"),
        ({"threshold": 2.0}, "`threshold`"),
        ({"num_neighbors": 0}, "`num_neighbors`"),
    ],
)
def test_bad_settings_are_refused_at_once(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ScarcityRefresh(**{"layer": "embed", **settings})


@pytest.mark.parametrize("bad", [{"forward": 3}, {"dataset": 3}, {"groups": "x"}, {"groups": [0.5, 1.5]}], ids=str)
def test_wrong_kinds_of_arguments_are_refused_at_once(bad):
    with pytest.raises((ValueError, TypeError), match=f"`{next(iter(bad))}` must"):
        ScarcityRefresh("table", **bad)


def test_two_callbacks_need_a_loader_key(tmp_path):
    _, loader, callback = make_parts()
    other = AdaptiveSampling(ads.AdaptiveSampler(5), loader_key="b")
    trainer = make_trainer(tmp_path, callback, other, ScarcityRefresh("table"))
    with pytest.raises(MisconfigurationException, match=r"`loader_key` of ScarcityRefresh .* \[None, 'b'\], got None"):
        trainer.fit(Bigram(), loader)
