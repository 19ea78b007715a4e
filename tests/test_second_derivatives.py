"""Gradients that are a part of the loss, through a backward that has no derivative."""

import pytest
from corpus import diagnosed_text

PENALTY = """import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

torch.manual_seed(0)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    {mark}
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x ** 2 * grad


net = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
centres = torch.randn(3, 4)


def score(x):
    h = net(x)
    return {score}.tanh()


for step in range(4):
    x = torch.randn(2, 3, 4, requires_grad=True)
    opt.zero_grad()
    value = score(x)
    loss = value.square().mean()
    if step > 1:
        slope, = torch.autograd.grad(value.sum(), x, create_graph=True)
        loss = loss + (slope.flatten(1).norm(dim=1) - 1).square().mean()
    loss.backward()
    opt.step()
"""
CUBE = "Cube.apply(h)"
ATTENTION = "F.scaled_dot_product_attention(h[:, None], h[:, None], h[:, None])"
REFUSED = {
    "marked": ("@once_differentiable", CUBE, "@once_differentiable", ""),
    "attention": ("", ATTENTION, ATTENTION, "sdpa_kernel("),
    "attention of a layer": (
        "",
        "attention(h, h, h, need_weights=False)[0]",
        "attention(h, h, h, need_weights=False)",
        "sdpa_kernel(",
    ),
    "distances": ("", "torch.cdist(h, centres)", "torch.cdist(h, centres)", "compute_mode="),
}


@pytest.mark.parametrize(("mark", "score", "place", "added"), REFUSED.values(), ids=REFUSED)
@pytest.mark.long
def test_a_backward_without_a_derivative_is_told_and_given_one(mark, score, place, added, tmp_path):
    text = PENALTY.format(mark=mark, score=score)
    (found,) = diagnosed_text(text, tmp_path, verify=True).findings

    assert (found.rule, found.step) == ("GS303", 2)
    assert place in text.splitlines()[found.location.line - 1]
    assert found.fixes[0].verified
    assert added in found.fixes[0].patch


def test_one_that_torch_has_no_other_form_for_is_told(tmp_path):
    text = PENALTY.format(mark="", score="F.hardsigmoid(h)")
    (found,) = diagnosed_text(text, tmp_path).findings

    assert (found.rule, found.op) == ("GS303", "hardsigmoid")


@pytest.mark.parametrize("score", [CUBE, "h.tanh()"])
def test_a_backward_that_has_one_is_not(score, tmp_path):
    text = PENALTY.format(mark="", score=score)

    assert not diagnosed_text(text, tmp_path).findings
