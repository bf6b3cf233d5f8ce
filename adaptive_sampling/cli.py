"""The command `adaptive-sampling`: prepare a corpus, look into a token store.

Exit codes: 0 on success; 2 on bad arguments or bad input, with one line on stderr that says what, where and the cure;
130 when interrupted. `SUBCOMMANDS` is where a subcommand is added.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn, TypeAlias

import numpy as np

from adaptive_sampling import __version__
from adaptive_sampling.corpus import Document, TokenStore, embedded_documents, prepare, read_text_files
from adaptive_sampling.corpus._extras import MissingExtraError
from adaptive_sampling.corpus.manifest import SPLITS
from adaptive_sampling.windows import WindowConfig, WindowDataset, audit

PROGRAM = "adaptive-sampling"


class _BadArguments(Exception):
    """Arguments that argparse refuses; `main` prints them like all other errors."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _BadArguments(f"{message}. See `{self.prog} --help`.")


Subparsers: TypeAlias = "argparse._SubParsersAction[_Parser]"  # argparse has no public name for it


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the program's name; default: those of the process.

    Returns:
        The exit code.
    """
    parser = _Parser(prog=PROGRAM, description="Prepare text for training windows and look into what was prepared.")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in SUBCOMMANDS.values():
        add(subparsers)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning
            arguments = parser.parse_args(argv)
            arguments.run(arguments)
    except SystemExit as finished:  # --help and --version
        return finished.code if isinstance(finished.code, int) else 0
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return 130
    except (_BadArguments, ValueError, TypeError, OSError, MissingExtraError) as error:
        print(f"{PROGRAM}: error: {_one_line(error)}", file=sys.stderr)
        return 2
    return 0


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"`{error.filename}`: {error.strerror}. Check the path and its permissions."
    return " ".join(str(error).split())


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"{PROGRAM}: warning: {' '.join(str(message).split())}", file=sys.stderr)


def _add_prepare(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "prepare",
        help="text files to a tokenizer, a manifest and two token stores",
        description="Read text files, drop exact duplicates, split, tokenize, and store in DIR.",
    )
    parser.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="NAME=GLOB",
        help="name of a source and the pattern of its UTF-8 files, one document each; ** spans folders; repeatable",
    )
    parser.add_argument("--embedded", action="store_true", help="add the Python library's code and prose, no download")
    parser.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json to use; default: train one")
    parser.add_argument("--vocab-size", type=int, metavar="N", help="largest number of ids to train (default: 4096)")
    parser.add_argument(
        "--validation-fraction", type=float, default=0.1, metavar="F", help="share of documents held out (default: 0.1)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the split (default: 0)")
    parser.add_argument("--out", required=True, metavar="DIR", help="new or empty folder")
    parser.set_defaults(run=_run_prepare)


def _run_prepare(arguments: argparse.Namespace) -> None:
    if not arguments.source and not arguments.embedded:
        raise ValueError("`--source` must be given at least once, got none. Give NAME=GLOB, or --embedded.")
    if arguments.tokenizer and arguments.vocab_size is not None:
        raise ValueError(
            f"`--vocab-size` must be left out beside --tokenizer, got {arguments.vocab_size}. "
            "The tokenizer has its own number of ids."
        )
    sources = [_parse_source(text) for text in arguments.source]
    streams = [read_text_files(name, pattern) for name, pattern in sources]
    if arguments.embedded:
        streams.append(embedded_documents())
    progress = _Progress()
    try:
        summary = prepare(
            _chain(streams),
            arguments.out,
            vocab_size=4096 if arguments.vocab_size is None else arguments.vocab_size,
            tokenizer=arguments.tokenizer,
            validation_fraction=arguments.validation_fraction,
            seed=arguments.seed,
            progress=progress,
        )
    finally:
        progress.close()
    rows = [("source", "documents", "duplicates", "train", "validation", "tokens", "bytes/token")]
    rows += [
        (
            source.source,
            f"{source.documents}",
            f"{source.duplicates}",
            f"{source.train_documents}",
            f"{source.validation_documents}",
            f"{source.train_tokens + source.validation_tokens}",
            f"{source.bytes_per_token:.2f}",
        )
        for source in summary.sources
    ]
    print(_table(rows))
    print(f"{summary.out}: vocabulary of {summary.vocab_size} ids")


def _parse_source(text: str) -> tuple[str, str]:
    name, equals, pattern = text.partition("=")
    if not (name and equals and pattern):
        raise ValueError(f"`--source` must be NAME=GLOB, got {text!r}. Write for example --source 'wiki=data/*.txt'.")
    return name, pattern


def _chain(streams: list[Iterator[Document]]) -> Iterator[Document]:
    for stream in streams:
        yield from stream


def _add_inspect(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "inspect",
        help="what is in a token store or a prepared folder",
        description="Documents and tokens per source; with --seq-len also what windows of that length would read.",
    )
    parser.add_argument("path", metavar="PATH", help="token store, or folder made by prepare")
    parser.add_argument("--seq-len", type=int, metavar="N", help="audit windows of N inputs")
    parser.add_argument("--stride", type=int, metavar="N", help="distance of window starts (default: --seq-len)")
    parser.add_argument("--pack", choices=("none", "concat"), help="windows within documents or across (default: none)")
    parser.add_argument("--tail", choices=("drop", "cover", "pad"), help="what becomes of the rest (default: drop)")
    parser.set_defaults(run=_run_inspect)


def _run_inspect(arguments: argparse.Namespace) -> None:
    settings = {name: getattr(arguments, name) for name in ("stride", "pack", "tail")}
    given = {name: value for name, value in settings.items() if value is not None}
    if arguments.seq_len is None and given:
        name, value = next(iter(given.items()))
        raise ValueError(f"`--{name}` must come with --seq-len, got {value!r} alone. Give --seq-len too.")
    config = None if arguments.seq_len is None else WindowConfig(arguments.seq_len, **given)
    root = Path(arguments.path)
    prepared = not (root / "metadata.json").exists() and all((root / split).is_dir() for split in SPLITS)
    for path in [root / split for split in SPLITS] if prepared else [root]:
        store = TokenStore.open(path)
        print(f"{path}: {store.tokens.dtype.name}, vocabulary of {store.vocab_size} ids, {store.check_eos()}")
        print(_table(_source_rows(store)))
        if config is not None:
            print(audit(WindowDataset(store, config)).format())


def _source_rows(store: TokenStore) -> list[tuple[str, ...]]:
    lengths = store.document_ends - store.document_starts
    documents = np.bincount(store.document_sources, minlength=len(store.source_names))
    rows: list[tuple[str, ...]] = [("source", "documents", "tokens")]
    for index, name in enumerate(store.source_names):
        rows.append((name, f"{documents[index]}", f"{lengths[store.document_sources == index].sum()}"))
    return [*rows, ("all", f"{store.num_documents}", f"{store.num_tokens}")]


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as text, the first column to the left and numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


class _Progress:
    """A line on stderr that is written over, on a terminal only: logs and pipes get none of it."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._next = 0.0

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if not self._shown or (now < self._next and done != total):
            return
        self._next = now + 0.1
        amount = (
            f"{done}" if total is None else f"[{'#' * (20 * done // max(total, 1)):<20}] {100 * done // max(total, 1)}%"
        )
        print(f"\r\x1b[K{stage}: {amount}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


SUBCOMMANDS: dict[str, Callable[[Subparsers], None]] = {
    "prepare": _add_prepare,
    "inspect": _add_inspect,
}

if __name__ == "__main__":
    sys.exit(main())
