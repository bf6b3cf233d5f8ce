"""Every loop of Lightning: what the policy was told equals what the module computed by hand, window by window."""

import contextlib
import signal

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import (
    EarlyStopping,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelCheckpoint,
)
from lightning.pytorch.tuner import Tuner
from lightning.pytorch.utilities import CombinedLoader
from tiny import NUM_WINDOWS, VOCAB, Bigram, Killed, StopWithCheckpoint, Windows, make_parts, make_trainer
from torch.utils.checkpoint import checkpoint
from torch.utils.data import BatchSampler, DataLoader

import adaptive_sampling as ads
from adaptive_sampling.callbacks import AdaptiveSampling
from adaptive_sampling.windows import LengthBucketBatchSampler

# These trainings are too short on purpose for learned weights to count.
pytestmark = pytest.mark.filterwarnings(
    "ignore:no learned weight can count", "ignore:The lightning.pytorch.tuner", "ignore:.*training_step.*returned.*None"
)


class Told(ads.WeightPolicy):
    """Notes what it was told."""

    def __init__(self, **settings):
        super().__init__(**{"warmup": 0, "cooldown": 0, **settings})
        self.told, self.steps = [], []

    def update(self, ids, values, step=None, **settings):
        self.told += list(zip(ids.tolist(), values["loss"].tolist(), strict=True))
        self.steps.append(step)
        return super().update(ids, values, step, **settings)


def fit(tmp_path, module, *, callbacks=(), loader=None, update_every=1, policy=None, val=None, **settings):
    _, own_loader, _ = make_parts()
    callback = AdaptiveSampling(policy=policy or Told(), update_every=update_every)
    trainer = make_trainer(tmp_path, callback, *callbacks, **{"max_epochs": 1, **settings})
    trainer.fit(module, own_loader if loader is None else loader, *([] if val is None else [val]))
    return callback, trainer


def assert_told_by_hand(callback, module, rtol=1e-5):
    told = callback.policy.told
    assert [i for i, _ in told] == module.trained
    np.testing.assert_allclose([x for _, x in told], module.losses, rtol=rtol)


class Validated(Bigram):
    def validation_step(self, batch, batch_idx):
        loss = F.cross_entropy(self.table(batch["input_ids"]).view(-1, VOCAB), batch["labels"].view(-1))
        self.log("val", torch.tensor(1.0))
        return loss


class TwoOptimizers(Bigram):
    """A GAN's shape: two losses per step, of which only one is over the windows."""

    def __init__(self):
        super().__init__("tensor")
        self.automatic_optimization = False
        self.other = torch.nn.Linear(2, 3)

    def training_step(self, batch, batch_idx):
        first, second = self.optimizers()
        first.zero_grad(), second.zero_grad()
        self.manual_backward(F.cross_entropy(self.other(torch.ones(7, 2)), torch.zeros(7, dtype=torch.long)))
        second.step()
        self.manual_backward(super().training_step(batch, batch_idx))
        first.step()

    def configure_optimizers(self):
        return [torch.optim.SGD(m.parameters(), lr=0.1) for m in (self.table, self.other)]


class SecondOrder(Bigram):
    def training_step(self, batch, batch_idx):
        if getattr(self, "seen", None) == batch_idx:  # the closure runs again
            kept = len(self.trained), len(self.losses)
            loss = super().training_step(batch, batch_idx)
            self.trained, self.losses = self.trained[: kept[0]], self.losses[: kept[1]]
            return loss
        self.seen = batch_idx
        return super().training_step(batch, batch_idx)

    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=3)


class Checkpointed(Bigram):
    def training_step(self, batch, batch_idx):
        def loss_of(weight):
            return F.cross_entropy(F.embedding(batch["input_ids"], weight).view(-1, VOCAB), batch["labels"].view(-1))

        self.trained += batch["window_id"].tolist()
        with torch.no_grad():
            rows = -self.table(batch["input_ids"]).log_softmax(-1).gather(-1, batch["labels"][..., None])[..., 0]
        self.losses += rows.mean(1).tolist()
        return checkpoint(loss_of, self.table.weight, use_reentrant=False)


LOOPS = {
    "plain": (Bigram, {}),
    "clipping": (Bigram, {"gradient_clip_val": 0.1}),
    "accumulation": (Bigram, {"accumulate_grad_batches": 5}),
    "manual": (lambda: Bigram("manual"), {}),
    "two optimizers": (TwoOptimizers, {}),
    "LBFGS": (SecondOrder, {}),
    "activation checkpointing": (Checkpointed, {}),
    "limit_train_batches": (Bigram, {"limit_train_batches": 5, "max_epochs": 2}),
    "max_steps in mid-epoch": (Bigram, {"max_steps": 7, "max_epochs": -1}),
    "fast_dev_run": (Bigram, {"fast_dev_run": 2}),
    "barebones": (Bigram, {"barebones": True}),
    "max_time": (Bigram, {"max_time": {"minutes": 5}}),
    "sanity check and validation in mid-epoch": (Validated, {"val_check_interval": 3, "num_sanity_val_steps": 2}),
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.filterwarnings("ignore:.*barebones.*", "ignore:.*detect.anomaly.*")
def test_what_the_policy_is_told_equals_what_was_computed_by_hand(tmp_path, name):
    make_module, settings = LOOPS[name]
    module = make_module()
    val = DataLoader(Windows(), batch_size=4) if isinstance(module, Validated) else None
    callback, trainer = fit(tmp_path, module, val=val, **settings)
    assert_told_by_hand(callback, module)
    steps = trainer.global_step // (2 if name == "two optimizers" else 1)
    assert callback.policy.steps == list(range(1, steps + 1))
    assert "training_step" not in vars(trainer.strategy)


def test_bf16_autocast_is_told_in_float32(tmp_path):
    module = Bigram()
    callback, _ = fit(tmp_path, module, precision="bf16-mixed")
    assert_told_by_hand(callback, module, rtol=1e-5)


def test_scheduled_accumulation_counts_optimizer_steps(tmp_path):
    module = Bigram()
    scheduler = GradientAccumulationScheduler({0: 4, 1: 1, 2: 5})
    callback, trainer = fit(tmp_path, module, callbacks=[scheduler], max_epochs=3)
    assert_told_by_hand(callback, module)
    assert callback.num_steps == trainer.global_step == 3 + 12 + 3  # the last group of an epoch may be smaller


def test_early_stopping_ends_and_the_next_epoch_starts_afresh(tmp_path):
    module = Validated()
    stop = EarlyStopping("val", patience=1)
    callback, trainer = fit(
        tmp_path, module, callbacks=[stop], max_epochs=9, val=DataLoader(Windows(), 4), num_sanity_val_steps=0
    )
    assert trainer.current_epoch == 2
    assert_told_by_hand(callback, module)


def test_going_on_after_max_steps_keeps_what_was_learned(tmp_path):
    module = Bigram()
    _, loader, _ = make_parts()
    callback = AdaptiveSampling(policy=Told(), update_every=2)
    trainer = make_trainer(tmp_path, callback, max_epochs=-1, max_steps=5)
    trainer.fit(module, loader)
    trainer.fit_loop.epoch_loop.max_steps = 20
    trainer.fit(module, loader)
    assert callback.num_steps == trainer.global_step == 20
    told = callback.policy.told
    assert [i for i, _ in told] == module.trained
    assert callback.policy.steps == list(range(2, 21, 2))


def test_a_second_fit_starts_afresh_and_says_so(tmp_path):
    _, loader, callback = make_parts()
    make_trainer(tmp_path, callback).fit(Bigram(), loader)
    first = callback.policy.scores.copy()
    module = Bigram()
    with pytest.warns(UserWarning, match="used in an earlier fit and starts afresh"):
        make_trainer(tmp_path, callback, max_epochs=1).fit(module, loader)
    assert callback.num_observations == NUM_WINDOWS
    assert callback.num_steps == 12
    assert callback.policy.visits.sum() == NUM_WINDOWS
    assert not np.array_equal(first, callback.policy.scores)


class WithKeys(Bigram):
    def training_step(self, batch, batch_idx):
        part = batch["text"]
        # The other loader's loss goes by a function that is not captured.
        return super().training_step(part, batch_idx) + 0.0 * batch["other"]["input_ids"].sum()


@pytest.mark.parametrize("mode", [None, "min_size", "max_size_cycle", "max_size"])
@pytest.mark.parametrize("key", [None, "text"])
def test_one_of_several_loaders_is_chosen_by_key_or_by_its_sampler(tmp_path, mode, key):
    sampler, loader, _ = make_parts()
    loaders = {"other": DataLoader(Windows(), batch_size=4), "text": loader}
    callback = AdaptiveSampling(policy=Told(), update_every=1, loader_key=key)
    module = WithKeys()
    make_trainer(tmp_path, callback, max_epochs=1).fit(module, CombinedLoader(loaders, mode) if mode else loaders)
    assert callback.sampler is sampler
    assert_told_by_hand(callback, module)


def test_the_longer_loader_goes_on_when_ours_has_run_out(tmp_path):
    class Longer(Bigram):
        def training_step(self, batch, batch_idx):
            if batch["text"] is None:
                return 0.0 * self.table.weight.sum()
            return super().training_step(batch["text"], batch_idx)

    _, loader, _ = make_parts()
    loaders = {"other": DataLoader(Windows(80), batch_size=4), "text": loader}
    callback, module = AdaptiveSampling(policy=Told(), update_every=1), Longer()
    make_trainer(tmp_path, callback, max_epochs=1).fit(module, CombinedLoader(loaders, "max_size"))
    assert_told_by_hand(callback, module)
    assert callback.num_steps == 20


@pytest.mark.parametrize(
    ("key", "count", "message"),
    [("wrong", 1, "must be one of .*got 'wrong'"), (None, 2, "of which 2 draw with a weighted sampler")],
)
def test_a_loader_that_cannot_be_told_is_a_question_before_the_first_step(tmp_path, key, count, message):
    loaders = {"a": make_parts()[1], "b": make_parts()[1] if count == 2 else DataLoader(Windows(), 4)}
    with pytest.raises(MisconfigurationException, match=message):
        make_trainer(tmp_path, AdaptiveSampling(loader_key=key)).fit(Bigram(), loaders)


def test_two_callbacks_on_two_loaders_keep_apart(tmp_path):
    class Both(Bigram):
        def training_step(self, batch, batch_idx):
            parts = {key: super(Both, self).training_step(batch[key], batch_idx) for key in ("a", "b")}
            rows = torch.tensor(self.losses[-8:])
            return {"loss": parts["a"] + parts["b"], "loss_a": rows[:4], "loss_b": rows[4:]}

    module = Both()
    callbacks = [
        AdaptiveSampling(policy=Told(), update_every=1, loader_key=key, loss_key=f"loss_{key}") for key in ("a", "b")
    ]
    trainer = make_trainer(tmp_path, *callbacks, max_epochs=1)
    trainer.fit(module, {"a": make_parts()[1], "b": make_parts()[1]})
    trainer.save_checkpoint(tmp_path / "both.ckpt")
    assert len([key for key in torch.load(tmp_path / "both.ckpt")["callbacks"] if "AdaptiveSampling" in key]) == 2
    expected = np.array(list(zip(module.trained, module.losses, strict=True))).reshape(-1, 2, 4, 2)
    for place, callback in enumerate(callbacks):
        np.testing.assert_allclose(callback.policy.told, expected[:, place].reshape(-1, 2), rtol=1e-5)
    assert "training_step" not in vars(trainer.strategy)


class Reloading(pl.LightningDataModule):
    """Makes a new loader, with a new sampler or the old one, in each epoch."""

    def __init__(self, workers, same_sampler):
        super().__init__()
        self.workers, self.samplers, self.same = workers, [], same_sampler

    def train_dataloader(self):
        if not self.samplers or not self.same:
            sampler, _, _ = make_parts(workers=self.workers, lag=6)
            self.samplers.append(sampler)
        return DataLoader(Windows(), batch_size=4, sampler=self.samplers[-1], num_workers=self.workers)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("same", [True, False])
def test_reloaded_loaders_carry_the_weights_and_the_stream_on(tmp_path, workers, same):
    orders = []
    for reload in (0, 1):
        torch.manual_seed(0)
        data, module = Reloading(workers, same), Bigram()
        callback = AdaptiveSampling(policy=Told(), update_every=2)
        trainer = make_trainer(tmp_path, callback, max_epochs=4, reload_dataloaders_every_n_epochs=reload)
        trainer.fit(module, datamodule=data)
        orders.append(module.trained)
        assert callback.sampler is data.samplers[-1]
    assert orders[0] == orders[1]
    assert len(data.samplers) == (1 if same else 4)


@pytest.mark.parametrize("stop", [5, 12, 17])
def test_a_resumed_run_with_reloaded_loaders_sees_the_order_of_the_unbroken_one(tmp_path, stop):
    def run(*callbacks, **settings):
        torch.manual_seed(0)
        data, module = Reloading(0, False), Bigram()
        callback = AdaptiveSampling(policy=Told(), update_every=2)
        trainer = make_trainer(tmp_path, callback, *callbacks, max_epochs=3, reload_dataloaders_every_n_epochs=1)
        with contextlib.suppress(Killed):
            trainer.fit(module, datamodule=data, **settings)
        return module, callback

    unbroken, expected = run()
    head, _ = run(StopWithCheckpoint(stop, tmp_path / "stop.ckpt"))
    tail, callback = run(ckpt_path=tmp_path / "stop.ckpt")
    assert head.trained + tail.trained == unbroken.trained
    np.testing.assert_array_equal(callback.policy.weights, expected.policy.weights)


def test_a_learning_rate_search_leaves_order_and_policy_alone(tmp_path):
    class Searched(Bigram):
        def __init__(self):
            super().__init__()
            self.lr = 0.5

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.lr)

    orders = []
    for search in (False, True):
        torch.manual_seed(0)
        _, loader, callback = make_parts()
        module = Searched()
        trainer = make_trainer(tmp_path, callback, max_epochs=1)
        if search:
            Tuner(trainer).lr_find(module, loader, num_training=5, update_attr=False)
            module.trained, module.losses = [], []
        trainer.fit(module, loader)
        orders.append(module.trained)
        assert callback.num_observations == NUM_WINDOWS
    assert orders[0] == orders[1]


def test_a_batch_size_search_leaves_order_and_policy_alone(tmp_path):
    class Searched(Bigram):
        batch_size = 4

        def train_dataloader(self):
            return make_parts(batch_size=self.batch_size)[1]

    orders = []
    for search in (False, True):
        torch.manual_seed(0)
        callback, module = AdaptiveSampling(policy=Told(), update_every=2), Searched()
        trainer = make_trainer(tmp_path, callback, max_epochs=2)
        if search:
            Tuner(trainer).scale_batch_size(module, max_trials=2, steps_per_trial=3, init_val=2)
            module.batch_size, module.trained, module.losses = 4, [], []
        trainer.fit(module)
        orders.append(module.trained)
        assert callback.num_observations == 2 * NUM_WINDOWS
        assert_told_by_hand(callback, module)
    assert orders[0] == orders[1]


@pytest.mark.filterwarnings("ignore:.*lr scheduler.*", "ignore:.*learning rate.*")
def test_a_finder_within_fit_leaves_order_and_policy_alone(tmp_path):
    class Searched(Bigram):
        lr = 0.5

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.lr)

    orders = []
    for finders in ([], [LearningRateFinder(num_training_steps=5, update_attr=False)]):
        torch.manual_seed(0)
        _, loader, callback = make_parts()
        module = Searched()
        make_trainer(tmp_path, *finders, callback, max_epochs=1).fit(module, loader)
        orders.append(module.trained[-NUM_WINDOWS:])
        assert callback.num_observations == NUM_WINDOWS
        assert callback.policy.visits.sum() == NUM_WINDOWS
    assert orders[0] == orders[1]


@pytest.mark.filterwarnings("ignore:Be aware that when using")
def test_losses_pending_when_max_steps_ends_an_epoch_early_are_in_the_last_checkpoint_and_count_later(tmp_path):
    _, loader, callback = make_parts(update_every=5)
    saving = ModelCheckpoint(tmp_path / "saved", save_last=True, every_n_train_steps=100)
    first = Bigram()
    make_trainer(tmp_path, saving, callback, max_steps=7, max_epochs=-1, enable_checkpointing=True).fit(first, loader)
    path = tmp_path / "saved" / "last.ckpt"
    (pending,) = torch.load(path, weights_only=True)["callbacks"][callback.state_key]["observed"]
    assert pending["ids"].tolist() == first.trained[-8:]
    np.testing.assert_allclose(pending["values"]["loss"], first.losses[-8:], rtol=1e-5)
    _, loader, callback = make_parts(update_every=5)
    make_trainer(tmp_path, callback, max_steps=10, max_epochs=-1).fit(Bigram(), loader, ckpt_path=path)
    # The second update, after step 10, takes in what was trained on before the break too.
    assert callback.num_observations == 40


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_exception_or_ctrl_c_nothing_is_left_behind(tmp_path, error):
    class Failing(Bigram):
        def training_step(self, batch, batch_idx):
            if batch_idx == 3:
                raise error("at batch 3")
            return super().training_step(batch, batch_idx)

    handler = signal.getsignal(signal.SIGINT)
    _, loader, callback = make_parts()
    trainer = make_trainer(tmp_path, callback)
    try:
        with pytest.raises((ValueError, SystemExit)):
            trainer.fit(Failing(), loader)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert "training_step" not in vars(trainer.strategy)
    assert torch.overrides._get_current_function_mode_stack() == []
    with pytest.warns(UserWarning, match="starts afresh"):
        make_trainer(tmp_path, callback, max_epochs=1).fit(Bigram(), loader)
    assert callback.num_observations == NUM_WINDOWS


@pytest.mark.filterwarnings("ignore:You requested to overfit", "ignore:.*overfit.*")
def test_overfit_batches_is_refused_with_the_cure(tmp_path):
    module = Bigram()
    with pytest.raises(MisconfigurationException, match=r"got SequentialSampler.*overfit_batches.*leave that out"):
        fit(tmp_path, module, overfit_batches=2)
    assert module.trained == []


def test_a_batch_sampler_around_ours_works_on_one_process(tmp_path):
    sampler = make_parts()[0]
    module = Bigram()
    loader = DataLoader(Windows(), batch_sampler=BatchSampler(sampler, 4, drop_last=False))
    callback, _ = fit(tmp_path, module, loader=loader)
    assert_told_by_hand(callback, module)


def test_length_buckets_are_made_of_draws_that_the_lag_must_cover(tmp_path):
    def run(lag):
        dataset, module = Windows(), Bigram()
        sampler = ads.AdaptiveSampler(dataset, seed=0, block_size=4)
        sampler.lag = lag
        batches = LengthBucketBatchSampler(sampler, 4, lengths=np.arange(NUM_WINDOWS) % 6 + 1, block_batches=5)
        loader = DataLoader(dataset, batch_sampler=batches)
        return *fit(tmp_path, module, loader=loader, max_epochs=3), module

    with pytest.raises(MisconfigurationException, match=r"up to 6 batches ahead.*sampler\.lag = 6.*block_batches"):
        run(5)
    callback, trainer, module = run(6)
    assert trainer.global_step == 36
    assert_told_by_hand(callback, module)
    assert len(set(callback.sampler.weights.tolist())) > 5


def test_a_dataset_that_moves_text_between_ids_is_refused(tmp_path):
    class Moving(Windows):
        adaptive_weights_error = "`reshuffle_documents` must be False with adaptive weights, got True."

    dataset = ads.with_ids(Moving(with_id=False))
    loader = DataLoader(dataset, batch_size=4, sampler=ads.AdaptiveSampler(dataset))
    module = Bigram()
    with pytest.raises(MisconfigurationException, match="reshuffle_documents"):
        fit(tmp_path, module, loader=loader)
    assert module.trained == []


def test_steps_that_are_skipped_or_odd_leave_windows_out_and_go_on(tmp_path):
    class Odd(Bigram):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            if batch_idx == 2:
                return None
            if batch_idx in (3, 4):
                return {"loss": loss, "per_sample_loss": torch.ones(3)}
            return loss

    module = Odd()
    with pytest.warns(UserWarning, match=r"left out of the weights, training goes on.*\(4,\).*got \(3,\)") as caught:
        callback, trainer = fit(tmp_path, module)
    assert len([w for w in caught if "left out" in str(w.message)]) == 1
    assert trainer.global_step == 12
    assert callback.num_observations == NUM_WINDOWS - 8


class Skipping(Bigram):
    def training_step(self, batch, batch_idx):
        return None if batch_idx % 3 == 0 else super().training_step(batch, batch_idx)


def test_steps_that_are_skipped_show_nothing_and_are_no_error_be_it_the_first(tmp_path, recwarn):
    _, loader, callback = make_parts()
    module = Skipping()
    make_trainer(tmp_path, callback, max_epochs=1).fit(module, loader)
    assert callback.num_observations == len(module.trained) == 32  # 8 of 12 batches
    assert not [w for w in recwarn if "left out" in str(w.message)]


def test_a_manual_step_that_shows_nothing_is_an_error_though_it_returns_none(tmp_path):
    _, loader, callback = make_parts()
    module = Bigram()
    module.automatic_optimization = False
    module.training_step = lambda batch, batch_idx: None
    with pytest.raises(MisconfigurationException, match="none was seen"):
        make_trainer(tmp_path, callback, max_epochs=1).fit(module, loader)


class Silent(Bigram):
    def training_step(self, batch, batch_idx):
        return None


@pytest.mark.parametrize("update_every", [2, 50])
@pytest.mark.filterwarnings("ignore:.*training_step.* returned .None.*", "ignore:no learned weight can count")
def test_a_training_that_shows_no_loss_goes_on_and_is_told_so_once(tmp_path, update_every):
    _, loader, callback = make_parts(update_every=update_every)
    with pytest.warns(UserWarning, match=r"0 window losses were recorded in \d+ steps.*per_sample_loss") as told:
        make_trainer(tmp_path, callback, max_epochs=2).fit(Silent(), loader)
    assert sum("0 window losses" in str(one.message) for one in told) == 1
    assert (callback.num_steps, callback.num_observations) == (24, 0)


class TurningNegative(Bigram):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        losses = torch.tensor(self.losses[-len(batch["window_id"]) :])
        return {"loss": loss, "per_sample_loss": losses if self.global_step < 7 else -losses}


def test_losses_that_turn_negative_are_left_out_and_training_goes_on(tmp_path):
    _, loader, callback = make_parts()
    with pytest.warns(UserWarning, match="were not finite, or negative, and are left out"):
        make_trainer(tmp_path, callback, max_epochs=2).fit(TurningNegative(), loader)
    assert callback.num_steps == 24
    assert callback.policy.dropped == 17 * 4
    assert (callback.policy.visits > 0).sum() == 7 * 4


def test_two_callbacks_with_losses_of_their_own_keep_apart(tmp_path):
    one, two = (AdaptiveSampling(loss_key=key) for key in ("of_one", "of_two"))
    assert len({one.state_key, two.state_key, AdaptiveSampling().state_key}) == 3
    make_trainer(tmp_path, one, two)
