"""The table itself: every op whose value or slope is singular somewhere."""

from __future__ import annotations

from gradscope.ops import (
    arithmetic,
    bounded,
    divisions,
    exponentials,
    layers,
    linalg,
    logarithms,
    losses,
    powers,
    reductions,
    softmaxes,
    special,
)
from gradscope.ops.edges import OpFact

_FAMILIES = (
    powers,
    divisions,
    logarithms,
    bounded,
    exponentials,
    special,
    arithmetic,
    reductions,
    softmaxes,
    losses,
    layers,
    linalg,
)

OPS: dict[str, OpFact] = {fact.name: fact for family in _FAMILIES for fact in family.FACTS}


def lookup(op: str) -> OpFact | None:
    """The facts of an aten op; None for an op that is regular or unknown."""
    return OPS.get(op)
