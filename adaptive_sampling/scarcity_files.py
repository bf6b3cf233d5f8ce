"""Scarcity of the windows of a token store, as an array on disk and a page to look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_sampling._files import atomic_writer, make_parent
from adaptive_sampling.corpus.tokenize import load_tokenizer
from adaptive_sampling.neighbors import NearCopies, find_near_copies, hashed_features, open_features
from adaptive_sampling.neighbors.feature_file import Progress, check_new_features
from adaptive_sampling.neighbors.indexes import IndexKind
from adaptive_sampling.neighbors.report import Describe, write_report
from adaptive_sampling.weights import scarcity_scores
from adaptive_sampling.weights.scarcity import ScarcityMeasure, density_from_sets
from adaptive_sampling.windows import WindowDataset


@dataclass(frozen=True)
class ScarcityFiles:
    """What was written, and what it says."""

    out: Path
    report: Path
    copies: NearCopies


def write_scarcity(
    dataset: WindowDataset,
    out: str | Path,
    *,
    report: str | Path | None = None,
    features: str | Path | None = None,
    save_features: str | Path | None = None,
    tokenizer: str | Path | None = None,
    measure: ScarcityMeasure = "density",
    num_neighbors: int = 20,
    threshold: float | None = None,
    index: IndexKind = "auto",
    seed: int = 0,
    progress: Progress | None = None,
) -> ScarcityFiles:
    """Write float64 `[N]` scarcity to `out` and an HTML report beside it.

    Windows of one document are never neighbours.

    Args:
        dataset: the windows.
        out: `.npy` file; replaced if it exists.
        report: HTML file; default: `out` with the ending .html.
        features: `.npy` file of float32 `[N, dim]` to use; default: hashed features.
        save_features: `.npy` file to keep hashed features in; it goes on where it was interrupted.
        tokenizer: tokenizer.json to show text with; default: the one beside the store, else token ids are shown.
        measure: see `scarcity_scores`, as all that follows.

    Raises:
        ValueError: if there is no window, `out` does not end with .npy, or features are of another length.
    """
    path = Path(out)
    page = path.with_suffix(".html") if report is None else Path(report)
    check_files(out, features=features, save_features=save_features)
    if len(dataset) == 0:
        raise ValueError("the store must hold at least one window, got none. Use a smaller --seq-len, or --tail pad.")
    for target in (path, page):  # before work that would be lost
        make_parent(target)
    describe = _describer(dataset, _tokenizer_of(dataset, tokenizer))
    if features is None:
        vectors: Any = hashed_features(dataset, seed=seed, out=save_features, progress=progress)
    else:
        vectors = open_features(features)
        if len(vectors) != len(dataset):
            raise ValueError(
                f"`features` must hold one row per window ({len(dataset)}), got {len(vectors)}. "
                "Compute them of the same store with the same window settings."
            )
    groups = dataset.documents()
    copies = find_near_copies(vectors, groups, threshold=threshold, num_neighbors=num_neighbors, index=index, seed=seed)
    if measure == "density":
        scarcity = density_from_sets(copies.sets)
    else:
        scarcity = scarcity_scores(vectors, num_neighbors, measure=measure, groups=groups, index=index, seed=seed)
    with atomic_writer(path) as file:
        np.save(file, scarcity, allow_pickle=False)
    write_report(copies, scarcity, describe, page, title=f"Scarcity of {dataset.store.path}, {measure}")
    return ScarcityFiles(path, page, copies)


def check_files(
    out: str | Path, *, features: str | Path | None = None, save_features: str | Path | None = None
) -> None:
    """Refuse files that `write_scarcity` cannot use, as far as can be seen without the windows.

    Raises:
        ValueError: if `out` or `save_features` does not end with .npy, or `features` holds none.
        FileExistsError: if `save_features` exists.
        OSError: if `features` cannot be read.
    """
    if Path(out).suffix != ".npy":
        raise ValueError(f"`out` must end with .npy, got {str(out)!r}.")
    if features is not None and save_features is not None:
        raise ValueError("`save_features` must be left out beside `features`, got both. They are in a file already.")
    if features is not None:
        open_features(features)
    if save_features is not None:
        check_new_features(Path(save_features), "save_features")


def _tokenizer_of(dataset: WindowDataset, given: str | Path | None) -> Any:
    if given is not None:
        return load_tokenizer(given)
    beside = [folder / "tokenizer.json" for folder in (dataset.store.path, dataset.store.path.parent)]
    return next((load_tokenizer(path) for path in beside if path.exists()), None)


def _describer(dataset: WindowDataset, tokenizer: Any) -> Describe:
    def describe(row: int) -> tuple[str, str]:
        batch, trace = dataset.read([row]), dataset.trace(row, manifest=False)
        real = batch["input_ids"][0][: max(1, int(np.count_nonzero(batch["labels"][0] != -100)))].tolist()
        text = " ".join(map(str, real)) if tokenizer is None else tokenizer.decode(real, skip_special_tokens=False)
        return f"{trace['source']}, document {trace['document']}, token {trace['start_in_document']}", text

    return describe
