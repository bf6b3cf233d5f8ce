"""The sampler among processes and global states: start methods, prefetching workers, random states, default devices."""

import multiprocessing
import operator
import os
import random

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from adaptive_sampling import AdaptiveSampler, TokenStore, WindowConfig, WindowDataset

SIZE = 40


class Identity(Dataset):
    def __init__(self, size=SIZE):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return index


def ids_of(loader):
    return [int(i) for batch in loader for i in batch]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_loaders_see_the_order_under_every_start_method(method):
    # A data set of torch, which worker processes can import: test modules they cannot.
    data = torch.utils.data.TensorDataset(torch.arange(SIZE))
    sampler = AdaptiveSampler(data, seed=0, block_size=8)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=1, multiprocessing_context=method)
    seen = [int(i) for (batch,) in loader for i in batch]
    assert seen == AdaptiveSampler(SIZE, seed=0, block_size=8).draw(SIZE).tolist()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_sampler_sent_to_another_process_goes_on_there(method):
    sampler = AdaptiveSampler(SIZE, seed=0, block_size=8)
    sampler.draw(11)
    with multiprocessing.get_context(method).Pool(1) as pool:
        there = pool.apply(operator.methodcaller("draw", 50), (sampler,))
    np.testing.assert_array_equal(there, sampler.draw(50))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_weights_set_in_mid_epoch_count_behind_what_was_prefetched(workers):
    sampler = AdaptiveSampler(SIZE, num_draws=160, block_size=4, seed=0)
    loader = DataLoader(Identity(), batch_size=4, sampler=sampler, num_workers=workers)
    only = np.zeros(SIZE)
    only[7] = 1
    batches = []
    for number, batch in enumerate(loader):
        batches.append(batch.tolist())
        if number == 5:
            sampler.set_weights(only)
    # Two batches per worker are on their way.
    first = 6 + 2 * workers
    assert all(batch == [7] * 4 for batch in batches[first:])
    assert len(batches) == 40
    # What was drawn before the change is handed out as it was: no batch is lost or drawn twice.
    before = AdaptiveSampler(SIZE, num_draws=160, block_size=4, seed=0).draw(4 * first).tolist()
    assert [i for batch in batches[:first] for i in batch] == before


def test_weights_set_between_epochs_reach_persistent_workers():
    sampler = AdaptiveSampler(SIZE, seed=0)
    loader = DataLoader(Identity(), batch_size=4, sampler=sampler, num_workers=2, persistent_workers=True)
    for window in (3, 11, 29):
        weights = np.zeros(SIZE)
        weights[[window, 0]] = 1
        sampler.set_weights(weights)
        assert np.bincount(ids_of(loader), minlength=SIZE)[[window, 0]].tolist() == [SIZE // 2, SIZE // 2]


@pytest.mark.parametrize("draws", ["systematic", "multinomial"])
def test_no_global_random_state_is_touched_by_anything(draws):
    torch.manual_seed(5)

    def states():
        return (
            torch.get_rng_state().tolist(),
            [np.asarray(part).tolist() for part in np.random.get_state()],  # noqa: NPY002
            random.getstate(),
        )

    before = states()
    sampler = AdaptiveSampler(100, draws=draws)
    list(sampler)
    sampler.set_weights(np.arange(100))
    sampler.update_weights([0], [5.0])
    sampler.draw(250)
    sampler.set_epoch(9)
    sampler.load_state_dict(sampler.state_dict())
    list(sampler)
    assert states() == before


def test_seeds_that_users_set_per_rank_do_not_change_the_order():
    expected = AdaptiveSampler(SIZE, seed=3).draw(2 * SIZE).tolist()
    ranks = []
    for rank in range(2):
        torch.manual_seed(1000 + rank)
        np.random.seed(rank)  # noqa: NPY002
        random.seed(rank)
        sampler = AdaptiveSampler(SIZE, seed=3, rank=rank, world_size=2)
        ranks.append([*sampler, *sampler])
    assert [i for pair in zip(*ranks, strict=True) for i in pair] == expected


@pytest.mark.parametrize("seed", [0, None])
def test_a_default_device_without_data_changes_nothing(seed):
    torch.manual_seed(2)
    expected = AdaptiveSampler(SIZE, seed=seed).draw(3 * SIZE)
    torch.set_default_device("meta")
    try:
        sampler = AdaptiveSampler(SIZE, seed=seed)
        sampler.track_seen()
        head = sampler.draw(30)
        state = sampler.state_dict()
        resumed = AdaptiveSampler(SIZE)
        resumed.load_state_dict(state)
        resumed.schedule_weights(10_000, [1], [2.0])
        again = AdaptiveSampler(SIZE)
        again.load_state_dict(resumed.state_dict())
        tail = again.draw(3 * SIZE - 30)
    finally:
        torch.set_default_device(None)
    np.testing.assert_array_equal(np.concatenate([head, tail]), expected)
    assert state["stream"]["buffer"].device.type == "cpu"


@pytest.mark.parametrize("num_draws", [12, SIZE, 100])
def test_lengths_agree_when_draws_are_not_windows(tmp_path, num_draws):
    for world in (1, 2):
        sampler = AdaptiveSampler(SIZE, num_draws=num_draws, seed=0, rank=0, world_size=world)
        loader = DataLoader(Identity(), batch_size=4, sampler=sampler)
        assert len(sampler) == sampler.num_samples == num_draws // world
        assert len(loader) == -(-num_draws // world // 4) == len(list(loader))

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def training_step(self, batch, batch_idx):
            return self.weight * batch.float().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(
        Module(), DataLoader(Identity(), batch_size=4, sampler=AdaptiveSampler(SIZE, num_draws=num_draws, seed=0))
    )
    assert trainer.num_training_batches == trainer.global_step == num_draws // 4


def private_bytes():
    """Memory of this process that it shares with nobody, as forked workers begin with nearly none."""
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Private_"))


class Measured(Dataset):
    """Reads windows, and says at every 64th how much memory of its own the worker has; else 0."""

    def __init__(self, windows):
        self.windows, self.read = windows, 0

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, index):
        assert int(self.windows[index]["window_id"]) == index
        self.read += 1
        return torch.utils.data.get_worker_info().id, private_bytes() if self.read % 64 == 1 else 0


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")
@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="memory of a process is read from /proc")
@pytest.mark.parametrize(
    ("documents", "workers", "num_draws"),
    [(2_000, 2, 2_000), pytest.param(50_000, 4, 40_000, marks=pytest.mark.soak)],
    ids=["200-thousand-windows", "5-million-windows"],
)
def test_memory_of_forked_workers_does_not_grow_while_they_read(tmp_path, documents, workers, num_draws):
    tokens = np.arange(108, dtype=np.int64) % 50 + 1
    store = TokenStore.write(tmp_path, [tokens] * documents, vocab_size=64, eos_id=0, keys=map(str, range(documents)))
    windows = WindowDataset(store, WindowConfig(8, 1))
    assert len(windows) == 101 * documents
    sampler = AdaptiveSampler(windows, num_draws=num_draws, seed=0)
    loader = DataLoader(
        Measured(windows), batch_size=16, sampler=sampler, num_workers=workers, multiprocessing_context="fork"
    )
    seen = [[] for _ in range(workers)]
    for ids, sizes in loader:
        for worker, size in zip(ids.tolist(), sizes.tolist(), strict=True):
            if size:
                seen[worker].append(size)
    for sizes in seen:
        assert len(sizes) > 10
        # Pages of the store are shared; a list of objects per window would dirty 50 MB and more in the long form.
        assert max(sizes) - sizes[0] < 25e6
