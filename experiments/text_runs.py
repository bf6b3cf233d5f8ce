"""What the runs of a comparison on text share: windows, features, held-out sets and the policy, cached on disk."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Subset

import adaptive_sampling as ads
from adaptive_sampling._files import atomic_writer
from adaptive_sampling.ab import TrainingData
from adaptive_sampling.neighbors import HashedFeaturizer, cluster, near_duplicates_of

SEQ_LEN = 128
BATCH_SIZE = 8
NEAR_COPY = 0.85
NUM_CLUSTERS = 64
HELD_OUT_WINDOWS = 240
"""Windows of each source in the held-out set, at most."""


def windows(store: Path) -> ads.WindowDataset:
    """One stream of packed windows per source."""
    return ads.WindowDataset(ads.TokenStore.open(store), ads.WindowConfig(seq_len=SEQ_LEN, pack="concat"))


def analyse(train: Path, held_out: Path, cache: Path) -> None:
    """Scarcity, clusters, and the held-out windows without near-copies in the training text; kept in `cache`."""
    if (cache / "held_out.npy").exists():
        return
    cache.mkdir(parents=True, exist_ok=True)
    training, validation = windows(train), windows(held_out)
    featurizer = HashedFeaturizer().fit(training)
    features = featurizer.transform(training)
    _save(cache / "clusters.npy", cluster(features, NUM_CLUSTERS))
    _save(cache / "scarcity.npy", ads.scarcity_scores(features, groups=training.documents(), threshold=NEAR_COPY))
    copies = near_duplicates_of(features, featurizer.transform(validation), NEAR_COPY)
    # Written last: its presence says that all three are there.
    _save(cache / "held_out.npy", np.flatnonzero(~copies))


def _save(path: Path, values: NDArray[Any]) -> None:
    with atomic_writer(path) as file:
        np.save(file, values, allow_pickle=False)


def make_policy(cache: Path) -> ads.WeightPolicy:
    """The default policy, with near-copy scarcity and clusters as groups."""
    return ads.WeightPolicy(groups=np.load(cache / "clusters.npy"), scarcity=np.load(cache / "scarcity.npy"))


def make_data(train: Path, held_out: Path, cache: Path) -> TrainingData:
    """Training windows, and per source evenly spaced held-out windows that repeat nothing of the training text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        training, validation = windows(train), windows(held_out)
    clean = np.load(cache / "held_out.npy")
    sources = validation.sources(clean)
    loaders = {}
    for index, name in enumerate(validation.store.source_names):
        own = clean[sources == index]
        chosen = own[np.unique(np.linspace(0, len(own) - 1, HELD_OUT_WINDOWS).astype(np.int64))] if len(own) else own
        if len(chosen):
            loaders[name] = DataLoader(Subset(validation, chosen.tolist()), batch_size=32)
    return TrainingData(training, loaders, BATCH_SIZE)
