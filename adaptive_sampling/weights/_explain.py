"""Every factor of one window's weight, in the order of the steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.weights import _full_pass, transforms
from adaptive_sampling.weights._full_pass import Frozen, Parts


def explanation(frozen: Frozen, parts: Parts, ids: NDArray[np.int64]) -> dict[str, Any]:
    """The factors of the weight of window `ids[0]`; see `WeightPolicy.explain`."""
    rows = parts.table.of(ids)
    _, scarcity, prior = (x[0] if isinstance(x, np.ndarray) else x for x in parts.arrays.of(ids))
    seen, visited = frozen.any_seen, bool(rows.visits[0])
    unknown = float("nan")
    shrunk = reducible = clipped = learnable = unknown
    values = np.ones(1, np.float32)
    if seen:
        shrunk = float(_full_pass.shrunk(frozen, parts, ids)[0])
        learnable = float(np.ravel(_full_pass.learnable(frozen, parts, ids))[0])
        entering = _full_pass.reducible(frozen, parts, ids)
        reducible = float(entering[0])
        clipped = float(np.clip(reducible, frozen.low, frozen.high))
        values = _full_pass.powered(frozen, parts, entering)
    learned = _full_pass.ramped(frozen, values)
    combined = _full_pass.combined(frozen, parts, learned, ids)
    free = float(combined[0]) / frozen.scale
    limited = float(transforms.limit(combined.astype(np.float64), frozen.scale, frozen.floor, frozen.moment.cap)[0])
    weight = float(_full_pass.limited(frozen, parts, combined, ids)[0])
    limit = None
    if prior == 0:
        limit = "excluded"
    elif limited != free:
        limit = "floor" if limited > free else "cap"
    in_groups = seen and parts.signal.known is None
    return {
        "window_id": int(ids[0]),
        "score": float(rows.score[0]) if visited else unknown,
        "visits": int(rows.visits[0]),
        "brought_forward": float(_full_pass.forward(frozen, parts, ids)[0]) if visited else unknown,
        "group_mean": float(np.ravel(frozen.group_means[_full_pass.group_of(parts, ids)])[0]) if in_groups else unknown,
        "shrunk": shrunk,
        "learnable": learnable,
        "reducible": reducible,
        "clip": (frozen.low, frozen.high) if seen else (unknown, unknown),
        "clipped": clipped,
        "relative": float(values[0]) / frozen.mean if seen and frozen.mean > 0 else 1.0,
        "ramp": frozen.moment.ramp,
        "learned": float(learned[0]),
        "scarcity": float(scarcity),
        "prior": float(prior),
        "combined": float(combined[0]),
        "scale": 1.0 / frozen.scale,
        "limit": limit,
        "limit_factor": 1.0 if limit in (None, "excluded") else (limited / free if free > 0 else float("inf")),
        "uniform": frozen.uniform,
        "uniform_factor": 1.0 if limit == "excluded" or limited == 0 else weight / limited,
    }
