"""`(x ** p - 1) / p` at p = 0, where it is log(x)."""

import pytest
import torch
from corpus import diagnosed_text, patched

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
x = torch.rand(5, 3) + 0.5
class Transform(nn.Module):
    def __init__(self):
        super().__init__()
        self.power = nn.Parameter(torch.tensor([0.5, 0.0, -1.0]))
    def forward(self, x):
        {lines}
net = Transform()
loss = net(x).square().mean()
loss.backward()
"""


@pytest.mark.parametrize(
    "lines",
    [
        "return (x ** self.power - 1) / self.power",
        "p = self.power; return (x.pow(p) - 1.0) / p",
    ],
)
def test_the_limit_is_taken_with_its_gradient(lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    (found,) = diagnosed_text(PROGRAM.format(lines=lines), tmp_path, verify=True).findings

    assert (found.rule, found.fixes[0].verified) == ("GS201", True)
    scope: dict[str, object] = {}
    exec(patched(found.fixes[0].patch, tmp_path), scope)
    net, x, loss = scope["net"], scope["x"], scope["loss"]
    p = torch.tensor([0.5, 0.0, -1.0], dtype=torch.float64)
    right = torch.where(p == 0, x.double().log(), (x.double() ** p - 1) / torch.where(p == 0, 1, p))
    torch.testing.assert_close(loss.double(), right.square().mean(), rtol=1e-3, atol=0)
    slope = 2 * right[:, 1] * 0.5 * x[:, 1].double().log().square() / right.numel()
    given = net.power.grad[1].double()
    torch.testing.assert_close(given, slope.sum(), rtol=3e-2, atol=1e-5)


def test_another_quotient_is_not_taken_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PROGRAM.format(lines="return (x ** self.power - 1) / (2 * self.power)")

    (found,) = diagnosed_text(text, tmp_path, verify=True).findings

    assert "expm1" not in (found.fixes[0].patch or "")
