"""Which tokens of a vocabulary are numbers or parts of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SPACES = " \t\n\r\u0120\u010a\u2581"  # the signs of byte-level and SentencePiece vocabularies for a space, too
_JOINTS = frozenset(".%/:-")  # decimal point, percent, separators of dates and times
OTHER, STARTS, GOES_ON, JOINS = 0, 1, 2, 3


class NumberTokens:
    """What each token id is: OTHER, STARTS a number behind a space, GOES_ON with digits, or JOINS digits to digits.

    Args:
        kinds: uint8 [vocab_size] of these four.

    Raises:
        ValueError: for other kinds.
    """

    def __init__(self, kinds: Any) -> None:
        array = np.asarray(kinds)
        if array.ndim != 1 or array.dtype.kind not in "iu" or (len(array) and not 0 <= array.min() <= array.max() <= 3):
            raise ValueError(
                f"`kinds` must be integers from 0 to 3, got {array.dtype} {array.shape}. Use from_vocabulary."
            )
        self.kinds: NDArray[np.uint8] = array.astype(np.uint8)

    @classmethod
    def from_vocabulary(cls, vocabulary: Any) -> NumberTokens:
        """Scan a vocabulary once.

        Args:
            vocabulary: A `tokenizers.Tokenizer`, a mapping from token to id, or the tokens in order of their ids.

        Raises:
            TypeError: for something else.

        Example:
            >>> NumberTokens.from_vocabulary(["the", " 12", "34", ".", "%", "a1"]).kinds.tolist()
            [0, 1, 2, 3, 3, 0]
        """
        if hasattr(vocabulary, "get_vocab"):
            vocabulary = vocabulary.get_vocab()
        pairs: Iterable[tuple[Any, Any]]
        if isinstance(vocabulary, Mapping):
            pairs = list(vocabulary.items())
        elif isinstance(vocabulary, Iterable) and not isinstance(vocabulary, (str, bytes)):
            pairs = [(token, index) for index, token in enumerate(vocabulary)]
        else:
            raise TypeError(
                f"`vocabulary` must be a tokenizer, a mapping from token to id, or a list of tokens, "
                f"got {type(vocabulary).__name__}."
            )
        kinds = np.zeros(max((index for _, index in pairs), default=-1) + 1, np.uint8)
        for token, index in pairs:
            kinds[index] = _kind(token.decode("utf-8", "replace") if isinstance(token, bytes) else str(token))
        return cls(kinds)

    @property
    def digits(self) -> NDArray[np.bool_]:
        """bool [vocab_size], tokens with digits in them and nothing but numbers."""
        found: NDArray[np.bool_] = (self.kinds == STARTS) | (self.kinds == GOES_ON)
        return found

    def __len__(self) -> int:
        return len(self.kinds)


def _kind(token: str) -> int:
    text = token.lstrip(_SPACES)
    if not text or not all(sign.isdecimal() or sign in _JOINTS for sign in text):
        return OTHER
    if not any(sign.isdecimal() for sign in text):
        return JOINS if text == token else OTHER
    return STARTS if text != token else GOES_ON


def number_starts(kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Where a number begins; tokens of one number, joints between its digits included, count once.

    Args:
        kinds: uint8 [B, W], kinds of the tokens of each window.

    Returns:
        bool [B, W].
    """
    digits = (kinds == STARTS) | (kinds == GOES_ON)
    behind_digit = np.zeros(kinds.shape, bool)
    behind_digit[:, 1:] = digits[:, :-1]
    behind_digit[:, 2:] |= (kinds[:, 1:-1] == JOINS) & digits[:, :-2]
    begins: NDArray[np.bool_] = (kinds == STARTS) | ((kinds == GOES_ON) & ~behind_digit)
    return begins


def has_number_list(kinds: NDArray[np.uint8], least: int = 4, gap: int = 2) -> NDArray[np.bool_]:
    """Whether a window holds a list of numbers: `least` of them, with at most `gap` other tokens between two.

    Args:
        kinds: uint8 [B, W], kinds of the tokens of each window.
        least: Numbers of a list.
        gap: Other tokens allowed between two of them, a joint included.

    Returns:
        bool [B].
    """
    begins = number_starts(kinds)
    digits = (kinds == STARTS) | (kinds == GOES_ON)
    rows, columns = np.nonzero(begins)
    if len(rows) < least:
        return np.zeros(len(kinds), bool)
    # The last token of each number: the last digit before the next number begins.
    flat = np.flatnonzero(digits)
    width = kinds.shape[1]
    place = rows * width + columns
    last = flat[np.append(np.searchsorted(flat, place[1:]), len(flat)) - 1]
    near = (rows[1:] == rows[:-1]) & (place[1:] - last[:-1] - 1 <= gap)
    run = np.cumsum(near)
    # `least` numbers in a row are `least - 1` near neighbours in a row.
    steps = least - 1
    full = np.append(0, run)
    in_list = full[steps:] - full[: len(full) - steps] == steps
    found = np.zeros(len(kinds), bool)
    found[rows[: len(in_list)][in_list]] = True
    return found
