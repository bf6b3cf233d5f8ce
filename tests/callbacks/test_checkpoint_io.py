"""Large state beside the checkpoint: whoever saves, moves, replaces or deletes checkpoints keeps both together."""

import sys

import numpy as np
import pytest
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO
from lightning.pytorch.tuner import Tuner
from tiny import Bigram, Killed, StopWithCheckpoint, Windows, make_parts, make_trainer
from torch.utils.data import DataLoader

from adaptive_sampling.callbacks import AdaptiveSampling
from adaptive_sampling.errors import StateMismatchError
from adaptive_sampling.weight_files import read_weights

pytestmark = pytest.mark.filterwarnings(
    "ignore:no learned weight can count",
    "ignore:The lightning.pytorch.tuner",
    "ignore:Be aware that when using",
    "ignore:.*fit.ckpt_path=.*(was called without a model|no last checkpoint)",
)
STEPS = 24


def run(tmp_path, *callbacks, ckpt_path=None, limit=0.0, steps=STEPS, make_module=Bigram, **settings):
    torch.manual_seed(0)
    sampler, loader, ours = make_parts(update_every=3)
    ours.max_megabytes_in_checkpoint = limit
    module = make_module()
    trainer = make_trainer(tmp_path, ours, *callbacks, max_epochs=-1, max_steps=steps, **settings)
    trainer.fit(module, loader, ckpt_path=ckpt_path)
    return module, sampler, ours, trainer


def stopped(tmp_path, path, limit=0.0, step=9):
    with pytest.raises(Killed):
        run(tmp_path, StopWithCheckpoint(step, path), limit=limit)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    return run(tmp_path_factory.mktemp("unbroken"))


def assert_resumes(whole, tmp_path, path, done):
    unbroken, sampler, ours, _ = whole
    tail, resumed, again, _ = run(tmp_path, ckpt_path=path)
    assert tail.trained == unbroken.trained[4 * done :]
    assert torch.equal(tail.table.weight, unbroken.table.weight)
    np.testing.assert_array_equal(resumed.weights, sampler.weights)
    np.testing.assert_array_equal(again.policy.scores, ours.policy.scores)
    np.testing.assert_array_equal(again.policy.visits, ours.policy.visits)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def state_in(path):
    (state,) = [s for key, s in torch.load(path, weights_only=True)["callbacks"].items() if "AdaptiveSampling" in key]
    return state


def test_small_state_is_in_the_checkpoint_alone(unbroken, tmp_path):
    folder = tmp_path / "saved"
    stopped(tmp_path, folder / "x.ckpt", limit=AdaptiveSampling().max_megabytes_in_checkpoint)
    assert names(folder) == ["x.ckpt"]
    assert "beside" not in state_in(folder / "x.ckpt")
    assert_resumes(unbroken, tmp_path, folder / "x.ckpt", 9)


def test_the_limit_is_in_millions_of_bytes_of_tables(tmp_path):
    stopped(tmp_path, tmp_path / "x.ckpt", limit=float("inf"))
    size = sum(tensor.nbytes for tensor in tensors(state_in(tmp_path / "x.ckpt")))
    for limit, count in ((size / 1e6, 1), ((size - 1) / 1e6, 2)):
        folder = tmp_path / str(limit)
        stopped(tmp_path, folder / "x.ckpt", limit=limit)
        assert len(names(folder)) == count


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [tensor for each in values for tensor in tensors(each)]


def test_a_run_resumes_exactly_from_both_files_in_another_folder(unbroken, tmp_path):
    folder = tmp_path / "saved"
    stopped(tmp_path, folder / "x.ckpt")
    assert [name.partition("-")[0] for name in names(folder)] == ["x.ckpt", "x.ckpt.AdaptiveSampling"]
    assert not [tensor for tensor in tensors(state_in(folder / "x.ckpt")) if tensor.numel()]
    moved = folder.rename(tmp_path / "elsewhere")
    assert_resumes(unbroken, tmp_path, moved / "x.ckpt", 9)


def damage(path, how):
    content = path.read_bytes()
    path.unlink()
    if how == "truncated":
        path.write_bytes(content[:-9])
    elif how == "flipped":
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 4]) + content[-8:])


@pytest.mark.parametrize(
    ("how", "said"), [("missing", "no such file"), ("truncated", "bytes"), ("flipped", "checksum")]
)
def test_a_damaged_file_is_refused_before_the_first_step(tmp_path, how, said):
    folder = tmp_path / "saved"
    stopped(tmp_path, folder / "x.ckpt")
    (path,) = folder.glob("*.safetensors")
    damage(path, how)
    module = Bigram()
    with pytest.raises(StateMismatchError, match=rf"{path.name}.*{said}"):
        run(tmp_path, ckpt_path=folder / "x.ckpt", make_module=lambda: module)
    assert module.trained == []


def test_a_state_handed_over_without_its_tables_is_refused(tmp_path):
    stopped(tmp_path, tmp_path / "x.ckpt")
    with pytest.raises(StateMismatchError, match=r"tables in `x\.ckpt\.AdaptiveSampling-.*ckpt_path"):
        AdaptiveSampling().load_state_dict(state_in(tmp_path / "x.ckpt"))


def test_a_model_checkpoint_leaves_no_orphan_and_its_last_one_resumes(unbroken, tmp_path):
    folder = tmp_path / "kept"
    saving = ModelCheckpoint(folder, every_n_train_steps=2, save_top_k=1, save_last=True)
    run(tmp_path, saving, steps=9, enable_checkpointing=True)
    assert [name.partition("-0")[0].partition(".Adaptive")[0] for name in names(folder)] == [
        "epoch=0-step=8.ckpt",
        "epoch=0-step=8.ckpt",
        "last.ckpt",
        "last.ckpt",
    ]
    assert len([name for name in names(folder) if name.endswith(".safetensors")]) == 2
    assert_resumes(unbroken, tmp_path, folder / "last.ckpt", 8)


def test_a_link_to_the_last_checkpoint_finds_its_file(unbroken, tmp_path):
    folder = tmp_path / "kept"
    saving = ModelCheckpoint(folder, every_n_train_steps=2, save_top_k=1, save_last="link")
    run(tmp_path, saving, steps=9, enable_checkpointing=True)
    assert len(names(folder)) == 3
    assert (folder / "last.ckpt").is_symlink()
    assert_resumes(unbroken, tmp_path, folder / "last.ckpt", 8)


def test_a_checkpoint_saved_again_takes_the_place_of_the_old_one(tmp_path):
    folder = tmp_path / "saved"
    stopped(tmp_path, folder / "x.ckpt", step=6)
    first = names(folder)
    stopped(tmp_path, folder / "x.ckpt", step=9)
    assert len(names(folder)) == 2
    assert names(folder) != first
    stopped(tmp_path, folder / "x.ckpt", step=9, limit=64.0)
    assert names(folder) == ["x.ckpt"]


class Full(TorchCheckpointIO):
    """A disk on which no second checkpoint has room."""

    saved = 0

    def save_checkpoint(self, checkpoint, path, storage_options=None):
        self.saved += 1
        if self.saved > 1:
            raise OSError(28, "No space left on device")
        super().save_checkpoint(checkpoint, path, storage_options)


class SaveTwice(StopWithCheckpoint):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step in (6, 9):
            trainer.save_checkpoint(self.path)


def test_a_checkpoint_that_fails_to_be_written_leaves_the_old_one_and_its_file(unbroken, tmp_path):
    folder = tmp_path / "saved"
    with pytest.raises(OSError, match="No space"):
        run(tmp_path, SaveTwice(9, folder / "x.ckpt"), plugins=[Full()])
    assert len(names(folder)) == 2
    assert_resumes(unbroken, tmp_path, folder / "x.ckpt", 6)


def test_an_asynchronous_io_writes_both_from_its_thread(unbroken, tmp_path):
    folder = tmp_path / "saved"
    _, _, _, trainer = run(tmp_path, SaveTwice(9, folder / "x.ckpt"), plugins=[AsyncCheckpointIO()])
    assert isinstance(trainer.strategy.checkpoint_io, AsyncCheckpointIO)
    assert len(names(folder)) == 2
    assert_resumes(unbroken, tmp_path, folder / "x.ckpt", 9)


def test_checkpoints_after_an_exception_and_after_training_have_their_files(unbroken, tmp_path):
    class Failing(Bigram):
        def training_step(self, batch, batch_idx):
            if self.global_step == 7:
                raise ValueError("at step 7")
            return super().training_step(batch, batch_idx)

    folder = tmp_path / "saved"
    with pytest.raises(ValueError, match="at step 7"):
        run(tmp_path, OnExceptionCheckpoint(folder), make_module=Failing, enable_checkpointing=True)
    assert len(names(folder)) == 2
    assert_resumes(unbroken, tmp_path, next(folder.glob("*.ckpt")), 7)
    _, _, ours, trainer = run(tmp_path)
    trainer.save_checkpoint(tmp_path / "end" / "x.ckpt")
    assert len(names(tmp_path / "end")) == 2
    np.testing.assert_array_equal(read_weights(tmp_path / "end" / "x.ckpt", 48), ours.policy.weights)
    # The module alone needs none of it; and to test a checkpoint is not to go on from it.
    next((tmp_path / "end").glob("*.safetensors")).unlink()
    weights = ours.sampler.weights.copy()

    class Tested(Bigram):
        def test_step(self, batch, batch_idx):
            return None

    again = make_trainer(tmp_path, ours)
    again.test(Tested(), DataLoader(Windows(), 4), ckpt_path=tmp_path / "end" / "x.ckpt", verbose=False)
    np.testing.assert_array_equal(ours.sampler.weights, weights)


def test_a_search_for_a_learning_rate_leaves_no_file(tmp_path):
    class Searched(Bigram):
        lr = 0.1

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.lr)

    _, loader, ours = make_parts()
    ours.max_megabytes_in_checkpoint = 0.0
    trainer = make_trainer(tmp_path / "runs", ours, max_epochs=1)
    module = Searched()
    Tuner(trainer).lr_find(module, loader, num_training=5, update_attr=False)
    trainer.fit(module, loader)
    assert not list((tmp_path / "runs").rglob("*.safetensors"))


def test_two_callbacks_on_two_loaders_have_a_file_each(tmp_path):
    class Both(Bigram):
        def training_step(self, batch, batch_idx):
            parts = [super(Both, self).training_step(batch[key], batch_idx) for key in ("a", "b")]
            rows = torch.tensor(self.losses[-8:])
            return {"loss": sum(parts), "loss_a": rows[:4], "loss_b": rows[4:]}

    def both(*callbacks, ckpt_path=None):
        torch.manual_seed(0)
        ours = [
            AdaptiveSampling(
                update_every=3, loader_key=key, loss_key=f"loss_{key}", max_megabytes_in_checkpoint=0, policy=policy
            )
            for key, policy in (("a", make_parts(power=2.0)[2].policy), ("b", make_parts(power=0.5)[2].policy))
        ]
        module = Both()
        trainer = make_trainer(tmp_path, *ours, *callbacks)
        trainer.fit(module, {"a": make_parts()[1], "b": make_parts()[1]}, ckpt_path=ckpt_path)
        return module, ours

    unbroken, theirs = both()
    with pytest.raises(Killed):
        both(StopWithCheckpoint(9, tmp_path / "saved" / "x.ckpt"))
    assert len(list((tmp_path / "saved").glob("*.safetensors"))) == 2
    tail, ours = both(ckpt_path=tmp_path / "saved" / "x.ckpt")
    assert tail.trained == unbroken.trained[9 * 8 :]
    for mine, its in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine.policy.weights, its.policy.weights)
    assert (ours[0].policy.weights != ours[1].policy.weights).any()


def test_a_path_that_is_no_local_file_takes_all_state(unbroken, tmp_path):
    stopped(tmp_path, "memory://saved/x.ckpt")
    assert_resumes(unbroken, tmp_path, "memory://saved/x.ckpt", 9)


def test_without_safetensors_the_checkpoint_takes_all_state_and_training_goes_on(unbroken, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.warns(UserWarning, match="holds all state of AdaptiveSampling.*pip install safetensors"):
        run(tmp_path, SaveTwice(9, tmp_path / "saved" / "x.ckpt"))
    assert names(tmp_path / "saved") == ["x.ckpt"]
    assert_resumes(unbroken, tmp_path, tmp_path / "saved" / "x.ckpt", 9)


def test_a_second_fit_puts_no_second_io_around_the_first(tmp_path):
    _, loader, ours = make_parts()
    trainer = make_trainer(tmp_path, ours, max_epochs=1)
    trainer.fit(Bigram(), loader)
    io = trainer.strategy.checkpoint_io
    trainer.fit_loop.max_epochs = 2
    trainer.fit(Bigram(), loader)
    assert ours.num_steps == 24
    assert trainer.strategy.checkpoint_io is io
    assert type(io.checkpoint_io) is TorchCheckpointIO


@pytest.mark.parametrize("bad", [-1, float("nan")])
def test_a_bad_limit_is_refused(bad):
    with pytest.raises(ValueError, match=r"`max_megabytes_in_checkpoint` must be at least 0, got (-1|nan)"):
        AdaptiveSampling(max_megabytes_in_checkpoint=bad)
