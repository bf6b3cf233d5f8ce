"""The commands `prepare` and `import`, and what `inspect` shows of a prepared folder."""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from adaptive_sampling._files import atomic_writer
from adaptive_sampling.corpus._extras import MissingExtraError
from adaptive_sampling.corpus._globs import find_files
from adaptive_sampling.corpus.clean import Cleaning
from adaptive_sampling.corpus.contamination import NGRAM, audit_contamination
from adaptive_sampling.corpus.decode import MIN_CONFIDENCE
from adaptive_sampling.corpus.embedded import embedded_documents
from adaptive_sampling.corpus.imports import import_megatron, import_nanogpt
from adaptive_sampling.corpus.manifest import SPLITS
from adaptive_sampling.corpus.prepare import prepare
from adaptive_sampling.corpus.progress import ProgressBar
from adaptive_sampling.corpus.readers import Document
from adaptive_sampling.corpus.shards import SHARD_BYTES
from adaptive_sampling.corpus.sources import Source
from adaptive_sampling.corpus.store import TokenStore
from adaptive_sampling.corpus.summary import format_summary, format_table, lengths_picture, summarise


def add_prepare(subparsers: Any) -> None:
    """Add the command `prepare`."""
    parser = subparsers.add_parser(
        "prepare",
        help="files to a tokenizer, a manifest and two token stores",
        description=(
            "Read files (text; JSONL, Parquet and Arrow by their suffix; folders of datasets.save_to_disk), find "
            "duplicates, split, tokenize, and store in DIR. A run that was killed goes on when it is started again."
        ),
    )
    add = parser.add_argument
    add(
        "--source",
        action="append",
        default=[],
        metavar="NAME=GLOB",
        help="name of a source and the pattern of its files; ** spans folders; repeatable",
    )
    add("--embedded", action="store_true", help="add the Python library's code and prose, no download")
    for flag, what in (
        ("text-field", "field or column of the text in JSONL, Parquet and Arrow (default: text)"),
        ("license", "licence of a source, recorded in the manifest"),
        ("usage", "note on how a source may be used, recorded in the manifest"),
        ("clean", "cleaning steps: crlf,nfc,gutenberg,paragraphs,min-chars:N,printable:SHARE (default: none)"),
    ):
        add(f"--{flag}", action="append", default=[], metavar="[NAME=]VALUE", help=f"{what}; for one source or all")
    add("--code", action="append", default=[], metavar="NAME", help="a source of code, which is never cleaned")
    add(
        "--min-confidence",
        type=float,
        default=MIN_CONFIDENCE,
        metavar="P",
        help=f"leave out what is no UTF-8 and less surely of another encoding (default: {MIN_CONFIDENCE})",
    )
    add("--tokenizer", metavar="FILE", help="tokenizer.json to use, or the word bytes; default: train one")
    add("--eos", metavar="TOKEN", help="token of the given tokenizer that ends a document (default: the usual names)")
    add("--vocab-size", type=int, metavar="N", help="largest number of ids to train (default: 4096)")
    add("--split-digits", action="store_true", help="train a tokenizer in which each digit is a token")
    add("--validation-fraction", type=float, metavar="F", help="share of documents held out (default: 0.1)")
    add(
        "--validation-files",
        action="append",
        metavar="GLOB",
        help="hold out these files instead of a share; repeatable",
    )
    add("--seed", type=int, default=0, metavar="N", help="seed of the split (default: 0)")
    add(
        "--near-copies",
        choices=("keep", "drop"),
        default="keep",
        help="keep near-copied documents, in one split, or drop all but the first (default: keep)",
    )
    add(
        "--decontaminate",
        action="store_true",
        help=f"cut windows out of held-out text that share {NGRAM} tokens in a row with training text",
    )
    add("--window", type=int, metavar="N", help="tokens of such a window (default: 1024)")
    add("--shard-bytes", type=int, default=SHARD_BYTES, metavar="N", help="bytes of a file of tokens (default: 2 GiB)")
    add(
        "--oversized",
        choices=("own", "split"),
        default="own",
        help="a larger document has a file of its own, or is split at paragraphs (default: own)",
    )
    add("--workers", type=int, metavar="N", help="worker processes; 0: none (default: one per processor)")
    add("--ray", action="store_true", help="run as Ray tasks (extra `ray`)")
    add("--out", required=True, metavar="DIR", help="new or empty folder")
    parser.set_defaults(run=_run_prepare)


def _run_prepare(arguments: argparse.Namespace) -> None:
    if not arguments.source and not arguments.embedded:
        raise ValueError("`--source` must be given at least once, got none. Give NAME=GLOB, or --embedded.")
    if arguments.tokenizer:
        for flag in ("vocab_size", "split_digits"):
            value = getattr(arguments, flag)
            if value not in (None, False):
                raise ValueError(
                    f"`--{flag.replace('_', '-')}` must be left out beside --tokenizer, got {value!r}. "
                    "The tokenizer is used as it is."
                )
    elif arguments.eos is not None:
        raise ValueError(f"`--eos` must come with --tokenizer, got {arguments.eos!r} alone. A trained one has its own.")
    if arguments.validation_files and arguments.validation_fraction is not None:
        raise ValueError(
            f"`--validation-fraction` must be left out beside --validation-files, got {arguments.validation_fraction}. "
            "The files alone are held out."
        )
    if arguments.window is not None and not arguments.decontaminate:
        raise ValueError(f"`--window` must come with --decontaminate, got {arguments.window} alone. Give it too.")
    sources = _sources(arguments)
    workers = arguments.workers
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = workers if workers > 1 and _many_bytes(sources) else 0
    progress = ProgressBar()
    try:
        summary = prepare(
            _all_documents(sources, arguments.embedded),
            arguments.out,
            vocab_size=4096 if arguments.vocab_size is None else arguments.vocab_size,
            tokenizer=arguments.tokenizer,
            split_digits=arguments.split_digits,
            eos=arguments.eos,
            validation_fraction=0.1 if arguments.validation_fraction is None else arguments.validation_fraction,
            validation_files=arguments.validation_files,
            seed=arguments.seed,
            near_copies=arguments.near_copies,
            decontaminate=arguments.decontaminate,
            decontaminate_window=1024 if arguments.window is None else arguments.window,
            shard_bytes=arguments.shard_bytes,
            oversized=arguments.oversized,
            num_workers=workers,
            ray=arguments.ray,
            progress=progress,
        )
    finally:
        progress.close()
    print(format_summary(summary))
    if arguments.decontaminate:
        print(f"{summary.decontaminated_windows} windows of held-out text cut out: they stand in training text")
    print(f"{summary.out}: vocabulary of {summary.vocab_size} ids")


def _many_bytes(sources: list[Source]) -> bool:
    """Whether there is enough to read to be worth the start of worker processes."""
    paths = [path for source in sources for path in find_files(source.pattern).files]
    return any(os.path.isdir(source.pattern) for source in sources) or sum(map(os.path.getsize, paths)) > 1 << 25


def _all_documents(sources: list[Source], embedded: bool) -> Iterator[Document | Source]:
    yield from sources
    if embedded:
        yield from embedded_documents()


def _sources(arguments: argparse.Namespace) -> list[Source]:
    pairs = [_parse_source(text) for text in arguments.source]
    names = dict.fromkeys(name for name, _ in pairs)
    fields, licenses, usages, cleanings = (
        _per_source(flag, getattr(arguments, flag.replace("-", "_")), names, parse)
        for flag, parse in (("text-field", str), ("license", str), ("usage", str), ("clean", Cleaning.parse))
    )
    for name in arguments.code:
        if name not in names:
            raise ValueError(f"`--code` must name a --source, got {name!r}. There are {', '.join(map(repr, names))}.")
    return [
        Source(
            name,
            pattern,
            text_field=fields.get(name, "text"),
            license=licenses.get(name, ""),
            usage=usages.get(name, ""),
            kind="code" if name in arguments.code else "text",
            # What is said for all sources does not hold for code; what is said for this one is refused.
            cleaning=Cleaning()
            if name in arguments.code and name not in cleanings.own
            else cleanings.get(name, Cleaning()),
            min_confidence=arguments.min_confidence,
        )
        for name, pattern in pairs
    ]


class _PerSource(dict[str, Any]):
    """Values by source; `own` are the sources that were named."""

    own: frozenset[str] = frozenset()


def _per_source(flag: str, texts: list[str], names: dict[str, None], parse: Callable[[str], Any]) -> _PerSource:
    values = _PerSource()
    named: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if equals and name in names:
            named[name] = parse(value)
        else:
            if equals:
                raise ValueError(
                    f"`--{flag}` must name a --source, got {name!r}. There are {', '.join(map(repr, names))}: write "
                    "NAME=VALUE, or for all a VALUE without '='."
                )
            values.update(dict.fromkeys(names, parse(text)))
    values.update(named)
    values.own = frozenset(named)
    return values


def _parse_source(text: str) -> tuple[str, str]:
    name, equals, pattern = text.partition("=")
    if not (name and equals and pattern):
        raise ValueError(f"`--source` must be NAME=GLOB, got {text!r}. Write for example --source 'wiki=data/*.txt'.")
    return name, pattern


def add_import(subparsers: Any) -> None:
    """Add the command `import`."""
    parser = subparsers.add_parser(
        "import",
        help="token files of nanoGPT or Megatron-Core to a token store",
        description="Make a token store of files that hold tokens already, without tokenizing again.",
    )
    parser.add_argument("format", choices=("nanogpt", "megatron"), help="flat .bin, or .bin with .idx")
    parser.add_argument("path", metavar="PATH", help="the .bin file; for megatron also the prefix of both files")
    parser.add_argument("--eos-id", type=int, required=True, metavar="N", help="id that ends a document")
    parser.add_argument("--dtype", choices=("uint16", "uint32"), help="ids of a flat file (default: uint16)")
    parser.add_argument("--vocab-size", type=int, metavar="N", help="number of ids (default: the largest plus 1)")
    parser.add_argument("--name", default="default", metavar="NAME", help="name of the source (default: default)")
    parser.add_argument("--out", required=True, metavar="DIR", help="new or empty folder")
    parser.set_defaults(run=_run_import)


def _run_import(arguments: argparse.Namespace) -> None:
    settings = {"eos_id": arguments.eos_id, "vocab_size": arguments.vocab_size, "source": arguments.name}
    if arguments.format == "nanogpt":
        store = import_nanogpt(arguments.path, arguments.out, dtype=arguments.dtype or "uint16", **settings)
    elif arguments.dtype is not None:
        raise ValueError(f"`--dtype` must be left out for megatron, got {arguments.dtype!r}. The index says it.")
    else:
        store = import_megatron(arguments.path, arguments.out, **settings)
    print(f"{store.path}: {store.num_tokens} tokens, {store.check_eos()}")


def is_prepared(root: Path) -> bool:
    """Is it a folder that `prepare` made, with a store per split?"""
    return not (root / "metadata.json").exists() and all((root / split).is_dir() for split in SPLITS)


def show_prepared(root: Path, *, contamination: bool, seq_len: int | None, picture: str | None) -> None:
    """Print the table of a prepared folder, and what else was asked for."""
    stores = {split: TokenStore.open(root / split) for split in ("train", "validation")}
    if (root / "manifest.parquet").exists():
        try:
            print(format_summary(summarise(root)))
        except MissingExtraError as error:
            warnings.warn(f"duplicates and exclusions are not shown: {error}", stacklevel=1)
    if contamination:
        window = 1024 if seq_len is None else seq_len
        audits = audit_contamination(stores["train"], stores["validation"], seq_len=window)
        rows = [("source", "held-out windows", "contaminated", "share")]
        rows += [(one.source, f"{one.windows}", f"{one.contaminated}", f"{one.share:.1%}") for one in audits]
        if any(one.windows for one in audits):
            print(f"held-out windows of {window} tokens with {NGRAM} in a row that stand in training text")
            print(format_table(rows))
        else:
            print(f"no held-out windows of {window} tokens, so none stands in training text")
        if any(one.contaminated for one in audits):
            print("a loss on such windows looks better than it is: `prepare --decontaminate` cuts them out")
    if picture is not None:
        with atomic_writer(picture, "w") as file:
            file.write(lengths_picture(stores))
        print(f"{picture}: lengths of documents")


COMMANDS: dict[str, Callable[[Any], None]] = {"prepare": add_prepare, "import": add_import}
