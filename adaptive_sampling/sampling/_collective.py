"""The few words that ranks must exchange: all of them call these functions, in the same order."""

from __future__ import annotations

import torch
import torch.distributed as dist


def connected() -> bool:
    """Whether `torch.distributed` connects this process with others."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def meeting_device() -> torch.device:
    """Where a tensor must lie to travel between ranks: on the CPU if a backend serves it, else where the backend is.

    The name of the backend does not tell: it may be a list, and new ones come with their accelerators.
    """
    kinds = [entry.partition(":")[0] for entry in dist.get_backend_config().split(",")]
    return torch.device("cpu" if "cpu" in kinds else kinds[0])


def from_rank_zero(number: int) -> int:
    """Rank 0's `number`, below 2^63."""
    tensor = torch.tensor(number, device=meeting_device())
    dist.broadcast(tensor, 0)
    return int(tensor)


def all_say(yes: bool) -> bool:
    """Whether all ranks say yes; none goes on before the last one has spoken."""
    tensor = torch.tensor(int(yes), device=meeting_device())
    dist.all_reduce(tensor, dist.ReduceOp.MIN)
    return bool(tensor)
