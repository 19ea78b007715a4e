"""The part of a tensor that lies on this rank, where a program has sharded it (DTensor, as FSDP2
and tensor parallelism make them). Nothing here starts a collective."""

from __future__ import annotations

import sys
from typing import Any

import torch


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What of it is here: of a DTensor its own part, else all."""
    return tensor._local_tensor if is_distributed(tensor) else tensor  # type: ignore[attr-defined]


def shard_of(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Which part that is: its place along each dimension of the mesh over which it is divided. Two
    ranks that hold the same part have the same; None of what is whole on each."""
    if not is_distributed(tensor):
        return None
    one: Any = tensor
    places = one.device_mesh.get_coordinate() or ()
    divided = zip(places, one.placements, strict=False)
    return tuple(place for place, how in divided if how.is_shard()) or None


def is_distributed(tensor: torch.Tensor) -> bool:
    """Whether it is a DTensor."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return False
    module = sys.modules.get("torch.distributed.tensor")  # whoever has one has imported it
    return module is not None and isinstance(tensor, module.DTensor)
