"""Resumed at every step, with and without workers, plain and stateful loaders: the unbroken run to the last bit."""

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from tiny import Bigram, Killed, StopWithCheckpoint, Windows, make_parts, make_trainer
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from adaptive_sampling.callbacks import AdaptiveSampling

pytestmark = pytest.mark.filterwarnings("ignore:no learned weight can count", "ignore:.set_vital. is deprecated")
SETTINGS = [(DataLoader, 0), (DataLoader, 2), (StatefulDataLoader, 0), (StatefulDataLoader, 2)]
STEPS = 28  # of 12 per epoch


class SaveEach(StopWithCheckpoint):
    """Saves after every step of a run that is not stopped."""

    def __init__(self, folder):
        self.folder = folder

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        trainer.save_checkpoint(self.folder / f"{trainer.global_step}.ckpt")


def run(tmp_path, kind, workers, *callbacks, ckpt_path=None, steps=STEPS, hook=False):
    torch.manual_seed(0)
    sampler, _, callback = make_parts(update_every=3, lag=6)
    module = Bigram()
    trainer = make_trainer(tmp_path, callback, *callbacks, max_epochs=-1, max_steps=steps)
    loader = kind(Windows(), batch_size=4, sampler=sampler, num_workers=workers)
    if hook:  # the sampler is known only once Lightning has loaded the loader
        module.train_dataloader = lambda: loader
        callback._expected = callback.sampler = None
    trainer.fit(module, None if hook else loader, ckpt_path=ckpt_path)
    return module, sampler, callback


def check(tmp_path, kind, workers, stops, workers_after, hook=False):
    unbroken, sampler, callback = run(tmp_path, kind, workers, SaveEach(tmp_path))
    for stop in stops:
        tail, resumed, again = run(tmp_path, kind, workers_after, ckpt_path=tmp_path / f"{stop}.ckpt", hook=hook)
        where = f"{kind.__name__}, {workers} then {workers_after} workers, step {stop}"
        assert tail.trained == unbroken.trained[4 * stop :], where
        assert torch.equal(tail.table.weight, unbroken.table.weight), where
        assert (resumed.weights == sampler.weights).all(), where
        assert again.num_observations == callback.num_observations, where
        ours, theirs = again.policy.state_dict(), callback.policy.state_dict()
        assert all(torch.equal(ours[key], theirs[key]) for key in ("weights", "score", "visits")), where


@pytest.mark.parametrize(("kind", "workers"), [SETTINGS[0], SETTINGS[3]])
def test_some_steps_resume_exactly(tmp_path, kind, workers):
    # A StatefulDataLoader itself wants the number of workers that it was saved with.
    check(tmp_path, kind, workers, [4, 12, 13], workers)


@pytest.mark.parametrize(("kind", "workers"), [SETTINGS[1], SETTINGS[3]])
def test_a_loader_from_a_hook_resumes_exactly(tmp_path, kind, workers):
    check(tmp_path, kind, workers, [4, 13], workers, hook=True)


@pytest.mark.soak
@pytest.mark.parametrize("workers_after", [0, 2])
@pytest.mark.parametrize(("kind", "workers"), SETTINGS)
def test_every_step_resumes_exactly(tmp_path, kind, workers, workers_after):
    if kind is StatefulDataLoader and workers != workers_after:
        pytest.skip("a StatefulDataLoader wants the number of workers that it was saved with")
    check(tmp_path, kind, workers, range(1, STEPS), workers_after)


def test_state_is_of_plain_types_and_found_by_lightnings_own_checkpoint(tmp_path):
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=5, save_top_k=-1)
    _, loader, callback = make_parts()
    # The order of callbacks does not matter: a ModelCheckpoint comes last.
    make_trainer(tmp_path, saving, callback, max_epochs=1, enable_checkpointing=True).fit(Bigram(), loader)
    path = next(tmp_path.glob("*step=5.ckpt"))
    state = torch.load(path, weights_only=True)["callbacks"][callback.state_key]
    assert state["num_steps"] == 5
    assert len(state["observed"][0]["ids"]) == 4


def test_a_checkpoint_without_our_state_warns(tmp_path):
    _, loader, _ = make_parts()
    trainer = make_trainer(tmp_path, max_epochs=1)
    trainer.fit(Bigram(), loader)
    trainer.save_checkpoint(tmp_path / "plain.ckpt")
    _, loader, callback = make_parts()
    with pytest.warns(UserWarning, match="holds no state of AdaptiveSampling.*start afresh"):
        make_trainer(tmp_path, callback).fit(Bigram(), loader, ckpt_path=tmp_path / "plain.ckpt")


def test_a_callback_that_is_reused_goes_on_from_a_checkpoint_without_a_word(tmp_path):
    _, loader, callback = make_parts()
    with pytest.raises(Killed):
        make_trainer(tmp_path, callback, StopWithCheckpoint(6, tmp_path / "six.ckpt")).fit(Bigram(), loader)
    module = Bigram()
    make_trainer(tmp_path, callback).fit(module, loader, ckpt_path=tmp_path / "six.ckpt")
    assert callback.num_steps == 24
    assert len(module.trained) == 18 * 4


def test_another_version_of_the_state_is_refused(tmp_path):
    callback = AdaptiveSampling()
    with pytest.raises(ValueError, match="version 1, this package reads 2"):
        callback.load_state_dict({"version": 1})
