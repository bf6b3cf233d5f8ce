"""The part of `adaptive-sampling inspect` that looks at windows."""

from __future__ import annotations

import argparse
from typing import Any

from adaptive_sampling._files import atomic_writer
from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.corpus.tokenize import load_tokenizer
from adaptive_sampling.windows.audit import audit
from adaptive_sampling.windows.audit_picture import audit_svg
from adaptive_sampling.windows.config import WindowConfig
from adaptive_sampling.windows.dataset import WindowDataset
from adaptive_sampling.windows.numbers import NumberTokens

_DEFAULT_SEQ_LEN = 1024
_SETTINGS = ("stride", "pack", "tail", "align", "group_by", "thinning", "min_length")


def add_window_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --windows and the settings of windows."""
    parser.add_argument(
        "--windows", action="store_true", help=f"audit windows (of {_DEFAULT_SEQ_LEN} inputs unless --seq-len is given)"
    )
    parser.add_argument("--seq-len", type=int, metavar="N", help="audit windows of N inputs")
    add_window_settings(parser)
    parser.add_argument("--batch-size", type=int, metavar="N", help="warn of a set smaller than N (default: 32)")
    parser.add_argument(
        "--windows-picture", metavar="FILE", help="write the audit as a picture (SVG), of the first store shown"
    )


def add_window_settings(parser: argparse.ArgumentParser) -> None:
    """Add the settings of windows but their length."""
    parser.add_argument("--stride", type=int, metavar="N", help="distance of window starts (default: --seq-len)")
    parser.add_argument(
        "--pack",
        choices=("none", "concat", "best_fit"),
        help="windows within documents, across them, or shared by whole documents (default: none)",
    )
    parser.add_argument("--tail", choices=("drop", "cover", "pad"), help="what becomes of the rest (default: drop)")
    parser.add_argument("--align", choices=("none", "document", "paragraph"), help="where starts move to")
    parser.add_argument("--group-by", metavar="COLUMN", help="with --pack concat: a stream per value of the manifest")
    parser.add_argument("--thinning", type=float, metavar="F", help="share of windows to keep (default: 1.0)")
    parser.add_argument("--min-length", type=int, metavar="N", help="leave shorter documents out (default: 0)")


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Those of `add_window_settings` that stand on the command line, as arguments of `WindowConfig`."""
    return {name: value for name in _SETTINGS if (value := getattr(arguments, name)) is not None}


def window_config(arguments: argparse.Namespace) -> WindowConfig | None:
    """Settings from the command line; None where no windows are asked for.

    Raises:
        ValueError, TypeError: for settings that are wrong, or given without windows.
    """
    given = given_settings(arguments)
    if not arguments.windows and arguments.seq_len is None:
        extra = {**given, **{name: getattr(arguments, name) for name in ("batch_size", "windows_picture")}}
        for name, value in extra.items():
            if value is not None:
                flag = name.replace("_", "-")
                raise ValueError(f"`--{flag}` must come with --seq-len, got {value!r} alone. Give --seq-len too.")
        return None
    if arguments.batch_size is not None and arguments.batch_size < 1:
        raise ValueError(f"`--batch-size` must be at least 1, got {arguments.batch_size}. Leave it out for 32.")
    seq_len = _DEFAULT_SEQ_LEN if arguments.seq_len is None else arguments.seq_len
    return WindowConfig(seq_len, given.pop("stride", None), **given)


def inspect_windows(store: TokenStore, config: WindowConfig, batch_size: int | None, picture: str | None) -> str:
    """Audit the windows of `store`; the table, after the picture is written.

    Args:
        store: What to look at; digits are known if a tokenizer.json is in its folder or above it.
        config: Settings of the windows.
        batch_size: Windows of a training batch; None: 32.
        picture: File for the picture; None: no picture.
    """
    found = audit(
        WindowDataset(store, config),
        batch_size=32 if batch_size is None else batch_size,
        digits=_digits(store),
    )
    if picture is not None:
        with atomic_writer(picture, "w") as file:
            file.write(audit_svg(found, f"{store.path.parent.name}/{store.path.name}, windows of {config.seq_len}"))
    return found.format()


def _digits(store: TokenStore) -> Any:
    for folder in (store.path, store.path.parent):
        file = folder / "tokenizer.json"
        if file.exists():
            numbers = NumberTokens.from_vocabulary(load_tokenizer(file))
            if len(numbers) == store.vocab_size:
                return numbers.digits
    return None
