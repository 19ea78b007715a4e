"""What an op does to the gradient of its operands, whatever the data: it gives values without a
graph, or always leaves the same elements out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gradscope.ops.traits import Trait, has
from gradscope.record.journal import Note
from gradscope.record.oprun import flatten
from gradscope.record.schema import OpInfo

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
    tensors = flatten(out)
    if tensors and all(map(is_whole, tensors)):
        return "integer"
    return "" if torch.is_grad_enabled() else "no_grad"


def is_whole(value: Any) -> bool:
    """Whether it is a tensor of integers or booleans, which carry no gradient."""
    return isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex())


@dataclass(frozen=True, slots=True)
class Selection:
    """The elements that a slice, or a product with numbers that nobody computes anew, leaves out:
    the derivative is 0 there. Two are equal where they leave out the same. A factor goes by its
    memory and the count of writes into it: `storage` keeps the address from being given to another.
    """

    by: tuple[object, ...]
    storage: StorageWeakRef | None = field(default=None, compare=False)


def selection_of(info: OpInfo, args: tuple[Any, ...]) -> Selection | None:
    if info.name == "slice":
        return Selection(("slice", *args[1:]))
    if not has(info.name, Trait.MULTIPLIES) or len(args) != 2:
        return None
    factors = [one for one in args if isinstance(one, torch.Tensor) and not one.requires_grad]
    if len(factors) != 1 or not _counts_writes(factors[0]):
        return None
    factor = factors[0]
    storage = StorageWeakRef(factor.untyped_storage())
    place = (storage.cdata, factor.storage_offset(), factor.shape, factor.stride())
    return Selection((*place, factor._version), storage)


def _counts_writes(tensor: torch.Tensor) -> bool:
    is_plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided
    return is_plain and not tensor.is_inference()
