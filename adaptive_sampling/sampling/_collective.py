"""The few words that ranks must exchange: all of them call these functions, in the same order."""

from __future__ import annotations

import torch
import torch.distributed as dist


def connected() -> bool:
    """Whether `torch.distributed` connects this process with others."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def from_rank_zero(number: int) -> int:
    """Rank 0's `number`, below 2^63."""
    tensor = torch.tensor(number, device=_device())
    dist.broadcast(tensor, 0)
    return int(tensor)


def all_say(yes: bool) -> bool:
    """Whether all ranks say yes; none goes on before the last one has spoken."""
    tensor = torch.tensor(int(yes), device=_device())
    dist.all_reduce(tensor, dist.ReduceOp.MIN)
    return bool(tensor)


def _device() -> torch.device:
    return torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
