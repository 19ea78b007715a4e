"""Functions that round a weight to few values at a scale of its own, and train the rounded one."""

import pytest
import torch
from test_custom_backward import checks
from torch.autograd import Function


def ternary(factor: float, *, transposed: bool = False) -> type[Function]:
    class Ternary(Function):
        @staticmethod
        def forward(ctx, x, weight):
            scale = weight.abs().mean(1, keepdim=True)
            few = scale * torch.where(weight.abs() > 0.6 * scale, weight.sign(), 0.0)
            ctx.save_for_backward(x, few)
            return x.mm(few.t())

        @staticmethod
        def backward(ctx, grad_output):
            x, few = ctx.saved_tensors
            grad_weight = factor * grad_output.t().mm(x)
            return grad_output.mm(few), grad_weight.flip(0) if transposed else grad_weight

    return Ternary


def verdicts(cls: type[Function]) -> list[str]:
    torch.manual_seed(0)
    given = (torch.randn(6, 16, requires_grad=True), torch.randn(5, 16, requires_grad=True))
    return [check.verdict for check in checks(cls, given)]


def test_what_trains_the_rounded_weight_is_intended():
    assert verdicts(ternary(1.0)) == ["right", "intended"]


@pytest.mark.parametrize("cls", [ternary(2.0), ternary(1.0, transposed=True)])
def test_a_mistake_beside_that_is_one(cls):
    assert verdicts(cls) == ["right", "wrong"]
