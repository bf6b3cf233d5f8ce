"""The command `adaptive-sampling inspect`: what is in a token store or a prepared folder."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.corpus._store_checks import check_vocabulary
from adaptive_sampling.corpus.commands import is_prepared, show_prepared
from adaptive_sampling.corpus.contamination import check_window
from adaptive_sampling.corpus.manifest import SPLITS
from adaptive_sampling.corpus.summary import format_table
from adaptive_sampling.weight_files import describe_extremes, read_weights
from adaptive_sampling.windows import WindowConfig, WindowDataset
from adaptive_sampling.windows.command import add_window_arguments, inspect_windows, window_config


def _add_inspect(subparsers: Any) -> None:
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
        "--verify", action="store_true", help="read every file and compare it with its checksum, not its size alone"
    )
    parser.add_argument(
        "--weights", metavar="FILE", help="show windows of largest and smallest weight: .npy, checkpoint"
    )
    parser.set_defaults(run=_run_inspect)


def _run_inspect(arguments: argparse.Namespace) -> None:
    config = window_config(arguments)
    if arguments.weights is not None and config is None:
        raise ValueError(f"`--weights` must come with --seq-len, got {arguments.weights!r} alone. Give --seq-len too.")
    for flag in ("picture", "windows_picture"):
        name = getattr(arguments, flag)
        if name is not None and not name.lower().endswith(".svg"):
            raise ValueError(
                f"`--{flag.replace('_', '-')}` must end with .svg, which is what is written, got {name!r}. Rename it."
            )
    root = Path(arguments.path)
    prepared = is_prepared(root)
    for flag in ("contamination", "picture"):
        if getattr(arguments, flag) and not prepared:
            raise ValueError(
                f"`--{flag}` must come with a folder made by prepare, got {arguments.path!r}. "
                "Give the folder that holds train and validation."
            )
    if arguments.contamination and arguments.seq_len is not None:
        check_window(arguments.seq_len, name="--seq-len")
    verify: Literal["size", "hash"] = "hash" if arguments.verify else "size"
    stores = [TokenStore.open(path, verify) for path in ([root / split for split in SPLITS] if prepared else [root])]
    for store in stores:
        check_vocabulary(store)
    weights = None
    if arguments.weights is not None and config is not None:
        # Before the audit, which reads all tokens.
        weights = read_weights(arguments.weights, len(_windows(stores[0], config)[0]))
    picture = arguments.windows_picture
    for store in stores:
        path = root / store.path.name if prepared else root
        print(f"{path}: {store.tokens.dtype.name}, vocabulary of {store.vocab_size} ids, {store.check_eos()}")
        print(format_table(_source_rows(store)))
        if config is None:
            continue
        dataset, said = _windows(store, config)
        if not len(dataset):
            for message in said:
                warnings.warn(message, stacklevel=1)
            print(f"{path}: no windows of {config.seq_len} inputs")
            continue
        print(inspect_windows(store, config, arguments.batch_size, picture))
        picture = None
        if weights is not None and store is stores[0]:
            tokenizer = path.parent / "tokenizer.json"
            print(describe_extremes(dataset, weights, tokenizer if tokenizer.exists() else None))
    if picture is not None:
        print(f"{picture}: not written, for there are no windows")
    if prepared:
        show_prepared(root, contamination=arguments.contamination, seq_len=arguments.seq_len, picture=arguments.picture)


def _windows(store: TokenStore, config: WindowConfig) -> tuple[WindowDataset, list[Warning | str]]:
    """The windows, and the warnings that come with them, which the audit gives again."""
    with warnings.catch_warnings(record=True) as said:
        dataset = WindowDataset(store, config)
    return dataset, [warning.message for warning in said]


def _source_rows(store: TokenStore) -> list[tuple[str, ...]]:
    lengths = store.document_ends - store.document_starts
    documents = np.bincount(store.document_sources, minlength=len(store.source_names))
    rows: list[tuple[str, ...]] = [("source", "documents", "tokens")]
    for index, name in enumerate(store.source_names):
        rows.append((name, f"{documents[index]}", f"{lengths[store.document_sources == index].sum()}"))
    return [*rows, ("all", f"{store.num_documents}", f"{store.num_tokens}")]


COMMANDS: dict[str, Callable[[Any], None]] = {"inspect": _add_inspect}
