"""Text made from text: a corpus of which half is near-copies of a few documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling import TokenStore
from adaptive_sampling._random import hash_rows, keyed_generator


def _shuffled(store: TokenStore, seed: int, purpose: str) -> NDArray[np.int64]:
    """Document indices in an order that depends on their keys and the seed alone."""
    return np.argsort(hash_rows((seed, purpose), np.asarray(store.document_keys)), kind="stable")


def _document(store: TokenStore, starts: NDArray[np.int64], index: int) -> NDArray[np.int64]:
    return np.asarray(store.tokens[starts[index] : store.document_ends[index]], np.int64)


def redundant(
    source: TokenStore,
    path: Path,
    *,
    share: float = 0.5,
    copied_documents: float = 0.01,
    changed: float = 0.03,
    min_length: int = 256,
    seed: int = 0,
) -> TokenStore:
    """Write a store in which `share` of the tokens are near-copies of a few documents.

    Each copy is a document of its own, of the same source, with some of its tokens replaced by random other ones: as
    licences, generated code and mirrored pages are in collected text.

    Args:
        source: the text that is kept whole.
        path: new or empty folder.
        share: share of the tokens of the new store that are copies, in (0, 1).
        copied_documents: share of the documents that are copied; at least one is.
        changed: chance of a token of a copy to be another one.
        min_length: shortest document that is copied, in tokens.
        seed: decides which documents and which tokens.

    Raises:
        ValueError: if no document has `min_length` tokens, or a share is out of range.
    """
    if not 0.0 < share < 1.0:
        raise ValueError(f"`share` must be between 0 and 1, got {share!r}. Try 0.5.")
    lengths = np.diff(np.asarray(source.document_ends), prepend=0)
    order = _shuffled(source, seed, "copied")
    order = order[lengths[order] >= min_length]
    if not len(order):
        raise ValueError(
            f"`min_length` must leave a document to copy, got {min_length}. The longest has {lengths.max()}."
        )
    originals = order[: max(1, round(copied_documents * source.num_documents))]
    wanted = round(source.num_tokens * share / (1.0 - share))
    rounds = -(-wanted // int(lengths[originals].sum()))
    copies = np.tile(originals, rounds)
    # The last round is cut where the share is reached.
    copies = copies[: int(np.searchsorted(np.cumsum(lengths[copies]), wanted)) + 1]
    planned = [(i, None) for i in range(source.num_documents)] + [(int(i), k) for k, i in enumerate(copies)]
    place = keyed_generator(seed, "places").permutation(len(planned))
    starts = source.document_starts

    def documents() -> Iterator[NDArray[np.int64]]:
        for position in place:
            index, copy = planned[position]
            tokens = _document(source, starts, index)
            yield tokens if copy is None else changed_copy(tokens, source, changed, keyed_generator(seed, "copy", copy))

    def keys() -> Iterator[Any]:
        for position in place:
            index, copy = planned[position]
            key = int(source.document_keys[index])
            yield key if copy is None else f"copy {copy} of {key}"

    return TokenStore.write(
        path,
        documents(),
        vocab_size=source.vocab_size,
        eos_id=source.eos_id,
        sources=(source.source_names[source.document_sources[planned[position][0]]] for position in place),
        keys=keys(),
        append_eos=False,
    )


def changed_copy(
    tokens: NDArray[np.int64], store: TokenStore, changed: float, generator: np.random.Generator
) -> NDArray[np.int64]:
    """`tokens` with a share of them replaced by random other ones; EOS stays and is never put in."""
    shift = generator.integers(1, store.vocab_size, len(tokens))
    other = (tokens + shift) % store.vocab_size
    hit = (generator.random(len(tokens)) < changed) & (tokens != store.eos_id) & (other != store.eos_id)
    return np.where(hit, other, tokens)
