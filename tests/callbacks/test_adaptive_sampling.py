import copy

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lightning.fabric.utilities.exceptions import MisconfigurationException
from tiny import (
    NUM_WINDOWS,
    VOCAB,
    Bigram,
    HandWritten,
    Killed,
    StopWithCheckpoint,
    Windows,
    make_parts,
    make_trainer,
)
from torch.utils.data import DataLoader

import adaptive_sampling as ads
from adaptive_sampling.callbacks import AdaptiveSampling, SamplingMonitor

# These trainings are too short on purpose for learned weights to count.
pytestmark = pytest.mark.filterwarnings("ignore:no learned weight can count")


@pytest.mark.parametrize("make_module", [Bigram, lambda: Bigram("dict"), lambda: Bigram("manual")])
def test_scores_are_the_windows_own_losses(tmp_path, make_module):
    _, loader, callback = make_parts()
    module = make_module()
    make_trainer(tmp_path, callback, max_epochs=1).fit(module, loader)
    by_hand = dict(zip(module.trained, module.losses, strict=True))
    seen = sorted(by_hand)
    assert len(seen) > 30
    first_visit = callback.policy.visits[seen] == 1
    np.testing.assert_allclose(
        callback.policy.scores[seen][first_visit], np.array([by_hand[i] for i in seen])[first_visit], rtol=1e-5
    )


@pytest.mark.parametrize("way", ["record", "dict"])
def test_a_hand_written_loss_may_hand_over_its_values(tmp_path, way):
    _, loader, callback = make_parts()
    module = HandWritten(way)
    make_trainer(tmp_path, callback, max_epochs=1).fit(module, loader)
    assert callback.num_observations == NUM_WINDOWS
    by_hand = dict(zip(module.trained, module.losses, strict=True))
    once = callback.policy.visits == 1
    np.testing.assert_allclose(callback.policy.scores[once], [by_hand[i] for i in np.flatnonzero(once)], rtol=1e-5)


def test_a_hidden_loss_is_an_error_at_the_first_batch_naming_the_ways_out(tmp_path):
    _, loader, callback = make_parts()
    module = HandWritten()
    with pytest.raises(MisconfigurationException, match=r"(?s)cross_entropy.*per_sample_loss.*record"):
        make_trainer(tmp_path, callback).fit(module, loader)
    assert len(module.trained) == 4


def test_accumulation_records_undivided_losses(tmp_path):
    _, loader, callback = make_parts(update_every=1)
    module = Bigram()
    make_trainer(tmp_path, callback, max_epochs=1, accumulate_grad_batches=4).fit(module, loader)
    by_hand = dict(zip(module.trained, module.losses, strict=True))
    once = np.flatnonzero(callback.policy.visits == 1)
    np.testing.assert_allclose(callback.policy.scores[once], [by_hand[i] for i in once], rtol=1e-5)


def test_training_is_the_same_but_for_the_order(tmp_path):
    # Before the first update the run must equal one without the callback, bit for bit.
    def run(adaptive):
        torch.manual_seed(0)
        module = Bigram()
        _, loader, callback = make_parts(update_every=1000)
        make_trainer(tmp_path, *([callback] if adaptive else [])).fit(module, loader)
        return module

    plain, watched = run(False), run(True)
    assert plain.trained == watched.trained
    assert torch.equal(plain.table.weight, watched.table.weight)


def test_with_updates_too_training_is_that_of_a_plain_loader_with_the_same_order(tmp_path):
    torch.manual_seed(0)
    watched = Bigram()
    _, loader, callback = make_parts(update_every=2, power=2.0)
    make_trainer(tmp_path, callback, max_epochs=3).fit(watched, loader)
    assert sorted(watched.trained) != sorted(3 * [*range(NUM_WINDOWS)])
    torch.manual_seed(0)
    plain = Bigram()
    loader = DataLoader(Windows(), batch_size=4, sampler=watched.trained)
    make_trainer(tmp_path, max_epochs=1).fit(plain, loader)
    assert plain.trained == watched.trained
    assert plain.losses == watched.losses
    assert torch.equal(plain.table.weight, watched.table.weight)


def test_hard_windows_are_drawn_more_often(tmp_path):
    sampler, loader, callback = make_parts(update_every=6, power=2.0)
    module = Bigram()
    make_trainer(tmp_path, callback, max_epochs=12).fit(module, loader)
    counts = np.bincount(module.trained, minlength=NUM_WINDOWS)
    assert counts[40:].mean() > 1.5 * counts[:40].mean()
    assert counts.min() >= 1
    np.testing.assert_allclose(sampler.weights, callback.policy.weights)


def test_permuted_weights_go_to_other_windows(tmp_path):
    sampler, loader, callback = make_parts()
    callback.permutation = np.roll(np.arange(NUM_WINDOWS), 5)
    make_trainer(tmp_path, callback).fit(Bigram(), loader)
    np.testing.assert_allclose(sampler.weights[callback.permutation], callback.policy.weights)
    assert (sampler.weights != callback.policy.weights).any()


@pytest.mark.parametrize("workers", [1, 2])
def test_new_weights_count_from_the_lag_on_and_the_order_ignores_workers(tmp_path, workers):
    orders = []
    for count in (0, workers):
        sampler, loader, callback = make_parts(workers=count, lag=6)
        torch.manual_seed(0)
        module = Bigram()
        make_trainer(tmp_path, callback, max_epochs=3).fit(module, loader)
        orders.append(module.trained)
    assert len(set(sampler.weights.tolist())) > 5
    assert orders[0] == orders[1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [1, 5, 12, 17, 24])
def test_a_resumed_run_sees_the_order_and_weights_of_the_unbroken_one(tmp_path, workers, stop):
    def run(max_steps, ckpt_path=None):
        torch.manual_seed(0)
        sampler, loader, callback = make_parts(workers=workers)
        module = Bigram()
        trainer = make_trainer(tmp_path, callback, max_epochs=-1, max_steps=30)
        if max_steps != 30:
            stopper = StopWithCheckpoint(max_steps, tmp_path / "stop.ckpt")
            trainer.callbacks.append(stopper)
            with pytest.raises(Killed):
                trainer.fit(module, loader)
        else:
            trainer.fit(module, loader, ckpt_path=ckpt_path)
        return module, sampler

    unbroken, sampler = run(30)
    head, _ = run(stop)
    tail, resumed_sampler = run(30, tmp_path / "stop.ckpt")
    assert head.trained + tail.trained == unbroken.trained
    np.testing.assert_array_equal(sampler.weights, resumed_sampler.weights)
    assert torch.equal(unbroken.table.weight, tail.table.weight)


def test_strategy_is_left_as_it_was_after_success_and_failure(tmp_path):
    _, loader, callback = make_parts()
    trainer = make_trainer(tmp_path, callback)
    trainer.fit(Bigram(), loader)
    assert "training_step" not in vars(trainer.strategy)
    trainer = make_trainer(tmp_path, make_parts()[2], StopWithCheckpoint(1, tmp_path / "x.ckpt"))
    with pytest.raises((Killed, MisconfigurationException)):
        trainer.fit(Bigram(), loader)
    assert "training_step" not in vars(trainer.strategy)


def test_validation_leaves_the_weights_alone(tmp_path):
    class Validated(Bigram):
        def validation_step(self, batch, batch_idx):
            return F.cross_entropy(self.table(batch["input_ids"]).view(-1, VOCAB), batch["labels"].view(-1))

    _, loader, callback = make_parts()
    module = Validated()
    make_trainer(tmp_path, callback, max_epochs=1).fit(module, loader, DataLoader(Windows(), batch_size=4))
    assert callback.num_observations == NUM_WINDOWS


def test_the_sampler_is_found_in_the_loader(tmp_path):
    sampler, loader, _ = make_parts()
    callback = AdaptiveSampling(update_every=2)
    make_trainer(tmp_path, callback).fit(Bigram(), loader)
    assert callback.sampler is sampler

    class Data(pl.LightningDataModule):
        def train_dataloader(self):
            return make_parts(workers=1)[1]

    callback, module = AdaptiveSampling(update_every=2), Bigram()
    make_trainer(tmp_path, callback).fit(module, datamodule=Data())
    assert callback.num_observations == 2 * NUM_WINDOWS
    # Workers that Lightning starts early draw nothing before the weights are set and the draws are the callback's.
    given = make_parts()[0]
    assert module.trained[:8] == given.draw(8).tolist()
    assert callback.sampler.position == 2 * NUM_WINDOWS


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (DataLoader(Windows(), batch_size=4, shuffle=True), "got RandomSampler.*sampler=AdaptiveSampler"),
        (DataLoader(Windows(), batch_size=4, sampler=ads.AdaptiveSampler(48)), "draws with another"),
        ([torch.ones(1)], "needs a DataLoader to train on, got list"),
    ],
)
def test_a_loader_that_draws_otherwise_is_refused_before_the_first_step(tmp_path, loader, message):
    _, _, callback = make_parts()
    module = Bigram()
    with pytest.raises(MisconfigurationException, match=message):
        make_trainer(tmp_path, callback).fit(module, loader)
    assert module.trained == []


def test_a_batch_without_ids_is_refused_before_the_first_step(tmp_path):
    dataset = Windows(with_id=False)
    sampler = ads.AdaptiveSampler(dataset)
    module = Bigram()
    with pytest.raises(MisconfigurationException, match=r"'window_id', got \['input_ids', 'labels'\].*with_ids"):
        make_trainer(tmp_path, AdaptiveSampling(sampler)).fit(module, DataLoader(dataset, 4, sampler=sampler))
    assert module.losses == []
    module = Bigram()
    loader = DataLoader(ads.with_ids(dataset), 4, sampler=sampler)
    make_trainer(tmp_path, AdaptiveSampling(sampler), max_epochs=1).fit(module, loader)
    assert sorted(module.trained) == list(range(NUM_WINDOWS))


def test_a_loader_that_prefetches_beyond_the_lag_is_refused(tmp_path):
    sampler, loader, callback = make_parts(workers=2)
    sampler.lag = 5
    with pytest.raises(MisconfigurationException, match=r"up to 6 batches ahead.*sampler\.lag = 6"):
        make_trainer(tmp_path, callback).fit(Bigram(), loader)


@pytest.mark.parametrize("bad", [0, -1, 2.5, True, "2"])
def test_bad_update_every_is_refused(bad):
    with pytest.raises(ValueError, match="`update_every`"):
        AdaptiveSampling(update_every=bad)


def test_non_finite_losses_never_reach_a_weight(tmp_path):
    class Exploding(HandWritten):
        def training_step(self, batch, batch_idx):
            out = super().training_step(batch, batch_idx)
            out["per_sample_loss"] = out["per_sample_loss"].detach().clone()
            out["per_sample_loss"][0] = float("nan")
            out["per_sample_loss"][1] = float("inf")
            return out

    sampler, loader, callback = make_parts()
    with pytest.warns(UserWarning, match="4 of 8 window losses up to step 2 were not finite") as caught:
        make_trainer(tmp_path, callback, max_epochs=1).fit(Exploding("dict"), loader)
    assert len([w for w in caught if "not finite" in str(w.message)]) == 1
    assert callback.policy.dropped == NUM_WINDOWS // 2
    assert np.isfinite(sampler.weights).all()
    assert callback.policy.visits.sum() == NUM_WINDOWS // 2


def test_callback_can_be_copied_before_and_after_fit(tmp_path):
    _, loader, callback = make_parts()
    copy.deepcopy(callback)
    make_trainer(tmp_path, callback).fit(Bigram(), loader)
    twin = copy.deepcopy(callback)
    np.testing.assert_array_equal(twin.policy.weights, callback.policy.weights)


def test_monitor_writes_histograms_that_tensorboard_reads_back(tmp_path):
    from lightning.pytorch.loggers import TensorBoardLogger
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, loader, callback = make_parts()
    trainer = make_trainer(tmp_path, callback, SamplingMonitor(every_n_steps=5), log_every_n_steps=1)
    trainer.loggers = [TensorBoardLogger(tmp_path, name="tb", version=0)]
    trainer.fit(Bigram(), loader)
    events = EventAccumulator(str(tmp_path / "tb" / "version_0"), size_guidance={"histograms": 0, "scalars": 0})
    events.Reload()
    assert [e.step for e in events.Histograms("sampling/weights")] == [1, 5, 10, 15, 20]
    last = events.Histograms("sampling/weights")[-1].histogram_value
    assert last.num == NUM_WINDOWS
    assert sum(last.bucket) == NUM_WINDOWS
    assert last.sum == pytest.approx(NUM_WINDOWS, rel=1e-3)
    for key in ("effective_sample_size", "share_seen", "top_weight"):
        assert f"sampling/{key}" in events.Tags()["scalars"]
    assert {"sampling/effective_sample_size", "sampling/share_seen"} <= set(trainer.progress_bar_metrics)


def test_a_failing_logger_warns_once_and_training_goes_on(tmp_path):
    from lightning.pytorch.loggers import CSVLogger

    class Broken:
        def add_histogram_raw(self, *args, **kwargs):
            raise ValueError("the histogram is empty")

    class BrokenLogger(CSVLogger):
        @property
        def experiment(self):
            return Broken()

        def log_metrics(self, metrics, step=None):
            pass

        def save(self):
            pass

    _, loader, callback = make_parts()
    trainer = make_trainer(tmp_path, callback, SamplingMonitor(every_n_steps=1))
    trainer.loggers = [BrokenLogger(tmp_path)]
    module = Bigram()
    with pytest.warns(UserWarning, match="could not log to BrokenLogger.*histogram is empty") as caught:
        trainer.fit(module, loader)
    assert len([w for w in caught if "could not log" in str(w.message)]) == 1
    assert len(module.trained) == 2 * NUM_WINDOWS


def test_a_training_too_short_for_any_update_to_count_warns(tmp_path):
    _, loader, callback = make_parts(update_every=10, lag=2)
    with pytest.warns(UserWarning, match=r"training has 12 steps, the first update comes after step 10.*lag` = 2"):
        make_trainer(tmp_path, callback, max_epochs=1).fit(Bigram(), loader)


def test_monitor_without_a_logger_is_silent_but_for_the_bar(tmp_path):
    _, loader, callback = make_parts()
    trainer = make_trainer(tmp_path, callback, SamplingMonitor(every_n_steps=1))
    trainer.fit(Bigram(), loader)
    assert trainer.progress_bar_metrics["sampling/share_seen"] == 1.0


def test_a_permutation_of_real_numbers_is_refused():
    with pytest.raises(TypeError, match="`permutation` must hold window ids, which are integers, got dtype float64"):
        AdaptiveSampling(permutation=np.arange(NUM_WINDOWS) + 0.7)


def test_a_callback_of_the_users_may_hold_the_policy(tmp_path):
    _, loader, callback = make_parts()
    watcher = pl.Callback()
    watcher.policy = callback.policy
    make_trainer(tmp_path, callback, watcher, max_epochs=1).fit(Bigram(), loader)
    assert callback.num_observations == NUM_WINDOWS


def test_a_policy_for_two_callbacks_is_refused(tmp_path):
    policy, loaders, callbacks = ads.WeightPolicy(), {}, []
    for key in "ab":
        sampler, loaders[key], _ = make_parts()
        callbacks.append(AdaptiveSampling(sampler, policy, loader_key=key, loss_key=key))
    with pytest.raises(MisconfigurationException, match="must have a policy of its own, got one for two"):
        make_trainer(tmp_path, *callbacks).fit(Bigram(), loaders)


@pytest.mark.parametrize("bad", [np.arange(NUM_WINDOWS - 1), np.zeros(NUM_WINDOWS), np.arange(NUM_WINDOWS) + 1])
def test_a_permutation_that_is_none_is_refused_before_the_first_step(tmp_path, bad):
    _, loader, callback = make_parts()
    callback.permutation = bad.astype(np.int64)
    module = Bigram()
    with pytest.raises(MisconfigurationException, match=f"each of {NUM_WINDOWS} ids once, got {len(bad)} entries"):
        make_trainer(tmp_path, callback).fit(module, loader)
    assert module.trained == []


@pytest.mark.parametrize("accumulate", [1, 2])
def test_updates_count_from_the_stream_position_of_their_step_and_the_lag(tmp_path, monkeypatch, accumulate):
    sampler, loader, callback = make_parts(update_every=2, lag=3)
    positions = []
    original = sampler.schedule_weights

    def noted(position, ids, values):
        positions.append(position)
        original(position, ids, values)

    monkeypatch.setattr(sampler, "schedule_weights", noted)
    make_trainer(tmp_path, callback, max_epochs=1, accumulate_grad_batches=accumulate).fit(Bigram(), loader)
    windows_per_step = 4 * accumulate
    steps = range(2, 12 // accumulate + 1, 2)
    assert positions == [(step + 3) * windows_per_step for step in steps]


@pytest.mark.parametrize(
    "bad", [{"id_key": 1.5}, {"id_key": None}, {"loss_key": None}, {"loss_key": 0}, {"loader_key": 1.5}], ids=str
)
def test_keys_that_find_nothing_are_refused_at_once(bad):
    with pytest.raises(TypeError, match=f"`{next(iter(bad))}` must be a key"):
        AdaptiveSampling(**bad)


def test_a_number_of_steps_may_come_from_numpy():
    assert AdaptiveSampling(update_every=np.int64(3)).update_every == 3
