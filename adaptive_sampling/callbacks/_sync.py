"""Ranks: observations go to rank 0, changed weights come back. The same calls on every rank, whatever happens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

Weights = tuple[NDArray[np.int64] | None, NDArray[np.float32]]


def is_parallel() -> bool:
    """Do several ranks take part?"""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def gather_observations(ids: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Observations of all ranks, in rank order; every rank gets them.

    Args:
        ids: int64 `[k]`, k may differ between ranks and be 0.
        values: float32 `[k]`.

    Returns:
        The concatenated ids and values on the CPU.
    """
    if not is_parallel():
        return ids.cpu(), values.cpu()
    device = _device()
    world = dist.get_world_size()
    counts = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world)]
    dist.all_gather(counts, torch.tensor([len(ids)], dtype=torch.int64, device=device))
    lengths = [int(count) for count in counts]
    capacity = max(*lengths, 1)
    all_ids = _all_gather_padded(ids.to(device, torch.int64), capacity, world)
    all_values = _all_gather_padded(values.to(device, torch.float32), capacity, world)
    return (
        torch.cat([part[:n].cpu() for part, n in zip(all_ids, lengths, strict=True)]),
        torch.cat([part[:n].cpu() for part, n in zip(all_values, lengths, strict=True)]),
    )


def _all_gather_padded(values: Tensor, capacity: int, world: int) -> list[Tensor]:
    padded = torch.zeros(capacity, dtype=values.dtype, device=values.device)
    padded[: len(values)] = values
    parts = [torch.zeros_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    return parts


def broadcast_weights(compute: Callable[[], Weights]) -> Weights:
    """Run `compute` on rank 0 and hand its result, or its error, to all ranks.

    Returns:
        (ids, values) of the weights that changed; ids None: all windows.

    Raises:
        RuntimeError: on the other ranks, with rank 0's message; on rank 0 the error itself.
    """
    if not is_parallel():
        return compute()
    device = _device()
    root = dist.get_rank() == 0
    result: Weights | None = None
    error: Exception | None = None
    header = torch.zeros(3, dtype=torch.int64, device=device)  # failed, all windows?, number of values
    if root:
        try:
            result = compute()
            header = torch.tensor([0, result[0] is None, len(result[1])], dtype=torch.int64, device=device)
        except Exception as caught:
            error = caught
            header[0] = 1
    dist.broadcast(header, 0)
    failed, everything, count = (int(value) for value in header)
    if failed:
        message: list[object] = [f"{type(error).__name__}: {error}" if root else None]
        dist.broadcast_object_list(message, 0, device=device)
        if error is not None:
            raise error
        raise RuntimeError(f"rank 0 could not update the weights: {message[0]}")
    ids = None if everything else torch.zeros(count, dtype=torch.int64, device=device)
    values = torch.zeros(count, dtype=torch.float32, device=device)
    if result is not None:
        values = torch.from_numpy(result[1]).to(device)
        ids = None if result[0] is None else torch.from_numpy(result[0]).to(device)
    if ids is not None:
        dist.broadcast(ids, 0)
    dist.broadcast(values, 0)
    return None if ids is None else ids.cpu().numpy(), values.cpu().numpy()
