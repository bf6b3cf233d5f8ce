"""Weighted draws of training windows that follow their losses and their scarcity.

A window's weight is one number: the policy computes it at a step boundary, the sampler holds it and turns it into
draws that are as even as a shuffle. Importing this package loads neither Lightning nor Faiss; names are resolved on
first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "AdaptiveSampler": "sampling",
    "StateMismatchError": "errors",
    "StoreError": "errors",
    "TokenStore": "corpus",
    "WeightPolicy": "weights",
    "WindowConfig": "windows",
    "WindowDataset": "windows",
    "hashed_features": "neighbors",
    "record": "weights",
    "scarcity_scores": "weights",
    "transfer_weights": "windows",
    "weighted_mean": "weights",
    "with_ids": "windows",
}
__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from adaptive_sampling.corpus import TokenStore as TokenStore
    from adaptive_sampling.errors import StateMismatchError as StateMismatchError
    from adaptive_sampling.errors import StoreError as StoreError
    from adaptive_sampling.neighbors import hashed_features as hashed_features
    from adaptive_sampling.sampling import AdaptiveSampler as AdaptiveSampler
    from adaptive_sampling.weights import WeightPolicy as WeightPolicy
    from adaptive_sampling.weights import record as record
    from adaptive_sampling.weights import scarcity_scores as scarcity_scores
    from adaptive_sampling.weights import weighted_mean as weighted_mean
    from adaptive_sampling.windows import WindowConfig as WindowConfig
    from adaptive_sampling.windows import WindowDataset as WindowDataset
    from adaptive_sampling.windows import transfer_weights as transfer_weights
    from adaptive_sampling.windows import with_ids as with_ids


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name in {"callbacks", "ab", "corpus", "neighbors", "sampling", "testing", "weights", "windows"}:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
