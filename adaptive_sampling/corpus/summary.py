"""What became of the documents of each source, read from a manifest; and a picture of their lengths."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.corpus._assemble import CUT_WINDOWS
from adaptive_sampling.corpus._extras import require
from adaptive_sampling.corpus.store import TokenStore


@dataclass(frozen=True)
class SourceSummary:
    """What became of the documents of one source; bytes are UTF-8 bytes of stored text, tokens include EOS.

    Attributes:
        source: Name.
        documents: Documents found, faults included.
        duplicates: Exact duplicates, left out.
        near_copies: Documents that are in a near-copy set with others, kept or not.
        train_documents: Documents stored for training.
        validation_documents: Documents held out.
        train_tokens: Tokens of the first.
        validation_tokens: Tokens of the second.
        bytes: Bytes of both.
        exclusions: (reason, documents) for all that are left out, most frequent first.
    """

    source: str
    documents: int
    duplicates: int
    near_copies: int
    train_documents: int
    validation_documents: int
    train_tokens: int
    validation_tokens: int
    bytes: int
    exclusions: tuple[tuple[str, int], ...]

    @property
    def bytes_per_token(self) -> float:
        """Bytes of kept text per stored token; 0.0 where nothing was kept."""
        tokens = self.train_tokens + self.validation_tokens
        return self.bytes / tokens if tokens else 0.0


@dataclass(frozen=True)
class PrepareSummary:
    """What `prepare` made.

    Attributes:
        out: Prepared folder.
        vocab_size: Number of ids, the largest plus 1.
        sources: Counts of each source, in order of first appearance.
        decontaminated_windows: Windows that were cut out of held-out documents.
    """

    out: Path
    vocab_size: int
    sources: tuple[SourceSummary, ...]
    decontaminated_windows: int = 0


def summarise(out: Path) -> PrepareSummary:
    """Counts of a prepared folder.

    Raises:
        StoreError: if it holds no stores.
        MissingExtraError: if pyarrow is not installed.
    """
    parquet = require("pyarrow.parquet", "to read a manifest")
    names = ["source", "reason", "near_copy_set", "split", "tokens", "kept", "bytes"]
    table = parquet.read_table(out / "manifest.parquet", columns=names)
    sources = table["source"].to_numpy(zero_copy_only=False).astype(object)
    reasons = table["reason"].to_numpy(zero_copy_only=False).astype(object)
    kept = table["kept"].to_numpy().astype(bool)
    held_out = table["split"].to_numpy(zero_copy_only=False) == "validation"
    tokens, size = table["tokens"].to_numpy(), table["bytes"].to_numpy()
    near = table["near_copy_set"].to_numpy(zero_copy_only=False) != ""
    found = []
    for source in dict.fromkeys(sources.tolist()):
        own = sources == source
        why = [category(reason) for reason in reasons[own & ~kept].tolist()]
        counted = sorted(((why.count(name), name) for name in set(why)), key=lambda pair: (-pair[0], pair[1]))
        found.append(
            SourceSummary(
                source=source,
                documents=int(own.sum()),
                duplicates=why.count("exact duplicate"),
                near_copies=int((own & near).sum()),
                train_documents=int((own & kept & ~held_out).sum()),
                validation_documents=int((own & kept & held_out).sum()),
                train_tokens=int(tokens[own & kept & ~held_out].sum()),
                validation_tokens=int(tokens[own & kept & held_out].sum()),
                bytes=int(size[own & kept].sum()),
                exclusions=tuple((name, count) for count, name in counted),
            )
        )
    cut = (parquet.read_schema(out / "manifest.parquet").metadata or {}).get(CUT_WINDOWS, b"0")
    return PrepareSummary(out, TokenStore.open(out / "train").vocab_size, tuple(found), int(cut))


def category(reason: str) -> str:
    """Kind of a reason: without the key, numbers and bytes that differ from document to document.

    Example:
        >>> category("exact duplicate of a/b.txt"), category("12 characters, below 100")
        ('exact duplicate', 'characters')
    """
    if "is not UTF-8" in reason and not reason.startswith("not JSON"):
        return "not UTF-8"
    head = re.split(r" of |, |: |; ", reason, maxsplit=1)[0]
    return re.sub(r"^[\d.]+ ", "", head).strip()


def lengths_picture(stores: dict[str, TokenStore]) -> str:
    """A self-contained SVG: per store, a histogram of document lengths in tokens, on a scale of powers of two."""
    width, height, left, top = 640, 200, 56, 28
    parts = []
    for place, (name, store) in enumerate(stores.items()):
        lengths = np.diff(store.document_ends, prepend=0)
        counts = _by_power(lengths)
        tallest = max(int(counts.max(initial=0)), 1)
        base = place * (height + 2 * top) + top
        bar = (width - left - 16) / max(len(counts), 1)
        title = f"{name}: {len(lengths):,} documents, median {int(np.median(lengths)) if len(lengths) else 0:,} tokens"
        parts.append(f'<text x="{left}" y="{base - 8}" font-weight="bold">{html.escape(title)}</text>')
        for power, count in enumerate(counts.tolist()):
            tall = (height - 40) * count / tallest
            x, y = left + power * bar, base + height - 40 - tall
            label = f"{2**power:,} to {2 ** (power + 1) - 1:,} tokens: {count:,} documents"
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar * 0.9:.1f}" height="{tall:.1f}" fill="#3465a4">'
                f"<title>{label}</title></rect>"
            )
            parts.append(
                f'<text x="{x + bar * 0.45:.1f}" y="{base + height - 24}" text-anchor="middle">'
                f"{_short(2**power)}</text>"
            )
        parts.append(f'<text x="{left - 6}" y="{base + 8}" text-anchor="end">{tallest:,}</text>')
        parts.append(f'<text x="{left - 6}" y="{base + height - 40}" text-anchor="end">0</text>')
    total = len(stores) * (height + 2 * top)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{total}" font-family="sans-serif" '
        f'font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _by_power(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.bincount(np.log2(np.maximum(lengths, 1)).astype(np.int64))


def _short(number: int) -> str:
    for size, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if number >= size:
            return f"{number // size}{letter}"
    return str(number)
