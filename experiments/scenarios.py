"""Text made from text: half near-copies, without near-copies, part noise, one source, little of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling import TokenStore, WindowConfig, WindowDataset, hashed_features
from adaptive_sampling._random import hash_rows, keyed_generator
from adaptive_sampling.neighbors import near_copy_sets

_TOKENS_AT_A_TIME = 1 << 22


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
    _check_share(share)
    lengths = _lengths(source)
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

    def tokens(position: int) -> NDArray[np.int64]:
        index, copy = planned[position]
        whole = _document(source, starts, index)
        return whole if copy is None else changed_copy(whole, source, changed, keyed_generator(seed, "copy", copy))

    def key(position: int) -> Any:
        index, copy = planned[position]
        own = int(source.document_keys[index])
        return own if copy is None else f"copy {copy} of {own}"

    return _write(source, path, place, tokens, key, lambda position: planned[position][0])


def _write(
    source: TokenStore,
    path: Path,
    positions: Iterable[Any],
    tokens: Callable[[Any], NDArray[np.int64]],
    key: Callable[[Any], Any],
    origin: Callable[[Any], int],
) -> TokenStore:
    """Write a store of one document per position, each with the source name of the document it stems from."""
    order = [int(position) for position in positions]
    return TokenStore.write(
        path,
        (tokens(position) for position in order),
        vocab_size=source.vocab_size,
        eos_id=source.eos_id,
        sources=(source.source_names[source.document_sources[origin(position)]] for position in order),
        keys=(key(position) for position in order),
        append_eos=False,
    )


def _select(source: TokenStore, path: Path, chosen: NDArray[np.int64]) -> TokenStore:
    """Write a store of some documents, in their old order."""
    starts = source.document_starts
    return _write(
        source,
        path,
        np.sort(chosen),
        lambda index: _document(source, starts, index),
        lambda index: int(source.document_keys[index]),
        lambda index: index,
    )


def _lengths(source: TokenStore) -> NDArray[np.int64]:
    return np.diff(np.asarray(source.document_ends), prepend=0)


def clean(source: TokenStore, path: Path, *, seq_len: int = 128, share: float = 0.5) -> TokenStore:
    """Write a store without documents that are mostly near-copies of documents before them.

    Args:
        source: the text.
        path: new or empty folder.
        seq_len: length of the windows that are compared.
        share: share of a document's windows with a near-copy before it from which it is left out.
    """
    windows = WindowDataset(source, WindowConfig(seq_len=seq_len, pack="concat"))
    documents = windows.documents()
    sets = near_copy_sets(hashed_features(windows), documents)
    # A set is named by its first window: all others repeat it.
    repeated = sets != np.arange(len(sets))
    total = np.bincount(documents, minlength=source.num_documents)
    copied = np.bincount(documents[repeated], minlength=source.num_documents)
    return _select(source, path, np.flatnonzero(copied <= share * np.maximum(total, 1)))


def noisy(source: TokenStore, path: Path, *, share: float = 0.3, seed: int = 0) -> TokenStore:
    """Write a store in which `share` of the tokens are soup: drawn one by one, as often as in the text, in no order.

    Soup documents have the lengths and source names of real ones, so that nothing but their content gives them away.

    Args:
        source: the text that is kept whole.
        path: new or empty folder.
        share: share of the tokens of the new store, in (0, 1).
        seed: decides lengths, tokens and places.

    Raises:
        ValueError: if the share is out of range.
    """
    _check_share(share)
    counts = np.zeros(source.vocab_size)
    for first in range(0, source.num_tokens, _TOKENS_AT_A_TIME):
        counts += np.bincount(source.tokens[first : first + _TOKENS_AT_A_TIME], minlength=source.vocab_size)
    counts[source.eos_id] = 0.0
    cumulative = np.cumsum(counts) / counts.sum()
    lengths, starts = _lengths(source), source.document_starts
    wanted = source.num_tokens * share / (1.0 - share)
    models = np.tile(_shuffled(source, seed, "soup"), 1 + int(share / (1.0 - share)))
    models = models[: int(np.searchsorted(np.cumsum(lengths[models]), wanted)) + 1]
    real = source.num_documents
    place = keyed_generator(seed, "places").permutation(real + len(models))

    def tokens(position: int) -> NDArray[np.int64]:
        if position < real:
            return _document(source, starts, position)
        length = int(lengths[models[position - real]])
        drawn = np.searchsorted(cumulative, keyed_generator(seed, "soup", position).random(length - 1), side="right")
        return np.append(np.minimum(drawn, source.vocab_size - 1), source.eos_id)

    def key(position: int) -> Any:
        return int(source.document_keys[position]) if position < real else f"soup {position}"

    return _write(source, path, place, tokens, key, lambda k: k if k < real else int(models[k - real]))


def tail(source: TokenStore, path: Path, *, share: float = 0.93, seed: int = 0) -> TokenStore:
    """Write a store in which the largest source holds `share` of the tokens: documents beyond that are left out.

    Args:
        source: the text, of two sources or more.
        path: new or empty folder.
        share: share of the largest source, in (0, 1).
        seed: decides which documents stay.

    Raises:
        ValueError: if the share is out of range, or there is one source.
    """
    _check_share(share)
    sizes = np.bincount(source.document_sources, _lengths(source), minlength=len(source.source_names))
    largest = int(sizes.argmax())
    rest = float(sizes.sum() - sizes[largest])
    if rest == 0:
        raise ValueError(f"`source` must hold two sources or more, got {source.source_names}. Add a folder of text.")
    keep = min(float(sizes[largest]), rest * share / (1.0 - share))
    in_largest = np.asarray(source.document_sources) == largest
    order = _shuffled(source, seed, "tail")
    chosen = [
        _up_to(source, order[in_largest[order]], keep),
        _up_to(source, order[~in_largest[order]], keep * (1.0 - share) / share),
    ]
    return _select(source, path, np.concatenate(chosen))


def small(source: TokenStore, path: Path, *, tokens: int, seed: int = 0) -> TokenStore:
    """Write a store of about `tokens` tokens: documents at random, as natural as the whole.

    Args:
        source: the text.
        path: new or empty folder.
        tokens: tokens to keep, at least.
        seed: decides which documents stay.

    Raises:
        ValueError: if there are fewer tokens.
    """
    if not 0 < tokens <= source.num_tokens:
        raise ValueError(f"`tokens` must be between 1 and {source.num_tokens}, got {tokens!r}. Train fewer steps.")
    return _select(source, path, _up_to(source, _shuffled(source, seed, "small"), tokens))


def _up_to(source: TokenStore, order: NDArray[np.int64], tokens: float) -> NDArray[np.int64]:
    """The first documents of `order` that hold about `tokens` tokens together."""
    ends = np.cumsum(_lengths(source)[order])
    return order[: int(np.searchsorted(ends, tokens * (1 - 1e-9))) + 1]


def _check_share(share: float) -> None:
    if not 0.0 < share < 1.0:
        raise ValueError(f"`share` must be between 0 and 1, got {share!r}. Try 0.3.")


def changed_copy(
    tokens: NDArray[np.int64], store: TokenStore, changed: float, generator: np.random.Generator
) -> NDArray[np.int64]:
    """`tokens` with a share of them replaced by random other ones; EOS stays and is never put in."""
    shift = generator.integers(1, store.vocab_size, len(tokens))
    other = (tokens + shift) % store.vocab_size
    hit = (generator.random(len(tokens)) < changed) & (tokens != store.eos_id) & (other != store.eos_id)
    return np.where(hit, other, tokens)
