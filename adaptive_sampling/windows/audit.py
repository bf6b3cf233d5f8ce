"""What windows read of a store: how often each token is a target, which never is, and what else to know beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._arrays import checked_integer
from adaptive_sampling.windows._audit_warnings import audit_warnings
from adaptive_sampling.windows._tokens import plain_tokens
from adaptive_sampling.windows.dataset import WindowDataset
from adaptive_sampling.windows.histograms import Histogram, third_peak
from adaptive_sampling.windows.ngrams import top_ngram_share

_CHUNK_WINDOWS = 1 << 18


@dataclass(frozen=True)
class WindowAudit:
    """Counts over all windows of a dataset in its present epoch.

    A token is *possible* as a target if another is before it in its stream (in its document, where targets of other
    documents are masked); only those enter shares and means.

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
        padding: Inputs that are padding.
        overlap: Share of the targets of all windows that another window has already.
        digit_share: Share of tokens that are digits, of those in the store; None where the vocabulary is not known.
        top_ngrams: Share of the store's 8-grams that are one of the 100 most frequent.
        documents: Documents in the store.
        documents_without: Those in which no window starts and no token is a target.
        windows_per_document: Over documents, how many windows start in them, in bins of doubling width.
        lengths: Over windows, targets.
        starts: Over windows, where in its document each starts, as a share of the document.
        target_counts: Over possible targets, how often each is one.
        coverage: float64 [bins], mean times a target along the store.
        third_length_peak: Targets at a third peak of `lengths`; None where there are no more than two.
        warnings: What to think about before training, a sentence each.
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
    padding: int
    overlap: float
    digit_share: float | None
    top_ngrams: float
    documents: int
    documents_without: int
    windows_per_document: Histogram
    lengths: Histogram
    starts: Histogram
    target_counts: Histogram
    coverage: NDArray[np.float64]
    third_length_peak: int | None
    warnings: tuple[str, ...] = field(default=())

    @property
    def never_share(self) -> float:
        """Share of possible targets that never are one."""
        return 1 - self.covered_targets / self.possible_targets if self.possible_targets else 0.0

    @property
    def read_ratio(self) -> float:
        """Tokens read over tokens there."""
        return self.tokens_read / self.tokens if self.tokens else 0.0

    def format(self) -> str:
        """The counts as a text table, warnings below."""
        never = self.possible_targets - self.covered_targets
        some = ", ".join(str(at) for at in self.never_targets.tolist()) + (", ..." if never > 10 else "")
        peak = "" if self.third_length_peak is None else f"; a third peak at {self.third_length_peak}"
        inputs = self.tokens_read + self.padding
        rows = [
            ("windows", f"{self.windows}"),
            ("windows across documents", f"{self.windows_across_documents}"),
            ("windows per document (min, median, max)", self.windows_per_document.summary()),
            ("documents without any", f"{self.documents_without} of {self.documents}"),
            ("targets per window (min, median, max)", self.lengths.summary() + peak),
            ("tokens", f"{self.tokens}"),
            ("tokens read over tokens there", f"{self.read_ratio:.2f}"),
            ("padding", f"{self.padding / inputs if inputs else 0.0:.1%} of the inputs"),
            ("targets covered", f"{self.covered_targets} of {self.possible_targets}"),
            ("never a target", f"{never} ({self.never_share:.1%})" + (f", at {some}" if never else "")),
            (
                "times a target (min, mean, max)",
                f"{self.targets_min}, {self.targets_mean:.2f}, {self.targets_max}",
            ),
            ("targets that another window has", f"{self.overlap:.1%}"),
            ("digits", "unknown without a vocabulary" if self.digit_share is None else f"{self.digit_share:.1%}"),
            ("100 most frequent 8-grams", f"{self.top_ngrams:.1%} of all"),
        ]
        wide = max(len(name) for name, _ in rows)
        table = [f"{name:<{wide}}  {value}" for name, value in rows]
        return "\n".join([*table, *(f"note: {warning}" for warning in self.warnings)])

    def __str__(self) -> str:
        return self.format()


def audit(dataset: WindowDataset, *, batch_size: int = 32, digits: Any = None) -> WindowAudit:
    """Count what the windows of `dataset` read.

    By a difference array: each window adds at its first target and takes away behind its last.

    Args:
        dataset: The windows.
        batch_size: Windows of a training batch, to warn of a set that is smaller.
        digits: bool [vocab_size], which ids are digits, see `adaptive_sampling.windows.NumberTokens`; default: unknown.

    Returns:
        The counts.

    Raises:
        TypeError: for another dataset.
        ValueError: for `digits` of another length than the vocabulary, or a batch of no window.

    Cost: O(windows + tokens) time; 17 bytes per token and 16 per document of memory.
    """
    if not isinstance(dataset, WindowDataset):
        raise TypeError(f"`dataset` must be a WindowDataset, got {dataset!r}. Audit it before wrapping it.")
    batch_size = checked_integer("batch_size", batch_size, 1)
    store = dataset.store
    changes = np.zeros(store.num_tokens + 1, np.int64)
    windows_of = np.zeros(store.num_documents, np.int64)
    lengths = np.zeros(dataset.seq_len + 1, np.int64)
    starts_at = np.zeros(20, np.int64)
    across = tokens_read = 0
    document_starts = store.document_starts
    document_lengths = store.document_ends - document_starts
    for start in range(0, len(dataset), _CHUNK_WINDOWS):
        ids = np.arange(start, min(start + _CHUNK_WINDOWS, len(dataset)))
        places = dataset.places(ids)
        _, spans, ends = dataset.target_spans(ids)
        np.add.at(changes, spans, 1)
        np.add.at(changes, ends, -1)
        documents, last_documents = dataset.end_documents(places)
        across += int((documents != last_documents).sum())
        tokens_read += int(places.inputs.sum())
        windows_of += np.bincount(documents, minlength=store.num_documents)
        lengths += np.bincount(dataset.valid_targets(ids), minlength=len(lengths))
        within = (dataset.starts(ids) - document_starts[documents]) / document_lengths[documents]
        starts_at += np.bincount((within * 20).astype(np.int64), minlength=20)
    counts = np.cumsum(changes[:-1])
    possible = _possible_targets(dataset)
    total, had = int(counts.sum()), counts > 0
    untouched = windows_of == 0
    if len(had):
        filled = np.flatnonzero(document_lengths)
        untouched[filled] &= np.add.reduceat(had, document_starts[filled], dtype=np.int64) == 0
    of_possible = counts[possible]
    never = np.flatnonzero(possible & ~had)
    bins = np.linspace(0, store.num_tokens, min(120, store.num_tokens) + 1).astype(np.int64)
    length_counts = Histogram.of_counts(lengths)
    found = WindowAudit(
        windows=len(dataset),
        tokens=store.num_tokens,
        possible_targets=len(of_possible),
        covered_targets=int((of_possible > 0).sum()),
        targets_min=int(of_possible.min(initial=1 << 62)) if len(of_possible) else 0,
        targets_mean=int(of_possible.sum()) / len(of_possible) if len(of_possible) else 0.0,
        targets_max=int(of_possible.max(initial=0)),
        never_targets=never[:10],
        windows_across_documents=across,
        tokens_read=tokens_read,
        padding=len(dataset) * dataset.seq_len - tokens_read,
        overlap=1 - int(had.sum()) / total if total else 0.0,
        digit_share=_digit_share(dataset, digits),
        top_ngrams=top_ngram_share(plain_tokens(store)),
        documents=store.num_documents,
        documents_without=int(untouched.sum()),
        windows_per_document=Histogram.in_doublings(windows_of),
        lengths=length_counts,
        starts=Histogram(np.linspace(0, 1, 21), starts_at),
        target_counts=Histogram.of_values(of_possible),
        coverage=np.add.reduceat(counts, bins[:-1]) / np.diff(bins) if len(counts) else np.zeros(0),
        third_length_peak=third_peak(length_counts),
    )
    return WindowAudit(**{**vars(found), "warnings": audit_warnings(found, dataset.config, batch_size)})


def _possible_targets(dataset: WindowDataset) -> NDArray[np.bool_]:
    """Whether each token of the store could be a target of some window, bool [tokens]."""
    store, layout = dataset.store, dataset.layout
    document_starts = store.document_starts
    possible = np.ones(store.num_tokens, bool)
    possible[document_starts[document_starts < store.num_tokens]] = False
    if dataset.config.mask_cross_document_targets or layout.one_piece:
        return possible
    # In streams of several documents only the first of all is behind no token.
    starts = layout.piece_starts(np.arange(len(layout.piece_ends)))
    inner = ~np.isin(starts, np.append(layout.stream_starts + layout.stream_lengths, 0))
    possible[(starts + layout.piece_shifts)[inner]] = True
    return possible


def _digit_share(dataset: WindowDataset, digits: Any) -> float | None:
    if digits is None:
        return None
    flags = np.asarray(digits)
    if flags.dtype != np.bool_ or flags.shape != (dataset.store.vocab_size,):
        raise ValueError(
            f"`digits` must be bool of shape ({dataset.store.vocab_size},), got {flags.dtype} {flags.shape}. "
            "Make it with NumberTokens.from_vocabulary."
        )
    tokens = plain_tokens(dataset.store)
    found = sum(int(flags[tokens[at : at + (1 << 22)]].sum()) for at in range(0, len(tokens), 1 << 22))
    return found / len(tokens) if len(tokens) else 0.0
