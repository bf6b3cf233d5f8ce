"""Targets that are shared out to windows are those windows' own, or a question is asked."""

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F
from lightning.fabric.utilities.exceptions import MisconfigurationException
from tiny import make_trainer
from torch.utils.data import DataLoader, Dataset

import adaptive_sampling as ads
from adaptive_sampling.callbacks import AdaptiveSampling
from adaptive_sampling.callbacks._alignment import in_other_rows

VOCAB, WIDTH = 500, 12


class Tokens(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        tokens = torch.randint(0, VOCAB, (WIDTH + 1,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens[:-1], "labels": tokens[1:], "window_id": index}


def batch_of(count=8):
    items = [Tokens()[index] for index in range(count)]
    return {name: torch.stack([item[name] for item in items]) for name in ("input_ids", "labels")}


def asked(targets, batch, valid=None, count=8):
    return in_other_rows(targets, torch.ones_like(targets, dtype=torch.bool) if valid is None else valid, count, batch)


def test_targets_of_each_windows_own_are_let_pass():
    batch = batch_of()
    labels = batch["labels"]
    ignored = torch.where(torch.arange(WIDTH) % 3 == 0, -100, labels)
    assert not asked(labels.flatten(), batch)
    assert not asked(labels[:, 4:].flatten(), batch)
    assert not asked(batch["input_ids"][:, 1:].flatten(), batch)
    assert not asked(ignored.flatten(), batch, (ignored != -100).flatten())
    shifted = F.pad(batch["input_ids"][:, 1:], (0, 1), value=-100)
    assert not asked(shifted.flatten(), batch, (shifted != -100).flatten())


def test_other_targets_are_let_pass():
    batch = batch_of()
    generator = torch.Generator().manual_seed(9)
    assert not asked(torch.randint(0, VOCAB, (96,), generator=generator), batch)
    assert not asked(torch.randint(0, 3, (8,), generator=generator), batch)  # one per window
    assert not asked(torch.rand(96, VOCAB), batch, torch.ones(96) > 0)
    # Of few kinds, tokens are found in any order by chance.
    few = {"labels": torch.randint(0, 3, (8, 64), generator=generator)}
    assert not asked(torch.randint(0, 3, (64,), generator=generator), few)
    runs = {"labels": (torch.arange(9) % 3)[:, None].expand(9, 64)}
    next_ones = torch.tensor([1, 2, 0, 1, 2, 0, 1, 2, 2]).repeat_interleave(2)
    assert not asked(next_ones, runs, count=9)


@pytest.mark.parametrize("kind", [dict, tuple, list])
def test_a_selection_over_all_windows_and_windows_in_the_second_dimension_are_found(kind):
    batch = batch_of()
    labels = batch["labels"]
    given = batch if kind is dict else kind(batch.values())
    chosen = torch.randperm(96, generator=torch.Generator().manual_seed(0))[:48].sort().values
    assert asked(labels.flatten()[chosen], given)
    assert asked(labels.T.flatten(), given)


class Transposed(pl.LightningModule):
    """Windows lie in the second dimension, as recurrent networks have it."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(VOCAB, VOCAB)

    def training_step(self, batch, batch_idx):
        logits = self.table(batch["input_ids"].T)
        return F.cross_entropy(logits.flatten(0, 1), batch["labels"].T.flatten())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_a_training_that_would_credit_other_windows_is_refused_at_its_first_batch(tmp_path):
    sampler = ads.AdaptiveSampler(32, seed=0)
    sampler.lag = 2
    callback = AdaptiveSampling(sampler, ads.WeightPolicy(warmup=0, cooldown=0), update_every=2)
    loader = DataLoader(Tokens(), batch_size=8, sampler=sampler)
    with pytest.raises(MisconfigurationException, match=r"in another order.*`ignore_index`.*per_sample_loss"):
        make_trainer(tmp_path, callback, max_epochs=3).fit(Transposed(), loader)
    assert callback.num_observations == 0
