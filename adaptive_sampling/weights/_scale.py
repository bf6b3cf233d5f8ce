"""m of step 5: the scale at which values between a floor and a cap have mean 1, found without a sort."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.weights._blocks import map_blocks

# Above twice this length a sample says near which m to look, so that one look at all values does.
_SAMPLE = 1 << 16
_MARGIN = 0.02
_MOST_LOOKS = 200
_ROUNDING = 1e-14


class _Look(NamedTuple):
    """How many values lie beyond floor and cap at a scale, and the sum of those between."""

    at_floor: int
    at_cap: int
    between: float


def solve_scale(values: NDArray[Any], floor: float, cap: float) -> tuple[float, float]:
    """m and floor: mean(clip(v/m, floor, cap)) = 1.

    The mean falls as m grows. Once it is known which values lie between floor and cap, m follows from their sum; so
    each look at the values gives the next m (Newton's step), and the bracket around the answer shrinks with it.

    Args:
        values: float `[N]`, finite and not negative.
        floor: in [0, 1].
        cap: ≥ 1, above `floor`; may be infinite.

    Returns:
        (m, floor), the floor as given unless nearly all values are 0; it then has to rise.

    Cost:
        Two looks at all values, where a sample of 65,536 tells m to 2 %; else a few more. No copy of them.
    """
    count = len(values)
    if floor == 1.0:
        largest = max(map_blocks(count, lambda part: float(values[part].max())))
        return largest if largest > 0 else 1.0, 1.0
    found = map_blocks(count, lambda part: _facts(values[part]))
    positive = sum(f[0] for f in found)
    if positive == 0:
        return 1.0, 1.0
    smallest = min(f[1] for f in found)
    zeros = count - positive
    if zeros and floor * zeros + cap * positive <= count:
        return smallest / cap, (count - cap * positive) / zeros
    mean = math.fsum(f[2] for f in found) / count
    # The mean of the clipped values is at least 1 at `low` (all positive values at the cap) and at most 1 at `high`.
    low, high = (smallest / cap if math.isfinite(cap) else mean), mean / (1.0 - floor)
    search = _Search(count, floor, cap)
    if count > 2 * _SAMPLE:
        near = solve_scale(values[:: count // _SAMPLE], floor, cap)[0]
        low_near, high_near = near * (1 - _MARGIN), near * (1 + _MARGIN)
        if floor * high_near < cap * low_near:
            look = _near(values, floor, cap, low_near, high_near)
            if search.mean(look(low_near), low_near) >= 1 >= search.mean(look(high_near), high_near):
                return search.run(look, low_near, high_near, near), floor
    return search.run(lambda scale: _look(values, floor, cap, scale), low, high, min(max(mean, low), high)), floor


def _facts(block: NDArray[Any]) -> tuple[int, float, float]:
    """How many values are positive, the smallest of these, and the sum."""
    positive = block if block.min() > 0 else block[block > 0]
    return len(positive), float(positive.min()) if len(positive) else math.inf, float(block.sum(dtype=np.float64))


class _Search(NamedTuple):
    """The search for m by Newton's steps in a bracket that shrinks."""

    length: int
    floor: float
    cap: float

    def _fixed(self, look: _Look) -> float:
        return self.floor * look.at_floor + (self.cap * look.at_cap if look.at_cap else 0.0)

    def mean(self, look: _Look, scale: float) -> float:
        """Mean of the clipped values at `scale`."""
        return (self._fixed(look) + look.between / scale) / self.length

    def run(self, look_at: Callable[[float], _Look], low: float, high: float, scale: float) -> float:
        """m in [low, high], starting at `scale`."""
        for _ in range(_MOST_LOOKS):
            look = look_at(scale)
            mean = self.mean(look, scale)
            rest = self.length - self._fixed(look)
            step = look.between / rest if look.between > 0 and rest > 0 else scale
            if abs(mean - 1.0) <= _ROUNDING:
                return step if abs(step - scale) <= _ROUNDING * scale else scale
            if mean > 1:
                low = scale
            else:
                high = scale
            scale = step if low < step < high else math.sqrt(low) * math.sqrt(high)
        return scale


def _look(values: NDArray[Any], floor: float, cap: float, scale: float) -> _Look:
    """A look at all values."""
    lowest, highest = floor * scale, cap * scale

    def look(part: slice) -> _Look:
        block = values[part]
        at_floor, at_cap = int(np.count_nonzero(block < lowest)), int(np.count_nonzero(block > highest))
        if at_floor or at_cap:
            block = np.where((block >= lowest) & (block <= highest), block, 0)
        return _Look(at_floor, at_cap, float(block.sum(dtype=np.float64)))

    return _total(map_blocks(len(values), look))


def _near(values: NDArray[Any], floor: float, cap: float, low: float, high: float) -> Callable[[float], _Look]:
    """What `_look` says for scales in [low, high], from one look that keeps the few values in doubt."""
    bounds = floor * low, floor * high, cap * low, cap * high

    def look(part: slice) -> tuple[_Look, NDArray[Any]]:
        block = values[part].astype(np.float64)
        at_floor, at_cap = block < bounds[0], block > bounds[3]
        sure = (block > bounds[1]) & (block < bounds[2])
        doubt = block[~(sure | at_floor | at_cap)]
        block *= sure
        return _Look(int(np.count_nonzero(at_floor)), int(np.count_nonzero(at_cap)), float(block.sum())), doubt

    looks = map_blocks(len(values), look)
    sure = _total([known for known, _ in looks])
    doubtful = np.concatenate([doubt for _, doubt in looks])

    def look_at(scale: float) -> _Look:
        return _total([sure, _look(doubtful, floor, cap, scale)])

    return look_at


def _total(looks: list[_Look]) -> _Look:
    return _Look(sum(x.at_floor for x in looks), sum(x.at_cap for x in looks), math.fsum(x.between for x in looks))
