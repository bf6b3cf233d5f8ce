"""The sampler in every loader people use: the same order, nothing replaced, nothing drawn twice."""

import lightning.pytorch as pl
import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset

import adaptive_sampling as ads
from adaptive_sampling.callbacks import AdaptiveSampling

# These trainings are too short on purpose for learned weights to count.
pytestmark = pytest.mark.filterwarnings("ignore:no learned weight can count")
SIZE = 26


class Range(Dataset):
    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return {"x": torch.tensor([index % 5]), "window_id": index}


class Counting(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 5)
        self.ids = []

    def training_step(self, batch, batch_idx):
        self.ids += batch["window_id"].tolist()
        return nn.functional.cross_entropy(self.table(batch["x"]).view(-1, 5), batch["x"].view(-1))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def make_sampler(**settings):
    return ads.AdaptiveSampler(SIZE, seed=3, block_size=8, **settings)


def expected_order(count):
    return make_sampler().draw(count).tolist()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_workers": 2},
        {"num_workers": 2, "persistent_workers": True},
        {"num_workers": 1, "multiprocessing_context": "spawn"},
        {"num_workers": 2, "prefetch_factor": 4},
    ],
    ids=str,
)
def test_data_loader_sees_the_order_for_three_epochs(settings):
    loader = DataLoader(Range(), batch_size=4, sampler=make_sampler(), **settings)
    seen = [int(i) for _ in range(3) for batch in loader for i in batch["window_id"]]
    assert seen == expected_order(3 * SIZE)
    assert len(loader) == 7


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_batch_sampler_around_it_sees_the_order(drop_last):
    batches = BatchSampler(make_sampler(), 4, drop_last)
    loader = DataLoader(Range(), batch_sampler=batches)
    seen = [batch["window_id"].tolist() for batch in loader]
    order = expected_order(SIZE)
    assert seen == [order[i : i + 4] for i in range(0, SIZE - (SIZE % 4 if drop_last else 0), 4)]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [0, 1, 3, 7, 9])
def test_stateful_data_loader_resumes_the_order(workers, stop):
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")

    def make():
        return torchdata.StatefulDataLoader(Range(), batch_size=4, sampler=make_sampler(), num_workers=workers)

    def take(loader, count):
        batches = []
        while len(batches) < count:
            for batch in loader:
                batches.append(batch["window_id"].tolist())
                if len(batches) == count:
                    return batches
        return batches

    loader = make()
    head = take(loader, stop)
    state = loader.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    tail = take(resumed, 14 - stop)
    assert [i for batch in head + tail for i in batch] == expected_order(2 * SIZE)


def make_trainer(tmp_path, callback, **settings):
    return pl.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[callback],
        **{"max_epochs": 2, **settings},
    )


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("settings", [{}, {"limit_train_batches": 3}, {"reload_dataloaders_every_n_epochs": 1}])
def test_lightning_keeps_the_sampler_and_loses_no_draw(tmp_path, workers, settings):
    sampler = make_sampler()
    sampler.lag = 8
    loader = DataLoader(Range(), batch_size=4, sampler=sampler, num_workers=workers)
    callback = AdaptiveSampling(sampler, update_every=1000)
    module = Counting()

    class Data(pl.LightningDataModule):
        def train_dataloader(self):
            return DataLoader(Range(), batch_size=4, sampler=sampler, num_workers=workers)

    trainer = make_trainer(tmp_path, callback, **settings)
    trainer.fit(
        module,
        **(
            {"datamodule": Data()}
            if len(settings) and "reload" in next(iter(settings))
            else {"train_dataloaders": loader}
        ),
    )
    assert trainer.train_dataloader.sampler is sampler
    epoch = 12 if "limit_train_batches" in settings else SIZE
    assert module.ids == expected_order(2 * epoch)


def test_overfit_batches_is_refused_with_the_cure(tmp_path):
    sampler = make_sampler()
    loader = DataLoader(Range(), batch_size=4, sampler=sampler)
    module = Counting()
    trainer = make_trainer(tmp_path, AdaptiveSampling(sampler), overfit_batches=2)
    with (
        pytest.warns(UserWarning, match="overfit"),
        pytest.raises(MisconfigurationException, match=r"got SequentialSampler.*overfit_batches.*leave that out"),
    ):
        trainer.fit(module, loader)
    assert module.ids == []
