"""Weights on their way from the policy to the sampler: whose they are, and what the user's own make of them."""

import numpy as np
import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from tiny import NUM_WINDOWS, Bigram, Killed, StopWithCheckpoint, Windows, make_trainer
from torch.utils.data import DataLoader, IterableDataset, Subset

import adaptive_sampling as ads
from adaptive_sampling.callbacks import AdaptiveSampling
from adaptive_sampling.callbacks._dealing import dealt

GIVEN = np.where(np.arange(NUM_WINDOWS) < 24, 3.0, 1.0).astype(np.float32) * (np.arange(NUM_WINDOWS) != 5)


def own_parts(update_every=2):
    """A loader that draws by the user's own weights, and the callback on it."""
    sampler = ads.AdaptiveSampler.from_weights(GIVEN, seed=0, block_size=4)
    sampler.lag = 2
    policy = ads.WeightPolicy(warmup=0, cooldown=0, shrinkage=0)
    callback = AdaptiveSampling(sampler, policy, update_every=update_every)
    return DataLoader(Windows(), batch_size=4, sampler=sampler), callback


def test_a_window_keeps_its_factor_wherever_its_weight_comes_from():
    rng = np.random.default_rng(0)
    weights, factors = rng.random((2, 7)).astype(np.float32)
    permutation, ids = rng.permutation(7), np.array([5, 0, 3])
    none, all_of_them = dealt(None, weights, permutation, factors)
    assert none is None
    expected = np.empty(7, np.float32)
    for window in range(7):
        expected[permutation[window]] = weights[window] * factors[permutation[window]]
    np.testing.assert_array_equal(all_of_them, expected)
    there, some = dealt(ids, weights[ids], permutation, factors)
    np.testing.assert_array_equal(there, permutation[ids])
    np.testing.assert_array_equal(some, expected[there])
    assert dealt(ids, weights, None, None) == (ids, weights)


def test_weights_that_the_sampler_had_stay_in_force(tmp_path):
    loader, callback = own_parts()
    module = Bigram()
    make_trainer(tmp_path, callback, max_epochs=6).fit(module, loader)
    counts = np.bincount(module.trained, minlength=NUM_WINDOWS)
    assert counts[5] == 0
    # 69 of 93 parts of the given weights lie on the first half, which the model learns: the policy takes some of it.
    assert counts[:24].sum() > 1.4 * counts[24:].sum()
    np.testing.assert_allclose(callback.sampler.weights, callback.policy.weights * GIVEN, rtol=1e-6)
    assert np.ptp(callback.policy.weights) > 0.1
    # Another training on the same sampler multiplies by what the user gave, not by what the first one left.
    second = AdaptiveSampling(callback.sampler, ads.WeightPolicy(warmup=0, cooldown=0), update_every=2)
    make_trainer(tmp_path, second, max_epochs=1).fit(Bigram(), loader)
    np.testing.assert_allclose(callback.sampler.weights, second.policy.weights * GIVEN, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:AdaptiveSampling was used in an earlier fit")
@pytest.mark.parametrize("goes_on", [True, False], ids=["one training goes on", "another training"])
@pytest.mark.parametrize("other", [GIVEN[::-1], np.ones(NUM_WINDOWS)], ids=["other weights", "equal weights"])
def test_weights_set_between_two_fits_take_the_place_of_the_factors(tmp_path, goes_on, other):
    loader, callback = own_parts()
    trainer = make_trainer(tmp_path, callback, max_epochs=2)
    trainer.fit(Bigram(), loader)
    callback.sampler.set_weights(other)
    if goes_on:
        trainer.fit_loop.max_epochs = 3
    else:
        trainer = make_trainer(tmp_path, callback, max_epochs=1)
    module = Bigram()
    trainer.fit(module, loader)
    assert len(module.trained) >= NUM_WINDOWS - 4
    np.testing.assert_allclose(callback.sampler.weights, callback.policy.weights * other, rtol=1e-6)
    assert (28 + 14 in module.trained) == bool(other[42])


@pytest.mark.parametrize("rebuilt", [True, False])
def test_factors_come_back_from_a_checkpoint(tmp_path, rebuilt):
    torch.manual_seed(0)
    unbroken, (loader, callback) = Bigram(), own_parts()
    make_trainer(tmp_path, callback).fit(unbroken, loader)
    path = tmp_path / "a.ckpt"
    loader, broken = own_parts()
    torch.manual_seed(0)
    with pytest.raises(Killed):
        make_trainer(tmp_path, broken, StopWithCheckpoint(7, path)).fit(Bigram(), loader)
    if rebuilt:
        loader, resumed = own_parts()
    else:
        sampler = ads.AdaptiveSampler(NUM_WINDOWS, seed=0, block_size=4)
        sampler.lag = 2
        resumed = AdaptiveSampling(sampler, ads.WeightPolicy(warmup=0, cooldown=0, shrinkage=0), update_every=2)
        loader = DataLoader(Windows(), batch_size=4, sampler=sampler)
    again = Bigram()
    make_trainer(tmp_path, resumed).fit(again, loader, ckpt_path=path)
    assert again.trained == unbroken.trained[28:]
    np.testing.assert_array_equal(resumed.sampler.weights, callback.sampler.weights)


def test_ids_of_other_windows_are_refused_before_the_first_step(tmp_path):
    windows = Subset(Windows(), list(range(20, 44)))
    sampler = ads.AdaptiveSampler(windows, seed=0)
    sampler.lag = 2
    module = Bigram()
    with pytest.raises(MisconfigurationException, match=r"must be what the sampler drew, got \d+ where .*with_ids"):
        make_trainer(tmp_path, AdaptiveSampling(update_every=1)).fit(
            module, DataLoader(windows, batch_size=4, sampler=sampler)
        )
    assert module.trained == []
    wrapped = ads.with_ids(windows, "item")
    make_trainer(tmp_path, AdaptiveSampling(update_every=1, id_key="item"), max_epochs=1).fit(
        module, DataLoader(wrapped, 4, sampler=sampler)
    )
    assert sorted(module.trained) == list(range(20, 44))


class Endless(IterableDataset):
    def __iter__(self):
        return iter(Windows())


def test_an_iterable_dataset_is_refused_with_the_reason(tmp_path):
    with pytest.raises(MisconfigurationException, match="got Endless, an IterableDataset, which no sampler draws from"):
        make_trainer(tmp_path, AdaptiveSampling()).fit(Bigram(), DataLoader(Endless(), batch_size=8))


def test_a_subset_in_another_order_is_refused_though_all_its_ids_are_drawn(tmp_path):
    windows = Subset(Windows(), list(range(NUM_WINDOWS))[::-1])
    sampler = ads.AdaptiveSampler(windows, seed=0)
    sampler.lag = 2
    with pytest.raises(MisconfigurationException, match="must be what the sampler drew"):
        make_trainer(tmp_path, AdaptiveSampling(update_every=1)).fit(Bigram(), DataLoader(windows, 4, sampler=sampler))


def test_windows_that_are_never_drawn_take_nothing_from_importance_weights(tmp_path):
    given = (np.arange(NUM_WINDOWS) % 4 == 0).astype(np.float32)
    sampler = ads.AdaptiveSampler.from_weights(given, seed=0)
    sampler.lag = 2
    seen = []

    class Noting(Bigram):
        def training_step(self, batch, batch_idx):
            seen.extend(batch["importance_weight"].tolist())
            return super().training_step(batch, batch_idx)

    callback = AdaptiveSampling(sampler, ads.WeightPolicy(importance=1.0), update_every=2)
    make_trainer(tmp_path, callback, max_epochs=1).fit(Noting(), DataLoader(Windows(), 4, sampler=sampler))
    # Before the first update all that can be drawn is drawn alike.
    assert seen[:8] == pytest.approx([1.0] * 8)


@pytest.mark.parametrize("size", [40, 60])
def test_a_sampler_of_another_size_than_the_dataset_is_refused(tmp_path, size):
    sampler = ads.AdaptiveSampler(size, seed=0)
    module = Bigram()
    with pytest.raises(MisconfigurationException, match=rf"got {size} and 48\. Build it as AdaptiveSampler\(dataset\)"):
        make_trainer(tmp_path, AdaptiveSampling()).fit(module, DataLoader(Windows(), batch_size=4, sampler=sampler))
    assert module.trained == []


@pytest.mark.parametrize("policy", [{"cap": 3}, ads.WeightPolicy, 3])
def test_what_is_no_policy_is_refused_at_construction(policy):
    with pytest.raises(TypeError, match="`policy` must be a WeightPolicy, got"):
        AdaptiveSampling(policy=policy)
