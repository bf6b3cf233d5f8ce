"""From files to a prepared folder: tokenizer, manifest, and a token store for training and for validation.

sources ─▶ chunks ─read, decode, clean, hash─▶ texts and rows ─▶ exact duplicates ─▶ tokenizer ─▶ tokens
        ─▶ near-copy sets ─▶ split ─▶ train/ and validation/, manifest.parquet

Chunks are read and tokenized by worker processes; each leaves files that a later run of the same command takes up.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from adaptive_sampling._files import checked_path
from adaptive_sampling.corpus._assemble import Kept, write_prepared
from adaptive_sampling.corpus._extras import MissingExtraError, require
from adaptive_sampling.corpus._folders import folder_lock, new_parents, refuse_occupied
from adaptive_sampling.corpus._pool import Workers
from adaptive_sampling.corpus._run import Run
from adaptive_sampling.corpus._work import Work
from adaptive_sampling.corpus.clean import is_share
from adaptive_sampling.corpus.progress import Report
from adaptive_sampling.corpus.readers import Document
from adaptive_sampling.corpus.shards import SHARD_BYTES, check_shard_bytes
from adaptive_sampling.corpus.sources import Source
from adaptive_sampling.corpus.split import HeldOutFiles
from adaptive_sampling.corpus.summary import PrepareSummary, summarise
from adaptive_sampling.corpus.tokenize import check_vocab_size, for_documents, load_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NearCopies = Literal["keep", "drop"]
RECIPE_VERSION = 1  # what a run that was killed has left is taken up by the same version alone
_WORTH_KEEPING = 1 << 26  # bytes of text whose preparation is worth taking up again after an interrupt


def prepare(
    documents: Iterable[Document | Source] | Source,
    out: str | Path,
    *,
    vocab_size: int = 4096,
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    split_digits: bool = False,
    eos: str | None = None,
    validation_fraction: float = 0.1,
    validation_files: Sequence[str] | None = None,
    seed: int = 0,
    near_copies: NearCopies = "keep",
    decontaminate: bool = False,
    decontaminate_window: int = 1024,
    shard_bytes: int = SHARD_BYTES,
    oversized: Literal["own", "split"] = "own",
    num_workers: int = 0,
    ray: bool = False,
    progress: Report | None = None,
) -> PrepareSummary:
    """Make `out`/tokenizer.json, manifest.parquet, train/ and validation/, all or nothing.

    Of documents with equal normalised content the first stays; near-copies form sets. All documents of a set share a
    split, by hash(seed, content) or by a list of files. The tokenizer is trained on the training split alone. What is
    left out has a row in the manifest that says why.

    Args:
        documents: Sources, or documents one by one, in the order of the stores; a generator is consumed once.
        out: New or empty folder.
        vocab_size: Largest number of ids of the tokenizer that is trained; not used when one is given.
        tokenizer: A tokenizers.Tokenizer, the path of a tokenizer.json, or "bytes"; default: one is trained.
        split_digits: Whether each digit is a token of its own in the tokenizer that is trained.
        eos: Token of the given tokenizer that ends a document; default: "<|endoftext|>", or another usual name.
        validation_fraction: Expected share of documents held out, in [0, 1); not used with `validation_files`.
        validation_files: Patterns of files, or keys of documents, that are held out instead.
        seed: Seed of the split.
        near_copies: "keep" only records the sets, "drop" leaves the first document of each.
        decontaminate: Cut windows out of held-out documents that share a run of 32 tokens with training text.
        decontaminate_window: Tokens of such a window.
        shard_bytes: Bytes of a file of tokens, EOS counted.
        oversized: What becomes of a document that is larger: "own" file, or "split" at paragraphs.
        num_workers: Processes beside this one, started by spawn: a script that asks for them needs the usual
            `if __name__ == "__main__":`. 0: this process alone.
        ray: Run on Ray; other machines must see the files under the same paths.
        progress: Called with a `Progress` as the work goes on.

    Returns:
        Counts per source.

    Raises:
        StoreError: if `out` is occupied, or another process prepares it.
        TypeError: for something else than documents and sources.
        ValueError: for bad settings, repeated keys, text that is no Unicode, or nothing left to train on.
        OSError: if the disk is full or cannot be written; finished work is kept for the next run.
        MissingExtraError: if pyarrow, tokenizers or Ray is needed and not installed.

    Determinism: same documents and settings, same files, whatever the number of workers, killed or not. Resume: a run
    that was killed leaves `.NAME.work` beside `out`; the same call goes on from there, another call starts anew.
    Cost: texts pass through files beside `out`; per process one chunk (8 MB of text, or the longest document) and some
    100 bytes per document, 360 where near-copies are looked for.
    """
    out = checked_path("out", out).absolute()
    _check_settings(validation_fraction, seed, near_copies, oversized, num_workers, decontaminate_window)
    validation_fraction = float(validation_fraction)
    _check_documents(documents)
    check_shard_bytes(shard_bytes)
    if tokenizer is None:
        check_vocab_size(vocab_size)
    require("pyarrow", "to write a manifest")
    require("tokenizers", "to tokenize")
    ready = None if tokenizer is None else _own_tokenizer(tokenizer, eos)
    held_out = None if validation_files is None else HeldOutFiles(validation_files)
    work = Work(out)
    if not (work.path / "done").exists():
        refuse_occupied(out, "out")
    run = Run(work, out, progress)
    with folder_lock(out), new_parents(work.path), Workers(num_workers, ray=ray) as workers:
        try:
            run.plan(
                [documents] if isinstance(documents, Source) else documents,
                {
                    "recipe": RECIPE_VERSION,
                    "tokenizer": None if ready is None else hashlib.blake2b(ready.to_str().encode()).hexdigest(),
                    "vocab_size": vocab_size,
                    "split_digits": split_digits,
                    "eos": eos,
                    "fraction": validation_fraction,
                    "validation_files": None if held_out is None else held_out.settings(),
                    "seed": seed,
                    "near_copies": near_copies,
                    "decontaminate": decontaminate and decontaminate_window,
                    "shard_bytes": shard_bytes,
                    "oversized": oversized,
                },
            )
            if (work.path / "done").exists() and out.is_dir():
                work.remove()
                return summarise(out)
            refuse_occupied(out, "out")
            run.read(workers)
            groups = run.exact_groups()
            split = run.split(groups, validation_fraction, seed, held_out)
            train = vocab_size if ready is None else None
            tokens = run.tokenize(workers, ready, train, split_digits, eos, split)
            near = run.near_sets(workers, tokens)
            groups = run.join(groups, near)
            joined = run.split(groups, validation_fraction, seed, held_out)
            if ready is None and run.moved(split, joined):
                # Documents that the tokenizer learned from are held out with their near-copies: it learns again.
                tokens = run.tokenize(workers, ready, train, split_digits, eos, joined)
            run.check_splits(joined, validation_fraction if held_out is None else 1.0)
            write_prepared(
                work,
                Kept(run.chunks_rows, run.candidates, run.first, near, joined, near_copies),
                tokens,
                run.tokenizer_path,
                eos_id=run.eos_id,
                vocab_size=run.vocab_size,
                shard_bytes=shard_bytes,
                split_oversized=oversized == "split",
                decontaminate=decontaminate_window if decontaminate else 0,
                report=progress,
            )
            (work.path / "done").touch()
            if out.is_dir():
                out.rmdir()
            os.rename(work.path / "new", out)
        except (ValueError, TypeError, MissingExtraError):
            work.remove()
            raise
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise OSError(
                    error.errno,
                    f"`out` must have room to be written, got: {error.strerror}. "
                    "Free space and run the same command again: it goes on where it was",
                ) from None
            raise
        except KeyboardInterrupt:
            if run.total_bytes < _WORTH_KEEPING:
                work.remove()
            raise
        work.remove()
    return summarise(out)


def _check_settings(
    validation_fraction: float, seed: int, near_copies: str, oversized: str, num_workers: int, window: int
) -> None:
    if not is_share(validation_fraction) or validation_fraction == 1:
        raise ValueError(f"`validation_fraction` must be at least 0 and below 1, got {validation_fraction!r}. Try 0.1.")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"`seed` must be an integer of at least 0, got {seed!r}. Try 0.")
    if near_copies not in ("keep", "drop"):
        raise ValueError(f"`near_copies` must be 'keep' or 'drop', got {near_copies!r}. 'keep' only records the sets.")
    if oversized not in ("own", "split"):
        raise ValueError(f"`oversized` must be 'own' or 'split', got {oversized!r}. 'own' gives it a file of its own.")
    if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 0:
        raise ValueError(f"`num_workers` must be an integer of at least 0, got {num_workers!r}. Try {os.cpu_count()}.")
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise ValueError(f"`decontaminate_window` must be an integer of at least 1, got {window!r}. Try 1024.")


def _check_documents(documents: Any) -> None:
    if isinstance(documents, (str, bytes, os.PathLike, Document)) or not (
        isinstance(documents, Source) or hasattr(documents, "__iter__") or hasattr(documents, "__getitem__")
    ):
        raise TypeError(
            f"`documents` must be a Source, or Documents and Sources one by one, got {documents!r:.100}. "
            "Write Source(name, pattern) for files, [Document(source, key, text)] for a text."
        )


def _own_tokenizer(tokenizer: Any, eos: str | None) -> Any:
    if isinstance(tokenizer, (str, os.PathLike)):
        return load_tokenizer(tokenizer, eos=eos)
    if not hasattr(tokenizer, "to_str"):
        raise TypeError(
            f"`tokenizer` must be a tokenizers.Tokenizer or a path, got {type(tokenizer).__name__}. "
            "Of a transformers tokenizer give its `backend_tokenizer`."
        )
    # A copy, so that the settings for whole documents do not leak into the caller's object.
    return for_documents(type(tokenizer).from_str(tokenizer.to_str()), eos=eos)
