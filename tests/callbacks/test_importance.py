"""Importance weights and entropies: what a batch carries and what a policy gets, compared with values by hand."""

import contextlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lightning.fabric.utilities.exceptions import MisconfigurationException
from tiny import NUM_WINDOWS, VOCAB, Bigram, Killed, StopWithCheckpoint, Windows, make_parts, make_trainer
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import adaptive_sampling as ads
from adaptive_sampling.callbacks import AdaptiveSampling

pytestmark = pytest.mark.filterwarnings("ignore:no learned weight can count")


class Corrected(Bigram):
    """The user's lines: losses per window, their weighted mean."""

    def __init__(self):
        super().__init__()
        self.weights = []

    def training_step(self, batch, batch_idx):
        logits = self.table(batch["input_ids"])
        losses = F.cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="none")
        self.trained += batch["window_id"].tolist()
        self.losses += losses.mean(1).tolist()
        self.weights += batch["importance_weight"].tolist()
        return ads.weighted_mean(losses, batch)


def test_importance_weights_are_those_of_the_blocks_that_were_drawn(tmp_path):
    sampler, loader, callback = make_parts(update_every=2, lag=3, importance=1.0)
    changes = []
    schedule = sampler.schedule_weights

    def noted(position, ids, values):
        changes.append((position, ids, values))
        schedule(position, ids, values)

    sampler.schedule_weights = noted
    module = Corrected()
    make_trainer(tmp_path, callback, max_epochs=3).fit(module, loader)
    # A block of draws sees the changes that were scheduled for its start or before.
    expected = np.empty(3 * NUM_WINDOWS)
    for start in range(0, len(expected), sampler.block_size):
        weights = np.ones(NUM_WINDOWS)
        for position, ids, values in changes:
            if position <= start:
                weights[slice(None) if ids is None else ids] = values
        here = slice(start, start + sampler.block_size)
        expected[here] = weights.sum() / (NUM_WINDOWS * weights[module.trained[here]])
    np.testing.assert_allclose(module.weights, expected, rtol=1e-6)
    assert len(np.unique(expected)) > 20


def test_power_of_the_correction_follows_its_schedule(tmp_path):
    from adaptive_sampling.weights import Linear

    _, loader, callback = make_parts(importance=Linear(0.0, 1.0, 0, 36))
    module = Corrected()
    make_trainer(tmp_path, callback, max_epochs=3).fit(module, loader)
    assert set(module.weights[:4]) == {1.0}
    assert len(set(module.weights[-8:])) > 1


@pytest.mark.parametrize("stop", [5, 13])
def test_a_resumed_run_has_the_importance_weights_of_the_unbroken_one(tmp_path, stop):
    def run(*callbacks, **settings):
        torch.manual_seed(0)
        _, loader, callback = make_parts(importance=0.5)
        module = Corrected()
        trainer = make_trainer(tmp_path, callback, *callbacks, max_epochs=2)
        with contextlib.suppress(Killed):
            trainer.fit(module, loader, **settings)
        return module

    unbroken = run()
    head = run(StopWithCheckpoint(stop, tmp_path / "stop.ckpt"))
    tail = run(ckpt_path=tmp_path / "stop.ckpt")
    assert head.weights + tail.weights == unbroken.weights
    assert torch.equal(tail.table.weight, unbroken.table.weight)


def test_with_source_shares_the_target_is_the_share_even_within_a_source(tmp_path):
    class TwoSources(Windows):
        source_names = ("web", "manuals")

        def sources(self):
            return (np.arange(NUM_WINDOWS) < 8).astype(np.int64)

    dataset = TwoSources()
    sampler = ads.AdaptiveSampler(
        dataset, source_shares={"web": 0.5, "manuals": 0.5}, sources=np.where(dataset.sources(), "manuals", "web")
    )
    sampler.lag = 2
    policy = ads.WeightPolicy(warmup=0, cooldown=0, importance=1.0)
    callback, module = AdaptiveSampling(sampler, policy, update_every=100), Corrected()
    make_trainer(tmp_path, callback, max_epochs=1).fit(module, DataLoader(dataset, 4, sampler=sampler))
    np.testing.assert_allclose(module.weights, 1.0, rtol=1e-6)  # even within each source, whatever their shares
    ids = np.arange(NUM_WINDOWS)
    sampler.set_weights(np.arange(1, NUM_WINDOWS + 1))
    callback._draws.restart()
    drawn, target = callback._draws.of_shares(policy, ids)
    manuals = ids < 8
    np.testing.assert_allclose(target[manuals].sum(), 0.5)
    np.testing.assert_allclose((target / drawn)[manuals], np.arange(1, 9).mean() / np.arange(1, 9))


def test_without_importance_a_batch_is_left_as_it_is(tmp_path):
    class Looking(Bigram):
        def training_step(self, batch, batch_idx):
            assert "importance_weight" not in batch
            return super().training_step(batch, batch_idx)

    _, loader, callback = make_parts()
    make_trainer(tmp_path, callback, max_epochs=1).fit(Looking(), loader)


def test_importance_needs_dicts_and_a_sampler_that_knows_its_probabilities(tmp_path):
    dataset = ads.with_ids(TensorDataset(torch.zeros(8, 2)))
    sampler = ads.AdaptiveSampler(dataset)
    callback = AdaptiveSampling(sampler, ads.WeightPolicy(importance=1.0), id_key=1)
    with pytest.raises(MisconfigurationException, match=r"batches that are dicts.*got list"):
        make_trainer(tmp_path, callback).fit(Bigram(), DataLoader(dataset, 4, sampler=sampler))
    torchs = WeightedRandomSampler([1.0] * NUM_WINDOWS, NUM_WINDOWS)
    callback = AdaptiveSampling(policy=ads.WeightPolicy(importance=1.0))
    with (
        pytest.raises(MisconfigurationException, match="must be 0 with a WeightedRandomSampler"),
        pytest.warns(UserWarning, match="draws a whole epoch at once"),
    ):
        make_trainer(tmp_path, callback).fit(Bigram(), DataLoader(Windows(), 4, sampler=torchs))


def test_entropies_are_captured_where_a_policy_needs_them(tmp_path):
    class Noting(Bigram):
        def training_step(self, batch, batch_idx):
            p = self.table(batch["input_ids"]).detach().softmax(-1)
            self.entropies = getattr(self, "entropies", []) + (-(p * p.log()).sum(-1)).mean(1).tolist()
            return super().training_step(batch, batch_idx)

    sampler, loader, _ = make_parts()
    policy = ads.WeightPolicy("uncertainty", warmup=0, cooldown=0)
    callback, module = AdaptiveSampling(sampler, policy, update_every=1), Noting()
    make_trainer(tmp_path, callback, max_epochs=1).fit(module, loader)
    np.testing.assert_allclose(policy.scores[module.trained], module.entropies, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_combined_signal_gets_losses_and_entropies(tmp_path):
    told = []

    class Told(ads.WeightPolicy):
        def update(self, ids, values, *args, **kwargs):
            told.append(values)
            return super().update(ids, values, *args, **kwargs)

    from adaptive_sampling.weights.signals import CombinedSignal

    sampler, loader, _ = make_parts()
    policy = Told(CombinedSignal({"loss": 1.0, "uncertainty": 0.5}), warmup=0, cooldown=0)
    module = Bigram()
    make_trainer(tmp_path, AdaptiveSampling(sampler, policy, update_every=2), max_epochs=1).fit(module, loader)
    assert all(set(values) == {"loss", "entropy"} for values in told)
    np.testing.assert_allclose(np.concatenate([v["loss"] for v in told]), module.losses, rtol=1e-5)
    assert all((v["entropy"] > 0).all() and (v["entropy"] <= np.log(VOCAB) + 1e-5).all() for v in told)


def test_an_entropy_that_is_not_captured_is_an_error_that_names_its_key(tmp_path):
    class Own(Bigram):
        def training_step(self, batch, batch_idx):
            return {"loss": self.table.weight.sum(), "per_sample_loss": torch.ones(4)}

    sampler, loader, _ = make_parts()
    policy = ads.WeightPolicy("uncertainty", warmup=0, cooldown=0)
    with pytest.raises(MisconfigurationException, match="none was seen"):
        make_trainer(tmp_path, AdaptiveSampling(sampler, policy)).fit(Own(), loader)

    class WithEntropy(Bigram):
        def training_step(self, batch, batch_idx):
            return {"loss": self.table.weight.sum(), "per_sample_entropy": batch["window_id"].float()}

    sampler, loader, _ = make_parts(lag=100)
    callback = AdaptiveSampling(sampler, ads.WeightPolicy("uncertainty", warmup=0, cooldown=0), update_every=1)
    make_trainer(tmp_path, callback, max_epochs=1).fit(WithEntropy(), loader)
    np.testing.assert_array_equal(callback.policy.scores, np.arange(NUM_WINDOWS))


def test_the_correction_of_a_frozen_model_does_not_feed_back_into_the_weights(tmp_path):
    class Frozen(Corrected):
        def training_step(self, batch, batch_idx):
            ones = {"importance_weight": torch.ones(len(batch["window_id"]))}
            return super().training_step({**ones, **batch}, batch_idx)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    runs = []
    for importance in (0.0, 1.0):
        torch.manual_seed(0)
        _, loader, callback = make_parts(importance=importance, floor=0.5, cap=2.0)
        module = Frozen()
        make_trainer(tmp_path, callback, max_epochs=3).fit(module, loader)
        runs.append((module, callback))
    (plain, off), (corrected, on) = runs
    assert corrected.trained == plain.trained
    np.testing.assert_array_equal(on.policy.weights, off.policy.weights)
    # What the policy has seen is the loss itself, not the loss times its factor.
    losses = dict(zip(corrected.trained, corrected.losses, strict=True))
    seen = sorted(losses)
    np.testing.assert_allclose(on.policy.scores[seen], [losses[i] for i in seen], rtol=1e-5)
    assert len(set(corrected.weights)) > 5
    # A weight is at least the floor, and the mean weight, between two full passes, at most the cap.
    assert max(corrected.weights) <= 2.0 / 0.5
