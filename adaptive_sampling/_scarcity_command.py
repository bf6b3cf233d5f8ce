"""The command `adaptive-sampling scarcity`: arguments in, an array and a page out."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np

from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.corpus.commands import is_prepared
from adaptive_sampling.corpus.progress import Progress, ProgressBar
from adaptive_sampling.scarcity_files import check_files, write_scarcity
from adaptive_sampling.weights.scarcity import ScarcityMeasure
from adaptive_sampling.windows import WindowConfig, WindowDataset
from adaptive_sampling.windows.command import add_window_settings, given_settings

_INDEX_KINDS = ("auto", "exact", "ivf", "hnsw", "ivfpq")


def _add_scarcity(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "scarcity",
        help="how scarce the content of each window is, as an array and a report",
        description="Find near-copies among the windows of a store; write a number per window, and a page to look at.",
    )
    parser.add_argument("path", metavar="STORE", help="token store, or folder made by prepare (its training split)")
    parser.add_argument("--out", required=True, metavar="FILE", help="array to write, q.npy: float64, mean 1")
    parser.add_argument("--report", metavar="FILE", help="page to write (default: --out with the ending .html)")
    parser.add_argument("--seq-len", type=int, default=128, metavar="N", help="inputs of a window (default: 128)")
    add_window_settings(parser)
    parser.add_argument(
        "--measure", choices=get_args(ScarcityMeasure), default="density", help="what is measured (default: density)"
    )
    parser.add_argument("--num-neighbors", type=int, default=20, metavar="K", help="neighbours looked at (default: 20)")
    parser.add_argument(
        "--threshold", type=float, metavar="T", help="similarity of near-copies (default: read from the data)"
    )
    parser.add_argument("--index", choices=_INDEX_KINDS, default="auto", help="how to search (default: auto)")
    parser.add_argument("--features", metavar="FILE", help="float32 array of your own (default: hashed tokens)")
    parser.add_argument("--save-features", metavar="FILE", help="keep hashed features; goes on if interrupted")
    parser.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json for the report (default: beside the store)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of features and search (default: 0)")
    parser.set_defaults(run=_run_scarcity)


def _run_scarcity(arguments: argparse.Namespace) -> None:
    root = Path(arguments.path)
    store = TokenStore.open(root / "train" if is_prepared(root) else root)
    check_files(arguments.out, features=arguments.features, save_features=arguments.save_features)
    dataset = WindowDataset(store, WindowConfig(arguments.seq_len, **given_settings(arguments)))
    names = ("report", "features", "save_features", "tokenizer", "measure", "num_neighbors", "threshold", "index")
    bar = ProgressBar()
    try:
        written = write_scarcity(
            dataset,
            arguments.out,
            seed=arguments.seed,
            progress=lambda stage, done, total: bar(Progress(stage, done, done, total)),
            **{name: getattr(arguments, name) for name in names},
        )
    finally:
        bar.close()
    copies = written.copies
    print(f"{store.path}: {len(dataset)} windows of {arguments.seq_len} tokens; {copies.neighbors}")
    print(
        f"near-copies at {copies.threshold:.3f} and above: {np.count_nonzero(copies.sizes > 1)} windows in "
        f"{len(np.unique(copies.sets[copies.sizes > 1]))} sets, the largest of {copies.sizes.max(initial=0)}"
    )
    print(f"scarcity: {written.out}, report: {written.report}")


COMMANDS: dict[str, Callable[[Any], None]] = {"scarcity": _add_scarcity}
