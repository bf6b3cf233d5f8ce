"""Importance weights: what a draw made with other probabilities counts for, in the loss and as a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptive_sampling.weights._checks import checked_factors, checked_groups

KEY = "importance_weight"
"""Where a batch carries the importance weights of its windows."""


def weighted_mean(losses: Tensor, batch: Any) -> Tensor:
    """Mean of the windows' losses, each times its importance weight: the loss to return from `training_step`.

    mean(wᵢ·lossᵢ), not divided by the sum of weights: with γ = 1 its gradient, averaged over an epoch, is that of
    uniform draws (DESIGN of importance sampling; Zhao & Zhang 2015, equation 5). A batch without weights, as in
    validation or under another sampler, gives the plain mean, so that one module serves both.

    Args:
        losses: float `[B]` or `[B, T]`, one row per window; rows of several targets are averaged, all targets alike.
        batch: mapping; under "importance_weight" real `[B]`.

    Returns:
        Scalar tensor with gradient.

    Raises:
        TypeError: if `losses` is no floating-point tensor.
        ValueError: if there is not one weight per row, or a batch mean was given in place of losses.

    Example:
        >>> weighted_mean(torch.tensor([1.0, 3.0]), {"importance_weight": torch.tensor([2.0, 0.5])}).item()
        1.75
    """
    if not isinstance(losses, Tensor) or not losses.is_floating_point():
        kind = losses.dtype if isinstance(losses, Tensor) else type(losses).__name__
        raise TypeError(f"`losses` must be a floating-point tensor, got {kind}. Give one per window.")
    if losses.ndim not in (1, 2):
        raise ValueError(
            f"`losses` must have shape [B] or [B, T], got {tuple(losses.shape)}. Compute it with reduction='none'."
        )
    rows = losses if losses.ndim == 1 else losses.mean(dim=1)
    weights = batch.get(KEY) if isinstance(batch, Mapping) else None
    if weights is None:
        return rows.mean()
    weights = torch.as_tensor(weights, dtype=rows.dtype, device=rows.device)
    if weights.shape != rows.shape:
        raise ValueError(
            f"batch[{KEY!r}] must hold one weight per window ({len(rows)}), got shape {tuple(weights.shape)}. "
            "Give the losses in the order of the batch."
        )
    return (rows * weights.detach()).mean()


def share_target(sources: Any, shares: Any, priors: Any = None) -> NDArray[np.float64]:
    """The target t of importance weights where sources have shares: share of the source, even among its windows.

    Args:
        sources: integers `[N]`, source of each window, from 0.
        shares: real `[number of sources]`, not negative; scaled to sum 1.
        priors: real `[N]`: windows with prior 0 are excluded and get target 0; None: none are.

    Returns:
        float64 `[N]`, sum 1.

    Raises:
        ValueError: on a source without a share, shares that are no factors, or a share for a source without windows.
        TypeError: if sources are no integers.

    Example:
        >>> share_target([0, 0, 0, 1], [0.5, 0.5]).round(3).tolist()
        [0.167, 0.167, 0.167, 0.5]
    """
    source, share = checked_groups("sources", sources), checked_factors("shares", shares)
    if source.min() < 0 or source.max() >= len(share):
        first = int(((source < 0) | (source >= len(share))).argmax())
        raise ValueError(
            f"`sources` must be in [0, {len(share)}), as there are shares, got {int(source[first])} for window {first}."
        )
    included = np.ones(len(source), bool) if priors is None else checked_factors("priors", priors) > 0
    if len(included) != len(source):
        raise ValueError(f"`priors` must hold one entry per window ({len(source)}), got {len(included)}.")
    counts = np.bincount(source[included], minlength=len(share))
    empty = (counts == 0) & (share > 0)
    if empty.any():
        first = int(empty.argmax())
        raise ValueError(
            f"`shares` must be 0 for a source without windows, got {float(share[first])!r} for source {first}."
        )
    per_window = share / share.sum() / np.maximum(counts, 1)
    return np.where(included, per_window[source], 0.0)
