"""Image classification: `python -m experiments.examples.images`. Pictures are made up: nothing is downloaded."""

from __future__ import annotations

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import adaptive_sampling as ads
from adaptive_sampling.callbacks import AdaptiveSampling


class Classifier(L.LightningModule):
    """A small convolutional network; the only change is the third value of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, 4))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """The loss; ids are the callback's."""
        images, labels, _ids = batch
        return F.cross_entropy(self.net(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def make_images(count: int = 512) -> TensorDataset:
    """A bright quarter names the class; the last sixteenth of the pictures is dim and noisy, and so hard to tell."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (count,), generator=generator)
    images = torch.randn(count, 1, 16, 16, generator=generator)
    for index, label in enumerate(labels.tolist()):
        row, column = 8 * (label // 2), 8 * (label % 2)
        images[index, 0, row : row + 8, column : column + 8] += 0.3 if index >= count - count // 16 else 2.0
    return TensorDataset(images, labels)


def main(max_epochs: int = 8) -> AdaptiveSampling:
    """Train, and print how much more often than others the hard pictures are drawn by now."""
    dataset = ads.with_ids(make_images())
    sampler = ads.AdaptiveSampler(dataset, seed=0)
    policy = ads.WeightPolicy(warmup=0.1, cooldown=0.0)
    callback = AdaptiveSampling(sampler, policy, update_every=8, id_key=2)
    trainer = L.Trainer(
        max_epochs=max_epochs,
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), DataLoader(dataset, batch_size=32, sampler=sampler))
    hard = sampler.weights[-len(dataset) // 16 :].mean()  # type: ignore[arg-type]
    print(f"hard pictures are drawn {hard / sampler.weights.mean():.1f} times as often as the average one")
    return callback


if __name__ == "__main__":
    main()
