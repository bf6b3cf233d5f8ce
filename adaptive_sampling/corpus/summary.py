"""What became of the documents of each source, read from a manifest: counts, tables, a picture of lengths."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.corpus._assemble import CUT_WINDOWS
from adaptive_sampling.corpus._extras import require
from adaptive_sampling.corpus.manifest import naming_manifest
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
        StoreError: if it holds no stores, or its manifest cannot be read.
        MissingExtraError: if pyarrow is not installed.
    """
    parquet = require("pyarrow.parquet", "to read a manifest")
    manifest = out / "manifest.parquet"
    with naming_manifest(manifest):
        names = ["source", "reason", "near_copy_set", "split", "tokens", "kept", "bytes"]
        table = parquet.read_table(manifest, columns=names).select(names)
        cut = int((parquet.read_schema(manifest).metadata or {}).get(CUT_WINDOWS, b"0"))
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
    return PrepareSummary(out, TokenStore.open(out / "train").vocab_size, tuple(found), cut)


_CLEANED = {r"\d+ characters, below": "too short", r"[\d.]+ of the characters printable": "too little printable"}


def category(reason: str) -> str:
    """Kind of a reason: without the key, numbers and bytes that differ from document to document.

    Example:
        >>> category("exact duplicate of a/b.txt"), category("12 characters, below 100")
        ('exact duplicate', 'too short')
    """
    if "is not UTF-8" in reason and not reason.startswith("not JSON"):
        return "not UTF-8"
    for pattern, name in _CLEANED.items():
        if re.match(pattern, reason):
            return name
    head = re.split(r" of |, |: |; ", reason, maxsplit=1)[0]
    return re.sub(r"^[\d.]+ ", "", head).strip()


def format_summary(summary: PrepareSummary) -> str:
    """Table per source, the reasons of what is left out, and which sources have nothing held out."""
    counts = ["documents", "duplicates", "near-copies", "left-out", "train", "validation", "tokens"]
    rows: list[Sequence[str]] = [["source", *counts, "bytes/token"]]
    reasons = []
    for source in summary.sources:
        left_out = sum(count for _, count in source.exclusions)
        numbers = (
            source.documents,
            source.duplicates,
            source.near_copies,
            left_out,
            source.train_documents,
            source.validation_documents,
            source.train_tokens + source.validation_tokens,
        )
        rows.append([source.source, *map(str, numbers), f"{source.bytes_per_token:.2f}"])
        if source.exclusions:
            why = ", ".join(f"{count} {name}" for name, count in source.exclusions)
            reasons.append(f"left out of {source.source}: {why}")
        faulty = sum(count for name, count in source.exclusions if not name.startswith(("exact dup", "near-cop")))
        if 2 * faulty > source.documents:
            reasons.append(
                f"more than half of {source.source} is left out: is `--text-field`, or a limit, not as meant?"
            )
    whole = [source for source in summary.sources if source.train_documents and not source.validation_documents]
    if whole and any(source.validation_documents for source in summary.sources):
        names = ", ".join(f"{source.source} ({source.train_documents} in all)" for source in whole)
        reasons.append(f"no document is held out of {names}")
    return "\n".join([format_table(rows), *reasons])


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as text, the first column to the left and numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def lengths_picture(stores: dict[str, TokenStore]) -> str:
    """A self-contained SVG: per store, how many documents there are of each length in tokens, by powers of two.

    Stores share the scale of lengths. Below each length stands the share of the tokens that such documents hold.
    """
    width, height, left, gap = 760, 150, 96, 92
    lengths = {name: np.diff(store.document_ends, prepend=0) for name, store in stores.items()}
    powers = 1 + max((int(_powers(own).max(initial=0)) for own in lengths.values()), default=0)
    bar = (width - left - 16) / powers
    parts = []
    for place, (name, own) in enumerate(lengths.items()):
        counts = np.bincount(_powers(own), minlength=powers)
        tokens = np.bincount(_powers(own), weights=own, minlength=powers)
        tallest, base = max(int(counts.max(initial=0)), 1), place * (height + gap) + 48
        foot = base + height
        title = f"{name}: {len(own):,} documents, median {int(np.median(own)) if len(own) else 0:,} tokens"
        parts.append(f'<text x="{left}" y="{base - 24}" font-size="13" font-weight="bold">{html.escape(title)}</text>')
        captions = ((base + 8, "documents"), (foot + 16, "tokens, from"), (foot + 32, "% of all tokens"))
        parts += [f'<text x="{left - 8}" y="{y}" text-anchor="end">{caption}</text>' for y, caption in captions]
        for power in range(powers):
            count, share = int(counts[power]), tokens[power] / max(float(own.sum()), 1.0)
            tall = height * count / tallest
            x, middle = left + power * bar, left + (power + 0.45) * bar
            label = f"{2**power:,} to {2 ** (power + 1) - 1:,} tokens: {count:,} documents, {share:.1%} of the tokens"
            parts.append(
                f'<rect x="{x:.1f}" y="{foot - tall:.1f}" width="{bar * 0.9:.1f}" height="{tall:.1f}" fill="#3465a4">'
                f"<title>{label}</title></rect>"
            )
            texts = [(foot + 16.0, _short(2**power))]
            if count:
                texts += [
                    (foot - tall - 4, f"{count:,}"),
                    (foot + 32.0, f"{100 * share:.0f}" if share >= 0.005 else "<1"),
                ]
            parts += [
                f'<text x="{middle:.1f}" y="{y:.1f}" text-anchor="middle">{html.escape(text)}</text>'
                for y, text in texts
            ]
    total = len(stores) * (height + gap)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{total}" font-family="sans-serif" '
        f'font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _powers(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    powers: NDArray[np.int64] = np.log2(np.maximum(lengths, 1)).astype(np.int64)
    return powers


def _short(number: int) -> str:
    for size, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if number >= size:
            return f"{number // size}{letter}"
    return str(number)
