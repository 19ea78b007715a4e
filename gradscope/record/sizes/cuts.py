"""What takes a value off its graph."""

from typing import Any

import torch

from gradscope.dataclass import dataclass
from gradscope.facts import NoGradient
from gradscope.record.journal import Note
from gradscope.record.oprun import flatten

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
