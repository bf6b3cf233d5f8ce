"""What is checked of a store when it is opened, so that damage is an error that names it and never a wrong window."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.errors import StoreError

if TYPE_CHECKING:
    from adaptive_sampling.corpus.store import TokenStore

_BLOCK = 1 << 20
_CURE = "Copy or write the store again."


def whole_number(path: Path, entry: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """`value` of an entry of the metadata, an integer in [`least`, `most`].

    Raises:
        StoreError: for anything else; JSON may hold Infinity, true and "5" where a number is meant.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        wanted = f"of at least {least}" if most is None else f"in [{least}, {most}]"
        raise StoreError(
            f"`{entry}` in metadata.json of {str(path)!r} must be an integer {wanted}, got {value!r}. {_CURE}"
        )
    return value


def names_of(path: Path, value: Any) -> list[str]:
    """The names of the sources.

    Raises:
        StoreError: if it is no list of strings.
    """
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise StoreError(
            f"`source_names` in metadata.json of {str(path)!r} must be a list of names, got {value!r}. {_CURE}"
        )
    return value


def check_documents(store: TokenStore) -> None:
    """Refuse documents that do not follow one another, or are of no source.

    Raises:
        StoreError: naming the first such document.

    Cost: one reading of 12 bytes per document.
    """
    before = 0
    for first in range(0, store.num_documents, _BLOCK):
        ends = store.document_ends[first : first + _BLOCK]
        sources = store.document_sources[first : first + _BLOCK]
        fine = (
            before <= ends[0]
            and bool((ends[1:] >= ends[:-1]).all())
            and ends[-1] <= store.num_tokens
            and sources.min() >= 0
            and sources.max() < len(store.source_names)
        )
        if not fine:
            raise _first_bad(store, first, before, ends, sources)
        before = int(ends[-1])


def _first_bad(
    store: TokenStore, first: int, before: int, ends: NDArray[np.int64], sources: NDArray[np.int32]
) -> StoreError:
    starts = np.concatenate([np.array([before], np.int64), ends[:-1]])
    misplaced = (ends < starts) | (ends > store.num_tokens)
    bad = int(np.flatnonzero(misplaced | (sources < 0) | (sources >= len(store.source_names)))[0])
    where = f"document {first + bad} of {str(store.path)!r}"
    if misplaced[bad]:
        return StoreError(
            f"{where} must end in [{starts[bad]}, {store.num_tokens}], behind the document before it and among the "
            f"tokens, got {ends[bad]}. {_CURE}"
        )
    return StoreError(
        f"{where} must be of one of the {len(store.source_names)} sources, got number {sources[bad]}. {_CURE}"
    )


def check_vocabulary(store: TokenStore) -> None:
    """Refuse tokens that the vocabulary of the store does not have.

    Raises:
        StoreError: naming the first.

    Cost: reads all tokens once, in chunks.
    """
    if store.vocab_size > np.iinfo(store.tokens.dtype).max:
        return
    for first in range(0, store.num_tokens, _BLOCK):
        tokens = np.asarray(store.tokens[first : first + _BLOCK])
        if tokens.max() >= store.vocab_size:
            at = int(np.flatnonzero(tokens >= store.vocab_size)[0])
            raise StoreError(
                f"token {first + at} of {str(store.path)!r} must be below its number of ids, {store.vocab_size}, got "
                f"{tokens[at]}. {_CURE}"
            )
