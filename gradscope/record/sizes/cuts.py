"""What takes a value off its graph, and which elements an op leaves out whatever the data."""

from dataclasses import field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gradscope.dataclass import dataclass
from gradscope.facts import NoGradient
from gradscope.ops.traits import Trait, has
from gradscope.record.journal import Note
from gradscope.record.oprun import flatten
from gradscope.record.schema import OpInfo

NUMBERS = frozenset({"_local_scalar_dense", "item", "equal", "is_nonzero", "lift_fresh"})


@dataclass(frozen=True, slots=True)
class Cut:
    """An op that took values with a graph and gave values without: `lost` are the leaves. Of these
    `idle` were read themselves and not used by a layer, as an initialisation or a log reads them:
    unless it reaches the loss, that is no use. `of_term`: it took a single number, as a loss is.
    `owned`: a parameter of the module that was running, which goes on with its numbers."""

    reason: NoGradient
    note: Note
    lost: int
    idle: int = 0
    of_term: bool = False
    owned: bool = False


def cut_by(op: str, out: Any) -> NoGradient | None:
    """The reason why the result of an op on values with a graph has none; None where it has one."""
    if op in NUMBERS:
        return NoGradient.NUMBER
    if op == "detach":
        return NoGradient.DETACH
    tensors = flatten(out)
    if tensors and all(map(is_whole, tensors)):
        return NoGradient.INTEGER
    return None if torch.is_grad_enabled() else NoGradient.NO_GRAD


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
