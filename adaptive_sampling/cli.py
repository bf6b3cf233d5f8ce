"""The command `adaptive-sampling`: prepare a corpus, look into it, find what is scarce, compare ways to draw windows.

Exit codes: 0 on success; 2 on bad arguments or bad input, with one line on stderr that says what, where and the cure;
130 when interrupted. `SUBCOMMANDS` is where a subcommand is added.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeAlias

import numpy as np

from adaptive_sampling import __version__, _ab_command, _scarcity_command
from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.corpus.commands import add_import, add_prepare, is_prepared, show_prepared
from adaptive_sampling.corpus.manifest import SPLITS
from adaptive_sampling.corpus.summary import format_table
from adaptive_sampling.weight_files import describe_extremes, read_weights
from adaptive_sampling.windows import WindowDataset
from adaptive_sampling.windows.command import add_window_arguments, inspect_windows, window_config

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
    except (_BadArguments, ValueError, TypeError, OSError, ImportError) as error:
        print(f"{PROGRAM}: error: {_one_line(error)}", file=sys.stderr)
        return 2
    return 0


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"`{error.filename}`: {error.strerror}. Check the path and its permissions."
    return " ".join(str(error).split())


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"{PROGRAM}: warning: {' '.join(str(message).split())}", file=sys.stderr)


def _add_inspect(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "inspect",
        help="what is in a token store or a prepared folder",
        description="Documents and tokens per source; with --seq-len also what windows of that length would read.",
    )
    parser.add_argument("path", metavar="PATH", help="token store, or folder made by prepare")
    add_window_arguments(parser)
    parser.add_argument(
        "--contamination",
        action="store_true",
        help="share of held-out windows with 32 tokens in a row of training text; windows of --seq-len or 1024 tokens",
    )
    parser.add_argument("--picture", metavar="FILE", help="write a picture of document lengths (SVG)")
    parser.add_argument(
        "--weights", metavar="FILE", help="show windows of largest and smallest weight: .npy, checkpoint"
    )
    parser.set_defaults(run=_run_inspect)


def _run_inspect(arguments: argparse.Namespace) -> None:
    config = window_config(arguments)
    if arguments.weights is not None and config is None:
        raise ValueError(f"`--weights` must come with --seq-len, got {arguments.weights!r} alone. Give --seq-len too.")
    root = Path(arguments.path)
    prepared = is_prepared(root)
    for flag in ("contamination", "picture"):
        if getattr(arguments, flag) and not prepared:
            raise ValueError(
                f"`--{flag}` must come with a folder made by prepare, got {arguments.path!r}. "
                "Give the folder that holds train and validation."
            )
    picture = arguments.windows_picture
    for path in [root / split for split in SPLITS] if prepared else [root]:
        store = TokenStore.open(path)
        print(f"{path}: {store.tokens.dtype.name}, vocabulary of {store.vocab_size} ids, {store.check_eos()}")
        print(format_table(_source_rows(store)))
        if config is not None:
            print(inspect_windows(store, config, arguments.batch_size, picture))
            picture = None
            if arguments.weights is not None and path.name != SPLITS[1]:
                dataset, tokenizer = WindowDataset(store, config), path.parent / "tokenizer.json"
                weights = read_weights(arguments.weights, len(dataset))
                print(describe_extremes(dataset, weights, tokenizer if tokenizer.exists() else None))
    if prepared:
        show_prepared(root, contamination=arguments.contamination, seq_len=arguments.seq_len, picture=arguments.picture)


def _source_rows(store: TokenStore) -> list[tuple[str, ...]]:
    lengths = store.document_ends - store.document_starts
    documents = np.bincount(store.document_sources, minlength=len(store.source_names))
    rows: list[tuple[str, ...]] = [("source", "documents", "tokens")]
    for index, name in enumerate(store.source_names):
        rows.append((name, f"{documents[index]}", f"{lengths[store.document_sources == index].sum()}"))
    return [*rows, ("all", f"{store.num_documents}", f"{store.num_tokens}")]


SUBCOMMANDS: dict[str, Callable[[Subparsers], None]] = {
    "prepare": add_prepare,
    "import": add_import,
    "inspect": _add_inspect,
    **_scarcity_command.COMMANDS,
    **_ab_command.COMMANDS,
}

if __name__ == "__main__":
    sys.exit(main())
