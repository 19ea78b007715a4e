"""Ops that take values with a graph and give values without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gradscope.record.journal import Note

NUMBERS = frozenset({"_local_scalar_dense", "item", "equal", "is_nonzero", "lift_fresh"})


@dataclass(frozen=True, slots=True)
class Cut:
    """An op that took values with a graph and gave values without: `lost` are the leaves. Of these
    `idle` were read themselves and not used by a layer, as an initialisation or a log reads them:
    unless it reaches the loss, that is no use."""

    reason: str
    note: Note
    lost: int
    idle: int = 0


def cut_by(op: str, out: Any) -> str:
    """The reason why the result of an op on values with a graph has none; "" where it has one."""
    if op in NUMBERS:
        return "number"
    if op == "detach":
        return "detach"
    results = out if isinstance(out, list | tuple) else (out,)
    tensors = [one for one in results if isinstance(one, torch.Tensor)]
    if tensors and all(map(is_whole, tensors)):
        return "integer"
    return "" if torch.is_grad_enabled() else "no_grad"


def normalises_one(op: str, args: tuple[Any, ...]) -> bool:
    """Whether a norm subtracts each element from itself: of one feature, in groups of one."""
    if op == "native_layer_norm":
        return all(size == 1 for size in args[1])
    if op != "native_group_norm":
        return False
    channels, elements, groups = args[4:7]
    return bool(channels * elements == groups)


def is_whole(value: Any) -> bool:
    """Whether it is a tensor of integers or booleans, which carry no gradient."""
    return isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex())
