"""Shares of tokens per source, constant or as a schedule over the stream, and how they become whole numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._arrays import checked_integer

SourceShares = Mapping[Any, float] | Sequence[tuple[int, Mapping[Any, float]]]


def apportion(amounts: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Whole numbers that sum to `total`, as close to `amounts` as may be: the largest remainders are rounded up.

    Args:
        amounts: float64 `[S]`, about `total` in sum; negative ones count as 0.
        total: what the result sums to.

    Returns:
        int64 `[S]`, none negative. Equal remainders go to the first in order.

    Source:
        Hamilton's method of apportionment (largest remainder).

    Example:
        >>> apportion(np.array([0.6, 0.28, 0.12]) * 10, 10)
        array([6, 3, 1])
    """
    amounts = np.maximum(amounts, 0.0)
    # Products of shares miss whole numbers by rounding errors, which must not decide who gets the last draw.
    whole = np.floor(amounts + 1e-9).astype(np.int64)
    missing = total - int(whole.sum())
    remainders = np.round(amounts - whole, 9)
    if missing > 0:
        order = np.argsort(-remainders, kind="stable")
        whole += missing // len(whole)
        whole[order[: missing % len(whole)]] += 1
    while missing < 0:
        # Only where negative amounts were raised to 0.
        candidates = np.flatnonzero(whole > 0)
        order = candidates[np.argsort(remainders[candidates], kind="stable")][:-missing]
        whole[order] -= 1
        missing += len(order)
    return whole


class ShareSchedule:
    """Shares per source as a function of the stream position: linear between the given positions, constant outside.

    Args:
        shares: name → share, not negative, in any common unit; or a list of (position in draws, shares).
        names: all sources, in their order.

    Raises:
        ValueError, TypeError: naming the source whose share is unknown, missing, negative or not finite, or the
            position that does not rise.
    """

    def __init__(self, shares: SourceShares, names: Sequence[Any]) -> None:
        points = [(0, shares)] if isinstance(shares, Mapping) else shares
        if not isinstance(points, (list, tuple)) or not points:
            raise TypeError(
                f"`source_shares` must map names of sources to shares, or be a list of (position, shares), "
                f"got {shares!r}."
            )
        self.positions = np.array([_checked_position(point) for point in points], np.int64)
        if (np.diff(self.positions) <= 0).any():
            raise ValueError(f"positions in `source_shares` must rise, got {self.positions.tolist()}.")
        self.values = np.array([_checked_shares(point[1], names) for point in points])

    def at(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Shares at stream positions `[k]`: float64 `[k, S]`, each row sums to 1."""
        if len(self.positions) == 1:
            return np.repeat(self.values, len(positions), 0)
        return np.stack([np.interp(positions, self.positions, column) for column in self.values.T], 1)

    @property
    def constant(self) -> bool:
        """Whether the shares are the same everywhere."""
        return len(self.positions) == 1

    def state(self) -> dict[str, Any]:
        """Primitives that say what the schedule is."""
        return {"positions": self.positions.tolist(), "shares": self.values.tolist()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> ShareSchedule:
        """Counterpart of `state`."""
        schedule = cls.__new__(cls)
        schedule.positions = np.array(state["positions"], np.int64)
        schedule.values = np.array(state["shares"])
        return schedule


def _checked_position(point: Any) -> int:
    if not isinstance(point, (tuple, list)) or len(point) != 2:
        raise TypeError(f"entries of `source_shares` must be (position, shares), got {point!r}.")
    return checked_integer("position in source_shares", point[0], 0)


def _checked_shares(shares: Any, names: Sequence[Any]) -> NDArray[np.float64]:
    if not isinstance(shares, Mapping):
        raise TypeError(f"`source_shares` must map names of sources to shares, got {shares!r}.")
    for name in shares:
        if name not in names:
            raise ValueError(f"`source_shares` must name sources of the data, got {name!r}. There are {list(names)}.")
    for name in names:
        if name not in shares:
            raise ValueError(
                f"`source_shares` must have a share for each source, got none for {name!r}. Give 0 to leave it out."
            )
        share = shares[name]
        if isinstance(share, bool) or not isinstance(share, (int, float, np.number)):
            raise TypeError(f"`source_shares` must be numbers, got {share!r} for source {name!r}.")
        if not (math.isfinite(share) and share >= 0):
            raise ValueError(f"`source_shares` must be finite and not negative, got {share!r} for source {name!r}.")
    values = np.array([float(shares[name]) for name in names])
    if not values.sum() > 0:
        raise ValueError(f"`source_shares` must not all be zero, got {dict(shares)!r}.")
    normalised: NDArray[np.float64] = values / values.sum()
    return normalised
