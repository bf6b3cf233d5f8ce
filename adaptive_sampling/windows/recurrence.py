"""A prior against noise: natural text, however hard, uses runs of tokens that stand elsewhere too; token soup does not.

High loss alone cannot tell noise from what is hard, and to neighbour search noise is the rarest text there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._arrays import checked_integer
from adaptive_sampling._random import keyed_generator, mix64
from adaptive_sampling.windows.dataset import WindowDataset
from adaptive_sampling.windows.priors import Prior, batch_prior, check_windows, real_inputs

_AT_A_TIME = 1 << 20  # tokens
_IN_NO_ORDER = 1 << 16
# Where the median window recurs hardly more than chance does, recurrence tells nothing.
_TELLING = 0.1
_LEAST_BITS, _MOST_BITS = 16, 28  # of the table's size: one byte for each value of so many bits of a hash
_SPARE_BITS = 3  # places per n-gram, as a power of two: so few n-grams meet another in the table by chance


def recurrence_prior(
    dataset: WindowDataset, *, ngram: int = 3, least: float = 0.25, factor: float = 0.1, reason: str = "no text"
) -> Prior:
    """Less weight for windows whose runs of tokens stand nowhere else in the store.

    Of each window it is counted which share of its n-grams stands at another place too. The same tokens in no order
    reach some share by chance. Windows that lie less than `least` of the way from there to the median get `factor`. On
    the embedded corpus with 30 % of token soup, drawn as often as in the text, that is 98 % of the soup and one window
    of text in 400. Where hardly anything recurs, as in very little text, all factors are 1.

    Args:
        dataset: The windows.
        ngram: Tokens of a run; 2 or more.
        least: Where on the way from chance, 0, to the median, 1, noise ends.
        factor: Weight of noise, in [0, 1]; 0 excludes it.
        reason: Why it is excluded, where `factor` is 0.

    Returns:
        float64 [N] factors, 1 or `factor`.

    Raises:
        ValueError: if a setting is out of its range.
        TypeError: if `dataset` is no WindowDataset.

    Cost: reads all tokens, then all windows; up to 256 MB of memory, beyond 32 M tokens for a part of the n-grams.
    """
    check_windows(dataset)
    checked_integer("ngram", ngram, 2)
    if not 0 < least < 1:
        raise ValueError(f"`least` must be above 0 and below 1, got {least!r}. Try 0.25.")
    if not 0 <= factor <= 1:
        raise ValueError(f"`factor` must be in [0, 1], got {factor!r}. 0 excludes such windows.")
    share, chance = recurring_share(dataset, ngram)
    median = float(np.median(share)) if len(share) else 0.0
    noise = (share - chance < least * (median - chance)) & (median - chance > _TELLING)
    return Prior("recurrence", np.where(noise, float(factor), 1.0), {reason: noise & (factor == 0)})


def recurring_share(dataset: WindowDataset, ngram: int = 3) -> tuple[NDArray[np.float64], float]:
    """Share of each window's n-grams that stand at another place of the store too, and what chance makes of it.

    Returns:
        float64 [N] in [0, 1], 1 where a window has no n-gram; the share of as many tokens in no order.
    """
    tokens = dataset.store.tokens
    table = _Table(tokens, ngram)

    def share(batch: Mapping[str, Any]) -> NDArray[np.float64]:
        return table.share(batch["input_ids"], real_inputs(batch), elsewhere=2)

    shares = batch_prior(dataset, share, name="recurring share").factors
    places = keyed_generator("recurrence by chance").integers(0, max(len(tokens), 1), _IN_NO_ORDER)
    shuffled = np.asarray(tokens[np.sort(places)])[np.argsort(np.argsort(places))] if len(tokens) else np.zeros(0)
    return shares, float(table.share(shuffled[None], np.ones((1, len(shuffled)), bool), elsewhere=1)[0])


class _Table:
    """Which n-grams stand at more than one place of a text, by some bits of their hashes."""

    def __init__(self, tokens: Any, ngram: int) -> None:
        self._ngram = ngram
        length = len(tokens)
        wanted = int(length - 1).bit_length() + _SPARE_BITS if length > 1 else _LEAST_BITS
        self._bits = min(max(wanted, _LEAST_BITS), _MOST_BITS)
        # Of a longer text every so-manieth n-gram is looked at, chosen by its hash, here and in windows alike.
        self._skipped_bits = np.uint64(max(wanted - _MOST_BITS, 0))
        self._seen = np.zeros(1 << self._bits, np.uint8)  # 0, 1, or 2 for more
        for first in range(0, max(length - ngram + 1, 0), _AT_A_TIME):
            hashes = _hashes(np.asarray(tokens[first : first + _AT_A_TIME + ngram - 1]), ngram)
            places, counts = np.unique(self._places(hashes[self.holds(hashes)]), return_counts=True)
            self._seen[places] = np.minimum(self._seen[places] + np.minimum(counts, 2), 2).astype(np.uint8)

    def share(self, tokens: NDArray[Any], real: NDArray[np.bool_], *, elsewhere: int) -> NDArray[np.float64]:
        """Share of each row's n-grams that stand at `elsewhere` places or more, float64 [B]; 1 where it has none."""
        hashes = _hashes(tokens, self._ngram)
        counted = real[:, self._ngram - 1 :] & self.holds(hashes)
        number = counted.sum(axis=1)
        recurring = (counted & (self._seen[self._places(hashes)] >= elsewhere)).sum(axis=1)
        return np.where(number > 0, recurring / np.maximum(number, 1), 1.0)

    def holds(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether n-grams are among those that are looked at."""
        return np.asarray((hashes & ((np.uint64(1) << self._skipped_bits) - np.uint64(1))) == 0)

    def _places(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        return (hashes >> np.uint64(64 - self._bits)).astype(np.int64)


def _hashes(tokens: NDArray[Any], ngram: int) -> NDArray[np.uint64]:
    """Hash of the n-gram that ends at each token but the first n − 1, along the last axis."""
    count = max(tokens.shape[-1] - ngram + 1, 0)
    hashes = np.zeros((*tokens.shape[:-1], count), np.uint64)
    with np.errstate(over="ignore"):
        for k in range(ngram):
            hashes = mix64(np.asarray(hashes ^ tokens[..., k : k + count].astype(np.uint64)))
    return hashes
