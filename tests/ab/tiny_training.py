"""A training of a second; in a module of its own, so that other processes can import it."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from adaptive_sampling.ab import TrainingData

VOCABULARY = 11


class Windows(Dataset[dict[str, Any]]):
    """Counting sequences with some noise; every third one runs backwards."""

    def __init__(self, count: int, first: int = 0) -> None:
        generator = torch.Generator().manual_seed(first)
        step = torch.where(torch.arange(count) % 3 == 0, -1, 1)[:, None]
        start = torch.randint(0, VOCABULARY, (count, 1), generator=generator)
        self.tokens = (start + step * torch.arange(9)) % VOCABULARY
        self.fingerprint = f"windows {count} {first}"

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"input_ids": self.tokens[i, :-1], "labels": self.tokens[i, 1:], "window_id": torch.tensor(int(i))}


class Bigram(pl.LightningModule):
    """One table of logits."""

    def __init__(self, lr: float = 0.3) -> None:
        super().__init__()
        self.lr = lr
        self.table = torch.nn.Embedding(VOCABULARY, VOCABULARY)
        self.dropout = torch.nn.Dropout(0.1)

    def loss(self, batch: dict[str, Any]) -> Tensor:
        logits = self.dropout(self.table(batch["input_ids"]))
        return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        self.log("val_loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def tiny_data() -> TrainingData:
    validation = {"one": DataLoader(Windows(9, 1), batch_size=4), "two": DataLoader(Windows(6, 2), batch_size=4)}
    return TrainingData(Windows(40), validation, 4, find_near_copies=False)


def other_data() -> TrainingData:
    data = tiny_data()
    return TrainingData(Windows(44), data.validation, 4, find_near_copies=False)


class Diverging(Bigram):
    """Its loss is NaN from step 20 on."""

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        return loss * float("nan") if self.global_step >= 20 else loss


class Forgetful(Bigram):
    """Takes a held-out loss and returns nothing; counts its training steps."""

    trained = 0

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        type(self).trained += 1
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> Any:
        self.loss(batch)


class Breaking(Bigram):
    """Raises in its tenth step."""

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        if self.global_step == 10:
            raise RuntimeError("step ten is cursed")
        return super().training_step(batch, batch_idx)
