"""A user's module and dataset that know nothing of the package."""

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

VOCAB = 11


class Windows(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        tokens = torch.randint(0, VOCAB, (7,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens[:-1], "labels": tokens[1:], "window_id": index}

    def read(self, ids):
        rows = [self[int(i)] for i in ids]
        return {key: torch.stack([row[key] for row in rows]).numpy() for key in ("input_ids", "labels")}


class Bigram(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCAB, VOCAB)
        self.trained = []

    def forward(self, input_ids):
        return self.table(input_ids)

    def training_step(self, batch, batch_idx):
        self.trained += batch["window_id"].tolist()
        return F.cross_entropy(self(batch["input_ids"]).view(-1, VOCAB), batch["labels"].view(-1))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
