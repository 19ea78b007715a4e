"""The table itself: every op whose value or slope is singular somewhere."""

from __future__ import annotations

from gradscope.ops.edges import OpFact

OPS: dict[str, OpFact] = {}


def lookup(op: str) -> OpFact | None:
    """The facts of an aten op; None for an op that is regular or unknown."""
    return OPS.get(op)
