"""An optimizer of the program's own that multiplies each step by the size of what it moves."""

import pytest
from corpus import diagnosed_text

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)


class Trusting(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                size = p.norm()
                ratio = {ratio}
                p.sub_(group["lr"] * ratio * p.grad / (p.grad.norm() + 1e-12))


net = nn.Linear(4, 2)
nn.init.zeros_(net.bias)
optimizer = Trusting(net.parameters(), lr={lr})
for _ in range(8):
    optimizer.zero_grad()
    (net(torch.randn(16, 4)) - 1).square().mean().backward()
    optimizer.step()
"""


def test_a_parameter_that_stays_at_zero_is_told(tmp_path):
    report = diagnosed_text(PROGRAM.format(ratio="size", lr=0.1), tmp_path)

    (found,) = report.findings
    assert (found.rule, found.evidence["reason"]) == ("GS407", "at-zero")
    assert report.verdict == "healthy" and "`net.bias`" in found.message


@pytest.mark.parametrize(("ratio", "lr"), [("torch.where(size > 0, size, 1.0)", 0.1), ("1.0", 0.1)])
def test_one_that_moves_is_right(ratio, lr, tmp_path):
    assert diagnosed_text(PROGRAM.format(ratio=ratio, lr=lr), tmp_path).findings == ()
