"""The singular points that margins are measured to are edges of the table."""

from __future__ import annotations

import math

import pytest

from gradscope.ops import OPS
from gradscope.ops.reach import _POINTS

# Of a pair, torch gives gradient 0 at the very origin: what breaks is near it.
AT = [
    (op, one.argument, point)
    for op, one in _POINTS.items()
    for point in one.points
    if not one.beside
]


@pytest.mark.parametrize(("op", "argument", "point"), AT)
def test_the_op_table_knows_each_point(op, argument, point):
    values = {"self": 1.0, "other": 1.0, "grad_output": 1.0, "output": math.inf}
    values |= {"max": 3.4e38, f"{argument}.min": point, argument: point}
    edges = [edge for edge in OPS[op].edges if edge.argument == argument]

    assert any(_holds(edge, values) for edge in edges)


def _holds(edge, values):
    try:
        return edge.holds(values)
    except (KeyError, ZeroDivisionError, OverflowError):
        return False


@pytest.mark.parametrize(
    "fact", [fact for fact in OPS.values() if fact.matrix], ids=lambda f: f.name
)
def test_each_measured_matrix_is_an_operand_that_can_be_degenerate(fact):
    edges = [edge for edge in fact.edges if edge.argument == fact.matrix.argument]

    assert "degenerate-decomposition" in {edge.cause for edge in edges}
