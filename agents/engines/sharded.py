"""Weights of which each process holds a part; where there is one process, nothing."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def whole(value: Tensor) -> Tensor:
    """A weight; one that is in parts is put together, for which all processes have to ask."""
    made: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return made


def for_disk(value: Any) -> Any:
    """What a checkpoint keeps of a weight: of one in parts the whole, in the first process's memory alone."""
    if not hasattr(value, "full_tensor"):
        return value
    made = whole(value)
    return made.cpu() if value.device_mesh.get_rank() == 0 else made.new_empty(0)


def like(value: Tensor, other: Any) -> Tensor:
    """A whole weight, or this process's part of it where the other one is in parts."""
    if hasattr(value, "full_tensor") or not hasattr(other, "full_tensor"):
        return value
    from torch.distributed.tensor import distribute_tensor

    made: Tensor = distribute_tensor(value, other.device_mesh, other.placements, src_data_rank=None)
    return made
