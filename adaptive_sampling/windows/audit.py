"""What windows read of a store: how often each token is a target, and which never is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.windows.dataset import WindowDataset

_CHUNK_WINDOWS = 1 << 20


@dataclass(frozen=True)
class WindowAudit:
    """Counts over all windows of a dataset in its present epoch.

    A token is *possible* as a target if another is before it in its stream; only those enter shares and means.

    Attributes:
        windows: Number of windows.
        tokens: Tokens in the store.
        possible_targets: Tokens that some window could have as a target (documents left out by length count).
        covered_targets: Those that at least one window has.
        targets_min: How often the rarest possible target is one.
        targets_mean: The mean over possible targets.
        targets_max: How often the most frequent one is one.
        never_targets: int64, store positions of the first ten possible targets that never are.
        windows_across_documents: Windows that read tokens of more than one document.
        tokens_read: Inputs of all windows, padding not counted.
    """

    windows: int
    tokens: int
    possible_targets: int
    covered_targets: int
    targets_min: int
    targets_mean: float
    targets_max: int
    never_targets: NDArray[np.int64]
    windows_across_documents: int
    tokens_read: int

    @property
    def never_share(self) -> float:
        """Share of possible targets that never are one."""
        return 1 - self.covered_targets / self.possible_targets if self.possible_targets else 0.0

    @property
    def read_ratio(self) -> float:
        """Tokens read over tokens there."""
        return self.tokens_read / self.tokens if self.tokens else 0.0

    def format(self) -> str:
        """The counts as a text table."""
        never = self.possible_targets - self.covered_targets
        some = ", ".join(str(at) for at in self.never_targets.tolist()) + (", ..." if never > 10 else "")
        rows = [
            ("windows", f"{self.windows}"),
            ("windows across documents", f"{self.windows_across_documents}"),
            ("tokens", f"{self.tokens}"),
            ("tokens read over tokens there", f"{self.read_ratio:.2f}"),
            ("targets covered", f"{self.covered_targets} of {self.possible_targets}"),
            ("never a target", f"{never} ({self.never_share:.1%})" + (f", at {some}" if never else "")),
            (
                "times a target (min, mean, max)",
                f"{self.targets_min}, {self.targets_mean:.2f}, {self.targets_max}",
            ),
        ]
        wide = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{wide}}  {value}" for name, value in rows)

    def __str__(self) -> str:
        return self.format()


def audit(dataset: WindowDataset) -> WindowAudit:
    """Count what the windows of `dataset` read.

    By a difference array: each window adds at its first target and takes away behind its last.

    Args:
        dataset: The windows.

    Returns:
        The counts.

    Raises:
        TypeError: for another dataset.

    Cost: O(windows + tokens) time; 16 bytes per token of memory.
    """
    if not isinstance(dataset, WindowDataset):
        raise TypeError(f"`dataset` must be a WindowDataset, got {dataset!r}. Audit it before wrapping it.")
    layout = dataset.layout
    num_read = int(layout.piece_ends[-1]) if len(layout.piece_ends) else 0
    changes = np.zeros(num_read + 1, np.int64)
    across = tokens_read = 0
    for start in range(0, len(dataset), _CHUNK_WINDOWS):
        ids = np.arange(start, min(start + _CHUNK_WINDOWS, len(dataset)))
        places = dataset.places(ids)
        first = layout.stream_starts[places.streams] + places.starts
        np.add.at(changes, first + 1 + places.repeated, 1)
        np.add.at(changes, first + 1 + places.targets, -1)
        across += int((layout.pieces(first) != layout.pieces(first + places.targets)).sum())
        tokens_read += int(places.targets.sum())
    counts = np.cumsum(changes[:-1])
    possible = np.ones(num_read, bool)
    possible[layout.stream_starts] = False
    counts = counts[possible]
    never = np.flatnonzero(possible)[counts == 0]
    examples = np.sort(never + layout.piece_shifts[layout.pieces(never)])[:10]
    # Documents that min_length leaves out are in no stream: all but their first token could be targets.
    starts = dataset.store.document_starts
    left_out = dataset.store.num_tokens - num_read
    lengths = dataset.store.document_ends - starts
    outside = np.ones(len(lengths), bool)
    outside[layout.documents] = False
    left_out_targets = int(np.maximum(lengths[outside] - 1, 0).sum()) if left_out else 0
    num_possible = len(counts) + left_out_targets
    return WindowAudit(
        windows=len(dataset),
        tokens=dataset.store.num_tokens,
        possible_targets=num_possible,
        covered_targets=int((counts > 0).sum()),
        targets_min=0 if left_out_targets or not len(counts) else int(counts.min()),
        targets_mean=int(counts.sum()) / num_possible if num_possible else 0.0,
        targets_max=int(counts.max(initial=0)),
        never_targets=examples,
        windows_across_documents=across,
        tokens_read=tokens_read,
    )
