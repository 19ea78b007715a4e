"""GS403: a product whose other factor was computed without a gradient, and is 0 everywhere."""

import pytest
from corpus import diagnosed_text

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
    {weigh}
    loss = (net(x).square() * weight).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ZERO = {  # how it is weighed, and the expression that is told
    "a comparison": ("weight = (y == 7).float()[:, None]", "y == 7"),
    "through other ops": (
        "rare = (y > 5).float()\n    weight = 2.0 * rare[:, None].expand(8, 3)",
        "y > 5",
    ),
    "scattered": (
        "weight = torch.zeros(8, 3)\n    weight.scatter_add_(1, y[:, None], (x - x)[:, :1])",
        "x - x",
    ),
    "rounded": (
        "weight = torch.round(0.3 * torch.rand(8, 1))",
        "torch.round(0.3 * torch.rand(8, 1))",
    ),
}


@pytest.mark.parametrize(("weigh", "told"), ZERO.values(), ids=ZERO)
def test_where_the_factor_became_0_is_told(tmp_path, weigh, told):
    text = PROGRAM.format(weigh=weigh)
    (found,) = diagnosed_text(text, tmp_path).findings
    at = found.location
    line = text.splitlines()[at.line - 1]

    assert (found.rule, found.evidence["reason"]) == ("GS403", "zero-weight")
    assert line[at.col : at.end_col] == told
    assert [one.location.line for one in found.related] == [
        text.splitlines().index("    loss = (net(x).square() * weight).mean()") + 1
    ]


def test_a_factor_that_began_as_0_is_told_at_the_product(tmp_path):
    (found,) = diagnosed_text(PROGRAM.format(weigh="weight = torch.zeros(8, 3)"), tmp_path).findings

    assert "* weight" in PROGRAM.splitlines()[found.location.line - 1]


def test_a_factor_that_is_0_now_and_then_is_not_told(tmp_path):
    weigh = "weight = (y == step % 5).float()[:, None]"

    assert not diagnosed_text(PROGRAM.format(weigh=weigh), tmp_path).findings
