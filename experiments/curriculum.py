"""Two stages of context length whose weights carry over: `python -m experiments.curriculum`.

Half of the documents are patterns that are soon learned, half are random tokens: their losses, and so their weights,
part in the first stage. The second stage, of windows four times as long, begins with these weights.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import warnings
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from adaptive_sampling import AdaptiveSampler, TokenStore, WeightPolicy, WindowConfig, WindowDataset
from adaptive_sampling.callbacks import AdaptiveSampling
from adaptive_sampling.windows import ContextCurriculum
from experiments.gpt import SmallGPT

VOCAB_SIZE = 64
DOCUMENTS, DOCUMENT_LENGTH = 96, 1025
SHORT, LONG = 32, 128
STEPS, BATCH_SIZE = 160, 16


def write_store(path: Path) -> TokenStore:
    """Documents of even number repeat eight tokens, those of odd number are random."""
    rng = np.random.default_rng(0)
    documents = [
        rng.integers(1, VOCAB_SIZE, DOCUMENT_LENGTH)
        if number % 2
        else np.tile(rng.integers(1, 9, 8), 129)[:DOCUMENT_LENGTH]
        for number in range(DOCUMENTS)
    ]
    return TokenStore.write(path, documents, vocab_size=VOCAB_SIZE, eos_id=0)


def by_document(dataset: WindowDataset, weights: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean weight of the windows of each document, float64 [documents]."""
    documents = dataset.documents()
    return np.bincount(documents, weights=weights) / np.bincount(documents)


def train(model: SmallGPT, dataset: WindowDataset, steps: int, priors: NDArray[np.float64] | None) -> AdaptiveSampler:
    """Train on windows of one length; the sampler that was used."""
    sampler = AdaptiveSampler(dataset, seed=0)
    policy = WeightPolicy(priors=priors, warmup=0, cooldown=0, power=2.0)
    trainer = pl.Trainer(
        max_steps=steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[AdaptiveSampling(sampler, policy, update_every=10)],
    )
    trainer.fit(model, DataLoader(dataset, batch_size=BATCH_SIZE, sampler=sampler))
    return sampler


def run(folder: Path) -> dict[str, float]:
    """Train both stages.

    Returns:
        Mean weight of random over patterned documents: at the end of the first stage, as carried, of what the second
        stage drew, and at its end; and the correlation over documents of the first two.
    """
    pl.seed_everything(0, verbose=False)
    store = write_store(folder / "store")
    model = SmallGPT(VOCAB_SIZE, LONG, d_model=32, layers=2, max_steps=STEPS)
    stages = [(0.75, SHORT, None), (0.25, LONG, None)]
    short, long = ContextCurriculum(store, WindowConfig(SHORT), stages, model=model)
    first = train(model, short.dataset, short.max_steps(STEPS), None)
    learned = by_document(short.dataset, first.weights)
    carried = ContextCurriculum(store, WindowConfig(SHORT), stages).carry(short, first.weights)
    moved = by_document(long.dataset, carried)
    drawn = AdaptiveSampler(long.dataset, seed=1)
    drawn.set_weights(carried)
    counts = np.bincount(long.dataset.documents(drawn.draw(4 * len(long.dataset))), minlength=DOCUMENTS)
    second = train(model, long.dataset, long.max_steps(STEPS) - short.max_steps(STEPS), carried)
    ended = by_document(long.dataset, second.weights)

    def ratio(values: NDArray[np.float64]) -> float:
        return float(values[1::2].mean() / values[::2].mean())

    return {
        "learned in stage 1": ratio(learned),
        "carried to stage 2": ratio(moved),
        "draws of stage 2": ratio(counts.astype(np.float64)),
        "at the end of stage 2": ratio(ended),
        "correlation over documents": float(np.corrcoef(learned, moved)[0, 1]),
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run(Path(folder))
    print("mean weight of documents of random tokens over that of patterns:")
    for name, value in found.items():
        print(f"  {name:<28}{value:8.3f}")


if __name__ == "__main__":
    main()
