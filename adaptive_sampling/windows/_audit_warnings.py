"""What an audit found that is worth a thought before training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adaptive_sampling.windows.config import WindowConfig

if TYPE_CHECKING:
    from adaptive_sampling.windows.audit import WindowAudit

_COPIED, _LOST, _FREQUENT = 0.85, 0.005, 0.2


def audit_warnings(found: WindowAudit, config: WindowConfig, batch_size: int) -> tuple[str, ...]:
    """A sentence for each thing found, with its figure and the cure.

    Args:
        found: Counts of the windows.
        config: Their settings.
        batch_size: Windows of a training batch.
    """
    notes = []
    if found.windows < batch_size:
        notes.append(
            f"the set of {found.windows} windows is smaller than a batch of {batch_size}: "
            "use a smaller seq_len or stride, or more text."
        )
    if config.step > config.seq_len:
        notes.append(
            f"stride {config.step} is larger than seq_len {config.seq_len}: "
            f"{config.step - config.seq_len} tokens between two windows are never a target."
        )
    if found.overlap >= _COPIED:
        notes.append(
            f"stride {config.step} copies nearly everything: {found.overlap:.1%} of the targets are in another window "
            "too. Use a stride of at least half of seq_len, or mask_repeated_targets=True."
        )
    if found.never_share >= _LOST:
        notes.append(
            f"text is lost: {found.never_share:.1%} of the tokens that could be targets never are. "
            + (
                "Thinning leaves windows out."
                if config.thinning < 1
                else "Use tail='cover' or 'pad', pack='concat', or a stride of at most seq_len."
            )
        )
    if config.thinning < 1 and found.documents_without:
        notes.append(
            f"thinning {config.thinning:g} leaves {found.documents_without} of {found.documents} documents without a "
            "window; rare text goes first. Raise min_length first, then thin less."
        )
    if found.third_length_peak is not None:
        notes.append(
            f"window lengths have a third peak, at about {found.third_length_peak} targets, besides full windows and "
            "ends of documents: look at documents of that length."
        )
    if found.top_ngrams >= _FREQUENT:
        notes.append(f"{found.top_ngrams:.1%} of the 8-grams are one of the 100 most frequent: text is repeated.")
    return tuple(notes)
