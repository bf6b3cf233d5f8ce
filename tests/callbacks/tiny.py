"""A tiny training: windows that are a function of their id, a module that notes what it trained on."""

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

import adaptive_sampling as ads
from adaptive_sampling.callbacks import AdaptiveSampling

NUM_WINDOWS, SEQ_LEN, VOCAB = 48, 6, 11


class Windows(Dataset):
    """Window i is a fixed function of i; windows from 40 on are hard, since their labels are noise."""

    def __init__(self, size=NUM_WINDOWS, with_id=True):
        self.size, self.with_id = size, with_id

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        inputs = torch.randint(0, VOCAB, (SEQ_LEN,), generator=generator)
        labels = torch.randint(0, VOCAB, (SEQ_LEN,), generator=generator) if index >= 40 else (inputs + 1) % VOCAB
        item = {"input_ids": inputs, "labels": labels}
        return {**item, "window_id": index} if self.with_id else item


class Bigram(pl.LightningModule):
    """A user's module: knows nothing of the sampler. It notes the ids and losses it trained on, for the tests."""

    def __init__(self, kind="tensor"):
        super().__init__()
        self.table = nn.Embedding(VOCAB, VOCAB)
        self.kind = kind
        self.trained, self.losses = [], []
        self.automatic_optimization = kind != "manual"

    def training_step(self, batch, batch_idx):
        logits = self.table(batch["input_ids"])
        loss = F.cross_entropy(logits.view(-1, VOCAB), batch["labels"].view(-1))
        with torch.no_grad():
            rows = -logits.log_softmax(-1).gather(-1, batch["labels"][..., None])[..., 0]
        if "window_id" in batch:
            self.trained += batch["window_id"].tolist()
        self.losses += rows.mean(1).tolist()
        if self.kind == "hand-written":
            return rows.mean() + 0 * self.table.weight.sum()
        if self.kind == "manual":
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            return None
        return {"loss": loss, "per_sample_loss": rows.mean(1)} if self.kind == "dict" else loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


class HandWritten(Bigram):
    def __init__(self, way=None):
        super().__init__()
        self.way = way

    def training_step(self, batch, batch_idx):
        log_p = self.table(batch["input_ids"]).log_softmax(-1)
        rows = -log_p.gather(-1, batch["labels"][..., None])[..., 0].mean(1)
        self.trained += batch["window_id"].tolist()
        self.losses += rows.tolist()
        if self.way == "record":
            ads.record(rows)
        return {"loss": rows.mean(), "per_sample_loss": rows} if self.way == "dict" else rows.mean()


def make_trainer(tmp_path, *callbacks, **settings):
    settings = {
        "max_epochs": 2,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        **settings,
    }
    return pl.Trainer(accelerator="cpu", devices=1, default_root_dir=tmp_path, callbacks=list(callbacks), **settings)


def make_parts(update_every=2, workers=0, batch_size=4, lag=2, **policy):
    dataset = Windows()
    sampler = ads.AdaptiveSampler(dataset, seed=0, block_size=4)
    sampler.lag = max(lag, 2 * workers + 2)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler, num_workers=workers)
    callback = AdaptiveSampling(
        sampler, ads.WeightPolicy(**{"warmup": 0, "cooldown": 0, **policy}), update_every=update_every
    )
    return sampler, loader, callback


class Killed(Exception):
    pass


class StopWithCheckpoint(pl.Callback):
    def __init__(self, step, path):
        self.step, self.path = step, path

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)
            raise Killed
