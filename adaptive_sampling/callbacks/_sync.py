"""Ranks: observations go to rank 0, changed weights come back. The same calls on every rank, whatever happens."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from adaptive_sampling.sampling._collective import connected, meeting_device

Weights = tuple[NDArray[np.int64] | None, NDArray[np.float32]]


def gather_observations(ids: Tensor, values: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Observations of each rank, in rank order; every rank gets them.

    Args:
        ids: int64 `[k]`, k may differ between ranks and be 0.
        values: float32 `[k, m]`.

    Returns:
        (ids, values) per rank, on the CPU.
    """
    if not connected():
        return [(ids.cpu().long(), values.cpu())]
    device = meeting_device()
    world = dist.get_world_size()
    counts = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world)]
    dist.all_gather(counts, torch.tensor([len(ids)], dtype=torch.int64, device=device))
    lengths = [int(count) for count in counts]
    # One tensor for all, of the same shape on every rank; floats travel as their bits.
    packed = torch.zeros(max(*lengths, 1), 1 + values.shape[1], dtype=torch.int64, device=device)
    packed[: len(ids), 0] = ids.to(device)
    packed[: len(ids), 1:] = values.to(device, torch.float32).view(torch.int32)
    parts = [torch.zeros_like(packed) for _ in range(world)]
    dist.all_gather(parts, packed)
    filled = [part[:length].cpu() for part, length in zip(parts, lengths, strict=True)]
    return [(part[:, 0].contiguous(), part[:, 1:].to(torch.int32).view(torch.float32)) for part in filled]


def numbers_of_ranks(*numbers: int) -> list[tuple[int, ...]]:
    """The `numbers` of each rank, in rank order; every rank gets them."""
    if not connected():
        return [numbers]
    own = torch.tensor(numbers, dtype=torch.int64, device=meeting_device())
    parts = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own)
    return [tuple(part.tolist()) for part in parts]


def ranks_that_differ(weights: NDArray[np.float32]) -> list[int]:
    """Ranks whose weights are not those of rank 0, told by a checksum; every rank gets the list."""
    if not connected():
        return []
    sums = numbers_of_ranks(zlib.crc32(np.ascontiguousarray(weights).view(np.uint8).data))
    return [rank for rank, checksum in enumerate(sums) if checksum != sums[0]]


def broadcast_weights(compute: Callable[[], Weights]) -> Weights:
    """Run `compute` on rank 0 and hand its result, or its error, to all ranks.

    Returns:
        (ids, values) of the weights that changed; ids None: all windows.

    Raises:
        RuntimeError: on the other ranks, with rank 0's message; on rank 0 the error itself.
    """
    if not connected():
        return compute()
    device = meeting_device()
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
