"""Healthy: what gradcheck moves is no update, and a force is no value without a graph."""

from corpus import diagnosed_text

CHECKED = """\
import torch
from torch import nn

torch.manual_seed(0)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def main():
    z = torch.randn(3, 5, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(Square.apply, z)
    assert torch.autograd.gradcheck(lambda z: Square.apply(z).sum(), z)
    net = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(30):
        x = torch.randn(16, 4)
        loss = Square.apply(net(x) - x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
"""
FORCE = """\
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
potential = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(potential.parameters(), lr=0.01)


def loss_of(q):
    weights = dict(potential.named_parameters())
    force = vmap(grad(lambda x: -functional_call(potential, weights, (x,)).squeeze(-1)))(q)
    return (force + q).square().mean()


for step in range(40):
    loss = loss_of(torch.randn(16, 2))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2 == 0:
        with torch.no_grad():
            print(float(loss_of(torch.randn(16, 2))))
"""


def test_what_gradcheck_moves_is_no_update_by_hand(tmp_path):
    assert diagnosed_text(CHECKED, tmp_path).findings == ()


def test_a_bias_of_which_only_derivatives_are_read_is_a_note(tmp_path):
    (found,) = diagnosed_text(FORCE, tmp_path).findings

    assert (found.rule, found.severity) == ("GS403", "note")
    assert found.evidence["reason"] == "differentiated"
