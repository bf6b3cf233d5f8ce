"""Faiss, imported where it is used, with as many threads as the process may have."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from adaptive_sampling.errors import MissingPackageError

_forked = False


def _note_fork() -> None:
    global _forked
    _forked = True


# A thread pool does not survive a fork: a child that asks its OpenMP for the parent's threads waits for them for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def load_faiss() -> Any:
    """The module `faiss`.

    Raises:
        MissingPackageError: if it is not installed; the message says what to install.
    """
    try:
        import faiss
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] != "faiss":
            raise
        raise MissingPackageError(
            "`faiss` must be installed to search neighbours, got no such module. Install it with: pip install faiss-cpu"
        ) from None
    return faiss


@contextlib.contextmanager
def safe_threads(most: int | None = None) -> Iterator[Any]:
    """Faiss with its own number of threads, with at most `most`, or with one in a forked process (a data worker).

    The number is set back afterwards; `OMP_NUM_THREADS` chooses it from outside.
    """
    faiss = load_faiss()
    before = faiss.omp_get_max_threads()
    wanted = 1 if _forked else min(before, most or before)
    if wanted == before:
        yield faiss
        return
    faiss.omp_set_num_threads(wanted)
    try:
        yield faiss
    finally:
        faiss.omp_set_num_threads(before)
