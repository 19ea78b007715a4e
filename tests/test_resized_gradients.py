"""GS301: a gradient of another shape than its input, in a Function whose slope its author chose: as
no derivative tells which is right, what is tried is where the forward uses each element."""

import pytest
import torch
from corpus import diagnosed_text, patched
from test_gradient_shapes import checks


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, step):
        ctx.save_for_backward(x, step)
        ctx.size = step.shape
        return (x / step).clamp(-4, 3).round() * step


def slope(x, step):
    q = x / step
    inside = ((q > -4) & (q < 3)).to(x)
    return inside, inside * (q.round() - q) + (q <= -4) * -4 + (q >= 3) * 3


class AllInOne(Rounded):
    @staticmethod
    def backward(ctx, g):
        x, step = ctx.saved_tensors
        inside, along = slope(x, step)
        gradient = (along * g).sum().unsqueeze(dim=0)
        return g * inside, gradient


class OverTheOtherDimension(Rounded):
    @staticmethod
    def backward(ctx, g):
        inside, along = slope(*ctx.saved_tensors)
        return g * inside, -(along * g).sum(1)


class OverTooFew(Rounded):
    @staticmethod
    def backward(ctx, g):
        inside, along = slope(*ctx.saved_tensors)
        return (
            g * inside,
            (
                along  # of the step
                * g
            ).sum(-1),
        )


class NotSummed(Rounded):
    @staticmethod
    def backward(ctx, g):
        inside, along = slope(*ctx.saved_tensors)
        return g * inside, (along * g).flatten()


class SizeKept(Rounded):
    @staticmethod
    def backward(ctx, g):
        inside, along = slope(*ctx.saved_tensors)
        return g * inside, torch.sum(along * g)


class Channels(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bound):
        ctx.save_for_backward(x, bound)
        return (x > bound.view(1, -1, 1)).to(x)

    @staticmethod
    def backward(ctx, g):
        x, bound = ctx.saved_tensors
        taken = g / (1 + (x - bound.view(1, -1, 1)).abs())
        return taken, -taken.sum(0).sum(0)


class Turned(Channels):
    @staticmethod
    def backward(ctx, g):
        x, bound = ctx.saved_tensors
        taken = g / (1 + (x - bound.view(1, -1, 1)).abs())
        total = 0
        for one in taken:
            total = total + one.sum(-1)
        return taken, -total[:, None]


class OfAll(Channels):
    """Each element of the result reads all bounds."""

    @staticmethod
    def forward(ctx, x, bound):
        ctx.save_for_backward(x, bound)
        return (x > bound.softmax(0).view(1, -1, 1)).to(x)


class Mixed(Rounded):
    """No sum to the input's shape is of the results alone that read an element."""

    @staticmethod
    def backward(ctx, g):
        inside, along = slope(*ctx.saved_tensors)
        return g * inside, (along * g.cumsum(0)).sum()


CHOSEN = [
    (AllInOne, (6, 5), (6, 1), "(along * g).sum_to_size(step.shape)"),
    (OverTheOtherDimension, (6, 5), (5,), "(along * g).sum(0)"),
    (OverTooFew, (4, 6, 5), (6, 1), ").sum_to_size(ctx.size)"),
    (NotSummed, (6, 5), (6, 1), "(along * g).sum_to_size(ctx.size)"),
    (SizeKept, (6, 5), (6, 1), "torch.sum(along * g, 1, keepdim=True)"),
    (SizeKept, (6, 5, 3), (6, 1, 1), "torch.sum(along * g, (1, 2), keepdim=True)"),
    (SizeKept, (6, 5, 3), (1,), "(along * g).sum_to_size(ctx.size)"),
    (Channels, (4, 6, 5), (6,), "taken.sum(0).sum(1)"),
    (Turned, (4, 6, 5), (6,), "(-total[:, None]).view_as(bound)"),
]


@pytest.mark.parametrize(("cls", "x", "step", "written"), CHOSEN)
def test_a_gradient_that_is_chosen_gets_the_shape_of_its_input(cls, x, step, written):
    (check,) = (one for one in checks(cls, x, step) if one.verdict == "wrong")

    assert check.relation.kinds == ("shape",)
    assert [one.written.endswith(written) for one in check.slips] == [True]


@pytest.mark.parametrize(("cls", "x", "step"), [(OfAll, (4, 6, 5), (6,)), (Mixed, (6, 5), (6, 1))])
def test_nothing_is_written_where_that_shows_no_right_gradient(cls, x, step):
    (check,) = (one for one in checks(cls, x, step) if one.verdict == "wrong")

    assert check.slips == () and check.rewrite is None


@pytest.mark.parametrize("shape", [(6, 5, 3), (5,)])
def test_one_that_has_the_shape_is_not_told(shape):
    assert all(one.verdict != "wrong" for one in checks(AllInOne, shape, (1,)))


class Filtered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.einsum("bct,ct->bc", x, weight[:, 0])

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = g[..., None] * weight[:, 0]
        if ctx.needs_input_grad[1]:
            grad_weight = torch.einsum("bc,bct->ct", g, x)
        return grad_x, grad_weight


def test_a_missing_view_is_written_where_the_gradient_is_made():
    (check,) = (one for one in checks(Filtered, (4, 6, 5), (6, 1, 5)) if one.verdict == "wrong")

    (slip,) = check.slips
    assert slip.written == 'torch.einsum("bc,bct->ct", g, x).view_as(weight)'


PROGRAM = """import torch


class Quantized(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, step):
        ctx.save_for_backward(weight, step)
        return (weight / step).round() * step

    @staticmethod
    def backward(ctx, grad_output):
        weight, step = ctx.saved_tensors
        quotient = weight / step
        along = grad_output * (quotient.round() - quotient)
        grad_step = {made}
        return grad_output, grad_step


torch.manual_seed(0)
weight = torch.randn(6, 5, requires_grad=True)
step = torch.full((6, 1), 0.4, requires_grad=True)
optimizer = torch.optim.SGD([weight, step], lr=0.01)
for _ in range(4):
    optimizer.zero_grad()
    (torch.randn(8, 5) @ Quantized.apply(weight, step).t() - 1).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.long
@pytest.mark.parametrize("made", ["along.sum().unsqueeze(dim=0)", "along.flatten().clone()"])
def test_the_patch_lets_the_program_run(here, made):
    report = diagnosed_text(PROGRAM.format(made=made), here, verify=True)

    (found,) = (one for one in report.findings if one.severity == "error")
    assert (found.rule, found.location.line, found.fixes[0].verified) == ("GS301", 15, True)
    assert "along.sum_to_size(step.shape)" in patched(found.fixes[0].patch, here)
