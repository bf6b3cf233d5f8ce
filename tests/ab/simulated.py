"""A learner of a few parameters that takes a millisecond per step: a table of how often each token follows another."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from adaptive_sampling.ab import TrainingData
from adaptive_sampling.weights import WeightPolicy

VOCABULARY, LENGTH = 12, 16
WINDOWS, SOUP = 300, 3


def chain(count: int, seed: int) -> np.ndarray:
    """Windows of a Markov chain whose transitions are the same for all seeds."""
    table = np.random.default_rng(0).dirichlet(np.full(VOCABULARY, 0.15), VOCABULARY).cumsum(axis=1)
    rng = np.random.default_rng(seed)
    tokens = np.empty((count, LENGTH + 1), np.int64)
    tokens[:, 0] = rng.integers(0, VOCABULARY, count)
    for k in range(LENGTH):
        drawn = rng.random(count)[:, None] > table[tokens[:, k]]
        tokens[:, k + 1] = np.minimum(drawn.sum(axis=1), VOCABULARY - 1)
    return tokens


class Chain(Dataset[dict[str, Any]]):
    def __init__(self, tokens: np.ndarray) -> None:
        self.tokens = torch.from_numpy(tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"input_ids": self.tokens[i, :-1], "labels": self.tokens[i, 1:], "window_id": int(i)}

    def __getitems__(self, ids: list[int]) -> list[dict[str, Any]]:
        return [self[i] for i in ids]


def data() -> TrainingData:
    """Windows of the chain, and at the end a few of random tokens that a shuffle hardly meets."""
    soup = np.random.default_rng(9).integers(0, VOCABULARY, (SOUP, LENGTH + 1))
    train = Chain(np.concatenate([chain(WINDOWS, 1), soup]))
    held_out = {"held-out": DataLoader(Chain(chain(200, 2)), batch_size=200)}
    return TrainingData(train, held_out, 4, find_near_copies=False)


class Table(pl.LightningModule):
    """Logits of the next token given this one."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = torch.nn.Embedding(VOCABULARY, VOCABULARY)
        torch.nn.init.normal_(self.logits.weight, std=0.1)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        return F.cross_entropy(self.logits(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten())

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        return self.training_step(batch, batch_idx)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.05)


def soup_policy() -> WeightPolicy:
    """A tenth of the draws go to the windows of random tokens, whatever the losses."""
    priors = np.ones(WINDOWS + SOUP)
    priors[WINDOWS:] = WINDOWS / SOUP / 9.0
    return WeightPolicy(power=0.0, priors=priors, cap=100.0, floor=0.0)
