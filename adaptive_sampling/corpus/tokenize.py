"""Byte-level BPE: any text goes in, and comes out unchanged."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.corpus._extras import require

if TYPE_CHECKING:
    from tokenizers import Tokenizer

EOS_TOKEN = "<|endoftext|>"
_SMALLEST_VOCABULARY = 257  # every byte, and EOS


def check_vocab_size(vocab_size: int) -> None:
    """Refuse a number of ids that has no room for every byte and EOS.

    Raises:
        ValueError: if it is no integer of at least 257.
    """
    if isinstance(vocab_size, bool) or not isinstance(vocab_size, int) or vocab_size < _SMALLEST_VOCABULARY:
        raise ValueError(
            f"`vocab_size` must be an integer of at least {_SMALLEST_VOCABULARY}, got {vocab_size!r}. "
            "256 bytes and EOS need an id each."
        )


def train_tokenizer(texts: Iterable[str], vocab_size: int = 4096) -> Tokenizer:
    """Train a byte-level BPE tokenizer (Sennrich et al. 2016; bytes as base alphabet: Radford et al. 2019).

    Args:
        texts: Training texts, read once.
        vocab_size: Largest number of ids, EOS "<|endoftext|>" included; little text gives fewer.

    Returns:
        A `tokenizers.Tokenizer`; the same texts give the same one.

    Raises:
        ValueError: if `vocab_size` is below 257.
        MissingExtraError: if tokenizers is not installed.
    """
    check_vocab_size(vocab_size)
    tokenizers = require("tokenizers", "to train a tokenizer")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS_TOKEN],
        # Sorted, because the library gives the alphabet in the order of a hash table.
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    return for_documents(tokenizer)


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Load a tokenizer.json for whole documents: what it says of truncation and padding is switched off.

    Raises:
        ValueError: if the file is no tokenizer or has no token "<|endoftext|>".
        OSError: if it cannot be read.
        MissingExtraError: if tokenizers is not installed.
    """
    tokenizers = require("tokenizers", "to load a tokenizer")
    with open(path, encoding="utf-8") as file:
        content = file.read()
    try:
        tokenizer = tokenizers.Tokenizer.from_str(content)
    except Exception as error:  # the library raises bare Exception
        raise ValueError(
            f"`tokenizer` must be a file of the tokenizers library, got {os.fspath(path)!r} ({error}). "
            "Save it with Tokenizer.save."
        ) from None
    return for_documents(tokenizer)


def eos_id_of(tokenizer: Tokenizer) -> int:
    """Id of "<|endoftext|>".

    Raises:
        ValueError: if the tokenizer lacks it.
    """
    eos_id: int | None = tokenizer.token_to_id(EOS_TOKEN)
    if eos_id is None:
        raise ValueError(
            f"`tokenizer` must have the token {EOS_TOKEN!r}, got none. "
            f"Add it with tokenizer.add_special_tokens([{EOS_TOKEN!r}])."
        )
    return eos_id


def encode_batches(
    tokenizer: Tokenizer, texts: Iterable[str], *, batch_characters: int = 1 << 20
) -> Iterator[NDArray[np.uint32]]:
    """Token ids of each text, in order, encoded some `batch_characters` at a time.

    Cost: texts and tokens of one batch in memory; a longer text is a batch of its own.
    """
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= batch_characters:
            yield from _encode(tokenizer, batch)
            batch, size = [], 0
    if batch:
        yield from _encode(tokenizer, batch)


def _encode(tokenizer: Tokenizer, batch: list[str]) -> Iterator[NDArray[np.uint32]]:
    for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
        yield np.array(encoding.ids, dtype=np.uint32)


def for_documents(tokenizer: Tokenizer) -> Tokenizer:
    """Set up `tokenizer` in place for whole documents: nothing cut, nothing padded, special tokens in a text are text.

    Raises:
        ValueError: if it lacks "<|endoftext|>".
    """
    eos_id_of(tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # A text that spells "<|endoftext|>" is text: as an id it would end the document in its middle.
    tokenizer.encode_special_tokens = True
    return tokenizer
