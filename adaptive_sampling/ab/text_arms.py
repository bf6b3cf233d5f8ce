"""Policies of arms that a configuration names by kind, with scarcity and groups found in the text itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._arrays import open_array
from adaptive_sampling._files import atomic_writer
from adaptive_sampling.ab._lock import folder_lock
from adaptive_sampling.ab.arms import TrainingData
from adaptive_sampling.ab.fingerprint import dataset_settings, digest
from adaptive_sampling.ab.held_out import readable
from adaptive_sampling.neighbors import HashedFeaturizer, cluster
from adaptive_sampling.weights import WeightPolicy, scarcity_scores
from adaptive_sampling.windows import WindowDataset, recurrence_prior

NEAR_COPIES = "near-copies"
RECURRENCE, WHERE_TOKENS = "recurrence", "auto"
GROUPS = ("clusters", "sources", "documents")
NUM_CLUSTERS = 64


@dataclass(frozen=True)
class TextPolicy:
    """Makes a `WeightPolicy` of some settings, with arrays read from files; can be sent to other processes.

    Attributes:
        settings: arguments of `WeightPolicy` other than arrays.
        scarcity: file of scarcity per window, None for none.
        groups: file of groups, None for none.
        priors: file of priors, None for none.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    scarcity: Path | None = None
    groups: Path | None = None
    priors: Path | None = None

    def __call__(self) -> WeightPolicy:
        """A new policy."""
        return WeightPolicy(**{**self.settings, **self._arrays()})

    def check_length(self, num_windows: int) -> None:
        """Refuse files of another number of windows.

        Raises:
            ValueError: naming the file.
        """
        for name, array in self._arrays().items():
            if len(array) != num_windows:
                raise ValueError(
                    f"`{name}` must hold one number per window ({num_windows}), got {len(array)} in "
                    f"'{getattr(self, name)}'. Compute it of the same windows."
                )

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {name: open_array(path) for name, path in self.files.items()}

    @property
    def files(self) -> dict[str, Path]:
        """The arrays that it has, by the argument of `WeightPolicy` that they are."""
        files = {"scarcity": self.scarcity, "groups": self.groups, "priors": self.priors}
        return {name: path for name, path in files.items() if path is not None}


class TextAnalysis:
    """Scarcity and groups of the training windows, computed once per dataset and kept as files.

    Args:
        data: whose dataset is read.
        folder: for the files; their names hold a digest of the dataset.
    """

    def __init__(self, data: TrainingData, folder: Path) -> None:
        self._data = data
        self._folder = folder
        self._key = digest(dataset_settings(data.dataset))
        self._features: NDArray[np.float32] | None = None

    def scarcity(self, threshold: float | None = None) -> Path:
        """File of the scarcity by near-copies, float64 `[N]`.

        Args:
            threshold: similarity from which windows are near-copies; None: read from the data.

        Raises:
            ValueError: if the windows hold no tokens.
        """
        name = "scarcity" if threshold is None else f"scarcity-above-{threshold!r}"
        return self._kept(name, lambda: scarcity_scores(self._feats(), groups=self._documents(), threshold=threshold))

    def groups(self, kind: str, clusters: int = NUM_CLUSTERS) -> Path:
        """File of the groups, int64 `[N]`: "clusters", "sources" or "documents".

        Args:
            kind: what the groups are.
            clusters: number of clusters, at most one per window.

        Raises:
            ValueError: if the dataset does not know them, or its windows hold no tokens.
        """
        if kind == "clusters":
            name = kind if clusters == NUM_CLUSTERS else f"{clusters}-{kind}"
            return self._kept(name, lambda: cluster(self._feats(), min(clusters, len(self._data.dataset))))
        method = getattr(self._data.dataset, kind, None)
        if not callable(method):
            raise ValueError(
                f"`groups` must be what the dataset knows, got {kind!r} of one without {kind}(). "
                "Write 'clusters', 'none', or the path of a .npy file."
            )
        return self._kept(kind, lambda: np.asarray(method(), np.int64))

    def priors(self, *, needed: bool) -> Path | None:
        """File of `recurrence_prior`, float64 `[N]`; None where it cannot be had.

        Args:
            needed: to have none is an error.

        Raises:
            ValueError: if it is needed, and the training data are no windows of a token store.
        """
        dataset = self._data.dataset
        if not isinstance(dataset, WindowDataset):
            if not needed:
                return None
            raise ValueError(
                f"`priors` must be a .npy file where the training data are a {type(dataset).__name__}, got "
                f"{RECURRENCE!r}. It is made of the windows of a token store."
            )
        return self._kept(RECURRENCE, lambda: recurrence_prior(dataset).factors)

    def _documents(self) -> NDArray[Any] | None:
        documents = getattr(self._data.dataset, "documents", None)
        return np.asarray(documents()) if callable(documents) else None

    def _feats(self) -> NDArray[np.float32]:
        if self._features is None:
            reader = readable(self._data.dataset)
            if reader is None:
                raise ValueError(
                    "`scarcity` must be given where windows carry no tokens under 'input_ids', got a "
                    f"{type(self._data.dataset).__name__}. Write `scarcity: file.npy` and `groups: file.npy` or 'none'."
                )
            self._features = HashedFeaturizer().fit(reader).transform(reader)
        return self._features

    def _kept(self, name: str, compute: Any) -> Path:
        path = self._folder / f"{name}-{self._key}.npy"
        with folder_lock(self._folder, wait=True):
            if not path.exists():
                values = compute()
                with atomic_writer(path) as file:
                    np.save(file, values, allow_pickle=False)
        return path
