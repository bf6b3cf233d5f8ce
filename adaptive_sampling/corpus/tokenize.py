"""Tokenizers: byte-level BPE trained here, bytes, or any file of the tokenizers library."""

from __future__ import annotations

import functools
import json
import os
from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.corpus._extras import require
from adaptive_sampling.errors import clause

if TYPE_CHECKING:
    from tokenizers import Tokenizer

EOS_TOKEN = "<|endoftext|>"
# Where no EOS is named, the first of these that the tokenizer has.
_EOS_TOKENS = (EOS_TOKEN, "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<|end▁of▁sentence|>", "[SEP]")
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


def train_tokenizer(texts: Iterable[str], vocab_size: int = 4096, *, split_digits: bool = False) -> Tokenizer:
    """Train a byte-level BPE tokenizer (Sennrich et al. 2016; bytes as base alphabet: Radford et al. 2019).

    Args:
        texts: Training texts, read once.
        vocab_size: Largest number of ids, EOS "<|endoftext|>" included; little text gives fewer.
        split_digits: Whether each digit is a token of its own.

    Returns:
        A `tokenizers.Tokenizer`; the same texts give the same one.

    Raises:
        ValueError: if `vocab_size` is below 257.
        MissingExtraError: if tokenizers is not installed.
    """
    check_vocab_size(vocab_size)
    tokenizers = require("tokenizers", "to train a tokenizer")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, byte_level]) if split_digits else byte_level
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


def byte_tokenizer() -> Tokenizer:
    """A tokenizer whose ids are the bytes of UTF-8, 0 to 255, and EOS 256.

    Raises:
        MissingExtraError: if tokenizers is not installed.
    """
    tokenizers = require("tokenizers", "to tokenize")
    vocabulary = {character: byte for byte, character in enumerate(_byte_characters())}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([EOS_TOKEN])
    return for_documents(tokenizer)


def _byte_characters() -> list[str]:
    """The character that stands for each byte in byte-level BPE: itself if visible, else one from 256 on, in order."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    shown = set(visible)
    return [chr(byte) if byte in shown else chr(next(others)) for byte in range(256)]


def load_tokenizer(path: str | os.PathLike[str], *, eos: str | None = None) -> Tokenizer:
    """Load a tokenizer.json for whole documents: what it says of truncation and padding is switched off.

    Args:
        path: File of `Tokenizer.save`; "bytes" is the tokenizer of bytes, where no file has that name.
        eos: Token that ends a document; default: "<|endoftext|>", or another of the usual names.

    Raises:
        ValueError: if the file is no tokenizer or has no such token.
        OSError: if it cannot be read.
        MissingExtraError: if tokenizers is not installed.
    """
    tokenizers = require("tokenizers", "to load a tokenizer")
    if os.fspath(path) == "bytes" and not os.path.exists(path):
        return byte_tokenizer()
    with open(path, encoding="utf-8") as file:
        try:
            content = file.read()
        except UnicodeDecodeError as error:
            raise _no_tokenizer(path, error) from None
    try:
        tokenizer = tokenizers.Tokenizer.from_str(content)
    except Exception as error:  # the library raises bare Exception
        raise _no_tokenizer(path, error) from None
    return for_documents(tokenizer, eos=eos)


def _no_tokenizer(path: str | os.PathLike[str], error: Exception) -> ValueError:
    return ValueError(
        f"`tokenizer` must be a file of the tokenizers library, got {os.fspath(path)!r} ({error}). "
        "Save it with Tokenizer.save."
    )


def eos_id_of(tokenizer: Tokenizer, eos: str | None = None) -> int:
    """Id of the token that ends a document: `eos`, or the first usual one that the tokenizer has.

    Raises:
        ValueError: if the tokenizer lacks it.
    """
    for name in _EOS_TOKENS if eos is None else (eos,):
        eos_id: int | None = tokenizer.token_to_id(name)
        if eos_id is not None:
            return eos_id
    wanted = EOS_TOKEN if eos is None else eos
    raise ValueError(
        f"`tokenizer` must have the token {wanted!r}, got none. "
        f"Name its token with `eos`, or add it with tokenizer.add_special_tokens([{wanted!r}])."
    )


def vocab_size_of(tokenizer: Tokenizer) -> int:
    """Largest id of the full vocabulary, added tokens included, plus 1: ids may have gaps, so the count is no bound."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def token_bytes(tokenizer: Tokenizer) -> NDArray[np.int64] | None:
    """Number of bytes of UTF-8 that each id stands for, int64 [vocab_size]; None unless the tokenizer is byte-level.

    In byte-level BPE every character of a token is one byte, so that the bytes in front of a token are a running sum.
    """
    parts = json.loads(tokenizer.to_str())
    kinds = parts.get("pre_tokenizer") or {}
    if "ByteLevel" not in {part.get("type") for part in [kinds, *kinds.get("pretokenizers", [])]}:
        return None
    sizes = np.zeros(vocab_size_of(tokenizer), np.int64)
    for token, number in tokenizer.get_vocab(with_added_tokens=True).items():
        sizes[number] = len(token)
    for added in parts.get("added_tokens", []):
        sizes[added["id"]] = len(added["content"].encode("utf-8"))
    return sizes


class EncodingError(ValueError):
    """A tokenizer refuses a text, which was the `number`-th that it was given."""

    def __init__(self, number: int, error: Exception) -> None:
        super().__init__(
            f"`tokenizer` must encode every text, got {clause(error)!r} for text {number}. "
            'Give it an unknown token, or the alphabet that the text needs; "bytes" encodes everything.'
        )
        self.number, self.error = number, error


def encode_batches(
    tokenizer: Tokenizer, texts: Iterable[str], *, batch_characters: int = 1 << 20
) -> Iterator[NDArray[np.uint32]]:
    """Token ids of each text, in order, encoded some `batch_characters` at a time.

    Raises:
        EncodingError: if the tokenizer refuses a text.

    Cost: texts and tokens of one batch in memory; a longer text is a batch of its own.
    """
    batch: list[str] = []
    size = first = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= batch_characters:
            yield from _encode(tokenizer, batch, first)
            first += len(batch)
            batch, size = [], 0
    if batch:
        yield from _encode(tokenizer, batch, first)


def _encode(tokenizer: Tokenizer, batch: list[str], first: int) -> Iterator[NDArray[np.uint32]]:
    if _is_bytes(tokenizer):
        for text in batch:
            yield np.frombuffer(text.encode("utf-8"), np.uint8).astype(np.uint32)
        return
    try:
        encodings = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
    except Exception as error:  # the library raises bare Exception, and says not of which text
        raise _refused(tokenizer, batch, first, error) from None
    for encoding in encodings:
        # array.array takes a list of integers more than twice as fast as np.array does.
        yield np.frombuffer(array("I", encoding.ids), dtype=np.uint32)


def _refused(tokenizer: Tokenizer, batch: list[str], first: int, error: Exception) -> EncodingError:
    for number, text in enumerate(batch):
        try:
            tokenizer.encode(text, add_special_tokens=False)
        except Exception as own:
            return EncodingError(first + number, own)
    return EncodingError(first, error)


def _is_bytes(tokenizer: Tokenizer) -> bool:
    """Whether it is `byte_tokenizer()`, be it with other special tokens, so that the ids of a text are its bytes."""
    if tokenizer.get_vocab_size(with_added_tokens=False) != 256 or not tokenizer.encode_special_tokens:
        return False
    parts = json.loads(tokenizer.to_str())
    # Special tokens in a text are text; all other added ones are found in it.
    return _without_added(parts) == _plain_parts() and all(added["special"] for added in parts["added_tokens"])


@functools.cache
def _plain_parts() -> dict[str, Any]:
    return _without_added(json.loads(byte_tokenizer().to_str()))


def _without_added(parts: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if name != "added_tokens"}


def for_documents(tokenizer: Tokenizer, *, eos: str | None = None) -> Tokenizer:
    """Set up `tokenizer` in place for whole documents: nothing cut, nothing padded, special tokens in a text are text.

    Raises:
        ValueError: if it lacks EOS.
    """
    eos_id_of(tokenizer, eos)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # A text that spells "<|endoftext|>" is text: as an id it would end the document in its middle.
    tokenizer.encode_special_tokens = True
    return tokenizer
