"""Training data of the runs on text: corpora, scenarios and windows, each written once and kept on disk."""

from __future__ import annotations

import glob
import gzip
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Subset

import adaptive_sampling as ads
from adaptive_sampling._random import stable_hash
from adaptive_sampling.ab import TrainingData, folder_lock
from adaptive_sampling.corpus import Document, embedded_documents, prepare
from experiments import scenarios

VOCAB_SIZE = 1024
"""Small, so that a small model is soon past the point where it learns to copy: before it, repetition is what helps."""
SEQ_LEN = 128
BATCH_SIZE = 8
HELD_OUT_WINDOWS = 400
"""Windows of each source in the held-out set, at most."""

SCENARIOS: dict[str, Callable[..., ads.TokenStore] | None] = {
    "real": None,
    "clean": scenarios.clean,
    "redundant": scenarios.redundant,
    "noisy": scenarios.noisy,
    "tail": scenarios.tail,
    "small": scenarios.small,
}
_PIECE = 16_384
"""Characters from which a document of a folder of text is cut at the next blank line."""


def windows(store: Path) -> ads.WindowDataset:
    """One stream of packed windows per source."""
    return ads.WindowDataset(ads.TokenStore.open(store), ads.WindowConfig(seq_len=SEQ_LEN, pack="concat"))


def make_data(train: Path, held_out: Path, tokenizer: Path | None = None) -> TrainingData:
    """Training windows, and evenly spaced held-out windows per source, weighed by the sources' shares held out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        training, validation = windows(train), windows(held_out)
    sources = validation.sources()
    loaders = {}
    for index, name in enumerate(validation.store.source_names):
        own = np.flatnonzero(sources == index)
        if len(own):
            chosen = own[np.unique(np.linspace(0, len(own) - 1, HELD_OUT_WINDOWS).astype(np.int64))]
            loaders[name] = DataLoader(Subset(validation, chosen.tolist()), batch_size=32)
    counts = np.bincount(sources, minlength=len(validation.store.source_names))
    shares = {name: float(counts[validation.store.source_names.index(name)]) for name in loaders}
    decode = None if tokenizer is None else _decoder(tokenizer)
    return TrainingData(training, loaders, BATCH_SIZE, shares=shares, decode=decode)


def scenario_data(
    scenario: str,
    *,
    text: str | Mapping[str, str] | None = None,
    part: float = 1.0,
    embedded: bool = True,
    vocab_size: int = VOCAB_SIZE,
    root: str = "runs/text",
    **settings: Any,
) -> TrainingData:
    """Training data of a scenario; what is missing of corpus and scenario is written first.

    Args:
        scenario: a key of `SCENARIOS`.
        text: a folder of text: each folder in it is a source, and so is each file, by its name up to the first dash;
            or the name of a source and a pattern of its files, for each.
        part: share of the files of `text` that is taken, by the hash of their paths.
        embedded: take the interpreter's own library too.
        vocab_size: of the tokenizer that is trained.
        root: folder of corpora and scenarios.
        settings: arguments of the scenario.

    Raises:
        ValueError: if there is no such scenario, or no text.
    """
    if scenario not in SCENARIOS:
        raise ValueError(f"`scenario` must be one of {', '.join(SCENARIOS)}, got {scenario!r}.")
    if not 0.0 < part <= 1.0:
        raise ValueError(f"`part` must be above 0 and at most 1, got {part!r}. Try 0.1.")
    corpus = Path(root).absolute() / "-".join(
        ["corpus", *(["embedded"] if embedded else []), *_text_names(text), *([f"part{part}"] if part < 1 else [])]
        + ([f"vocab{vocab_size}"] if vocab_size != VOCAB_SIZE else [])
    )
    # Several processes may ask at once; the first one writes.
    with folder_lock(corpus.parent / f".{corpus.name}.making", wait=True):
        if not corpus.exists():
            prepare(_documents(text, part, embedded), corpus, vocab_size=vocab_size)
        train, make = corpus / "train", SCENARIOS[scenario]
        if make is not None:
            name = "-".join([scenario, *(f"{key}{value}" for key, value in sorted(settings.items()))])
            train = corpus.with_name(f"{corpus.name}-{name}")
            if not train.exists():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)
                    make(ads.TokenStore.open(corpus / "train"), train, **settings)
    return make_data(train, corpus / "validation", corpus / "tokenizer.json")


def _text_names(text: str | Mapping[str, str] | None) -> list[str]:
    if text is None:
        return []
    if not isinstance(text, Mapping):
        return [Path(text).absolute().name]
    # Other patterns under the same names are other text.
    return [*sorted(text), f"{stable_hash(*(part for pair in sorted(text.items()) for part in pair)) % 16**8:08x}"]


def _documents(text: str | Mapping[str, str] | None, part: float, embedded: bool) -> Iterator[Document]:
    if text is None and not embedded:
        raise ValueError("`text` must be a folder where `embedded` is false, got None. Give a folder of text.")
    if embedded:
        yield from embedded_documents()
    if text is not None:
        yield from text_documents(text, part)


def text_documents(text: str | Mapping[str, str], part: float = 1.0) -> Iterator[Document]:
    """Documents of the text files of a folder, or of patterns; long ones in pieces, so that some can be held out.

    Files may be packed by gzip; what is no UTF-8 is left out.

    Args:
        text: see `scenario_data`.
        part: see `scenario_data`.

    Raises:
        ValueError: if there is none.
    """
    found = False
    for source, path in _files(text):
        if stable_hash("part of the text", path.as_posix()) >= part * 2.0**128:
            continue
        try:
            content = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
        except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error):
            continue
        for number, piece in enumerate(_pieces(content)):
            found = True
            yield Document(source, f"{path.as_posix()} {number}", piece)
    if not found:
        raise ValueError(f"`text` must lead to UTF-8 text, got {text!r}. Check the path.")


def _files(text: str | Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Name of the source and path, in sorted order; of a pattern, one file under several names counts once."""
    if isinstance(text, Mapping):
        for source, pattern in sorted(text.items()):
            for path in sorted({Path(name).resolve() for name in glob.glob(pattern, recursive=True)}):
                if path.is_file():
                    yield source, path
        return
    folder = Path(text)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            inside = path.relative_to(folder).parts
            yield (inside[0] if len(inside) > 1 else path.stem.split("-")[0]), path


def _pieces(content: str) -> Iterator[str]:
    start = 0
    while start < len(content):
        cut = content.find("\n\n", start + _PIECE)
        end = len(content) if cut < 0 else cut + 2
        if content[start:end].strip():
            yield content[start:end]
        start = end


def _decoder(tokenizer: Path) -> Callable[[Sequence[int]], str]:
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(str(tokenizer))
    return lambda tokens: str(loaded.decode(list(tokens), skip_special_tokens=False))
