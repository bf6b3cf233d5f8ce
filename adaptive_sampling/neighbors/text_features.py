"""Features from a sentence encoder of the package `sentence-transformers` (extra `encoder`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_sampling.errors import MissingPackageError
from adaptive_sampling.neighbors._checks import positive_integer
from adaptive_sampling.neighbors.feature_file import Float32, Progress, fill_features


def text_features(
    texts: Sequence[str] | Callable[[int], str],
    model: Any = "all-MiniLM-L6-v2",
    *,
    num_texts: int | None = None,
    batch_size: int = 32,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Float32:
    """What a sentence encoder makes of each text.

    Args:
        texts: the texts; or i → text i, with `num_texts`, so that not all need to be in memory.
        model: a `sentence_transformers.SentenceTransformer`, or the name or folder of one.
        num_texts: N, only where `texts` is a function.
        batch_size: texts at a time.
        out: `.npy` file to write; it goes on where it was interrupted, see `fill_features`.
        progress: called with ("features", rows done, N).

    Returns:
        float32 `[N, dim]`; with `out`, a memory map.

    Raises:
        MissingPackageError: if `sentence-transformers` is not installed and `model` is a name.
        ValueError: if `num_texts` is missing or out of place.
    """
    size = positive_integer("batch_size", batch_size)
    if callable(texts) != (num_texts is not None):
        raise ValueError(f"`num_texts` must be given where `texts` is a function, and only there, got {num_texts!r}.")
    encoder = _loaded(model) if isinstance(model, (str, Path)) else model

    def encoded(some: list[str]) -> Float32:
        vectors = encoder.encode(some, batch_size=size, show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(vectors, dtype=np.float32)

    def compute(first: int, last: int) -> Float32:
        return encoded([texts(i) for i in range(first, last)] if callable(texts) else list(texts[first:last]))

    width = encoded([""]).shape[1]

    count = len(texts) if not callable(texts) else int(num_texts or 0)
    return fill_features(
        compute,
        count,
        width,
        batch_size=size,
        settings={"features": "text", "model": str(model) if isinstance(model, (str, Path)) else type(model).__name__},
        out=out,
        progress=progress,
    )


def _loaded(model: str | Path) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] != "sentence_transformers":
            raise
        raise MissingPackageError(
            "`sentence-transformers` must be installed for text features, got no such module. "
            "Install it with: pip install sentence-transformers, or all of its kind: "
            "pip install 'lightning-adaptive-sampling[encoder]'"
        ) from None
    return SentenceTransformer(str(model))
