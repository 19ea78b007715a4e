"""Edges for what no closer look explains: finite operands, a result that is not."""

from __future__ import annotations

from gradscope.ops.edges import Edge, Nature
from gradscope.ops.predicates import broke, slope_broke


def value_overflow(*operands: str, what: str = "result") -> Edge:
    """The true result is finite; the dtype is too narrow for it."""
    return Edge(
        operands[0],
        Nature.OVERFLOW,
        broke(*operands),
        f"the {what} leaves the dtype",
        "overflow",
        stable="{x}.float()",
    )


def gradient_overflow(*operands: str) -> Edge:
    """The slope is finite; its product with the incoming gradient leaves the dtype."""
    return Edge(
        operands[0],
        Nature.SLOPE_OVERFLOW,
        slope_broke(*operands),
        "the slope times the incoming gradient leaves the dtype",
        "overflow",
        slope="inf",
        stable="{x}.float()",
    )
