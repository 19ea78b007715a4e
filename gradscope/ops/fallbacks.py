"""Edges for what no closer look explains: all operands are finite and the gradient is not."""

from __future__ import annotations

from gradscope.ops.edges import Edge, Nature
from gradscope.ops.predicates import slope_broke


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
