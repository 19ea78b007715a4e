"""The singular points that margins are measured to are edges of the table."""

import pytest
import torch

from gradscope.ops import OPS
from gradscope.ops.reach import singularity

# Where value or slope is infinite.
POINTS = {
    "sqrt": 0.0, "rsqrt": 0.0, "log": 0.0, "log2": 0.0, "log10": 0.0, "log1p": -1.0, "acos": 1.0,
    "asin": -1.0, "atanh": 1.0, "erfinv": -1.0, "acosh": 1.0, "logit": 1.0, "reciprocal": 0.0,
    "lgamma": 0.0, "digamma": 0.0, "special_ndtri": 0.0, "special_entr": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("op", POINTS)
def test_value_or_slope_is_infinite_at_the_point_and_finite_beside_it(op):
    function = getattr(torch.special, op.removeprefix("special_"), None) or getattr(torch, op)
    point = singularity(op)
    at = torch.tensor(POINTS[op], dtype=torch.float64, requires_grad=True)
    inward = 0.01 if op == "acosh" or at <= 0 else -0.01
    beside = (at + inward).detach().requires_grad_()

    broken = function(at)
    (slope,) = torch.autograd.grad(broken, at)
    value = function(beside)
    (regular,) = torch.autograd.grad(value, beside)

    assert point.argument == "self"
    assert POINTS[op] in point.points
    assert not (broken.isfinite() and slope.isfinite())
    assert value.isfinite()
    assert regular.isfinite()


@pytest.mark.parametrize(("op", "argument"), [("div", "other"), ("xlogy", "other"), ("exp", None)])
def test_the_operand_that_must_keep_off_the_point_is_named(op, argument):
    point = singularity(op)

    assert (point and point.argument) == argument


@pytest.mark.parametrize(
    "fact", [fact for fact in OPS.values() if fact.matrix], ids=lambda f: f.name
)
def test_each_measured_matrix_is_an_operand_that_can_be_degenerate(fact):
    edges = [edge for edge in fact.edges if edge.argument == fact.matrix.argument]

    assert "degenerate-decomposition" in {edge.cause for edge in edges}
