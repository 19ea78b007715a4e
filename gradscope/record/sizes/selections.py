"""Which elements an op leaves out whatever the data."""

from dataclasses import field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gradscope.dataclass import dataclass
from gradscope.ops.traits import Trait, has
from gradscope.record.schema import OpInfo


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
