"""GS301: a returned gradient of the wrong shape, which autograd refuses, is mended by the smallest
change of its backward that gives the derivative of the forward."""

from typing import Any

import pytest
import torch

from gradscope.facts import Ending, FunctionCheck
from gradscope.record import Observation


class Biased(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias):
        return 2 * (x + bias)


class OverTheWrongDimensions(Biased):
    @staticmethod
    def backward(ctx, g):
        dims = [0, *range(2, g.ndim)]
        return 2 * g, 2 * g.sum(dims)


class OverTheWrongDimension(Biased):
    @staticmethod
    def backward(ctx, g):
        return 2 * g, 2 * g.sum(dim=1, keepdim=True)


class WithoutItsDimensions(Biased):
    @staticmethod
    def backward(ctx, g):
        return 2 * g, 2 * torch.sum(g, (0, 2))


class SummedForNothing(Biased):
    @staticmethod
    def backward(ctx, g):
        return 2 * g.sum(0), 2 * g.sum((0, 1))


class TwoSlips(Biased):
    @staticmethod
    def backward(ctx, g):
        return 2 * g, g.sum((0, 2))


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return x.mT @ g, g @ weight.mT


def checks(cls: Any, *shapes: tuple[int, ...]) -> tuple[FunctionCheck, ...]:
    torch.manual_seed(0)
    with Observation(keep_going=False) as recorder:
        cls.apply(*(torch.randn(shape, requires_grad=True) for shape in shapes))
    return recorder.trace("case", Ending("finished")).functions


@pytest.mark.parametrize(
    ("cls", "bias", "written"),
    [
        (OverTheWrongDimensions, (4,), ("list(range(g.ndim - 1))",)),
        (OverTheWrongDimension, (3, 4), ("g.sum(dim=0)",)),
        (WithoutItsDimensions, (3, 1), ("(2 * torch.sum(g, (0, 2))).unsqueeze(1)",)),
        (SummedForNothing, (4,), ("g",)),
        (TwoSlips, (4,), ("(g * 2).sum", "(0, 1)")),
    ],
)
def test_the_dimensions_of_a_sum_are_those_that_give_the_derivative(cls, bias, written):
    (check,) = (one for one in checks(cls, (5, 3, 4), bias) if one.verdict == "wrong")
    assert check.relation.kinds == ("shape",)
    assert tuple(slip.written for slip in check.slips) == written


def test_gradients_of_two_shapes_that_are_returned_in_the_other_order_are_told():
    found = checks(Product, (5, 3), (3, 4))
    assert [one.relation.kinds for one in found] == [("shape", "swapped")] * 2
    assert [one.relation.detail for one in found] == ["weight", "x"]
