"""How unevenly weights are spread: the sign of a policy that has gone too far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Concentration:
    """Attributes:
    effective_sample_size: (Σw)²/(N·Σw²): 1 for equal weights, 0.5 as varied as half the windows.
    top_percent_mass: share of all weight on the heaviest 1 % of the windows, at least one; 0.01 for equal weights.
    num_at_cap: windows at the largest weight that the cap allows.
    """

    effective_sample_size: float
    top_percent_mass: float
    num_at_cap: int


def concentration(weights: Any, largest: float) -> Concentration:
    """The `Concentration` of weights.

    Args:
        weights: real `[N]`, not negative, not all 0; leave excluded windows out.
        largest: the weight at the cap, may be infinite.

    Cost:
        O(N), 8 bytes per window.

    Example:
        >>> concentration([1.0, 1.0, 1.0, 3.0], largest=3.0)
        Concentration(effective_sample_size=0.75, top_percent_mass=0.5, num_at_cap=1)
    """
    values = np.asarray(weights, np.float64)
    total, count = float(values.sum()), len(values)
    top = -(-count // 100)
    return Concentration(
        effective_sample_size=total * total / (count * float(np.square(values).sum())),
        top_percent_mass=float(np.partition(values, count - top)[count - top :].sum()) / total,
        num_at_cap=int(np.count_nonzero(values >= largest)),
    )
