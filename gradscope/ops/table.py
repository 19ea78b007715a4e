"""The table itself: every op whose value or slope is singular somewhere."""

from gradscope.ops import (
    arithmetic,
    exponentials,
    layers,
    linalg,
    logarithms,
    losses,
    reductions,
    softmaxes,
    special,
)
from gradscope.ops.edges import Nature, OpFact
from gradscope.ops.traits import Trait, has

_FAMILIES = (
    arithmetic,
    logarithms,
    exponentials,
    special,
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


def breaks_at_operands(op: str) -> bool:
    """Whether the values of an op's operands tell why it breaks. Of one that only grows with them
    a result that is too large tells as much."""
    fact = lookup(op)
    edges = [edge for edge in fact.edges if edge.breaks_value] if fact is not None else []
    own = [edge for edge in edges if edge.cause != "inf-arithmetic"]
    if has(op, Trait.GROWS_SLOWLY):
        own = [edge for edge in own if edge.nature in (Nature.POLE, Nature.DOMAIN)]
    return bool(own)


def has_limit(op: str) -> bool:
    """Whether an op's value is finite where its slope is not, at the end of its domain."""
    fact = lookup(op)
    natures = {edge.nature for edge in fact.edges} if fact is not None else set()
    return Nature.INFINITE_SLOPE in natures and Nature.POLE not in natures
