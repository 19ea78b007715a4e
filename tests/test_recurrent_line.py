"""A recurrence that grows: the line that multiplies is pointed at, not the `cat` before it."""

import pytest
from corpus import diagnosed_text

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
weight, embed = nn.Parameter(torch.randn(20, 16)), nn.Linear(4, 4)
cell = nn.Linear(20, 16)
nn.init.normal_(cell.weight)
optimizer = torch.optim.SGD([weight, *embed.parameters(), *cell.parameters()], lr=1e-14)
for _ in range(2):
    h = torch.zeros(8, 16)
    for x in torch.randn({steps}, 8, 4):
        both = torch.cat([embed(x), h], 1)
        h = {cell}
    loss = h.square().mean() * 1e-20
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


CELLS = ["both @ weight", "cell(both)", "torch.relu(cell(both))", "h + both @ weight"]


@pytest.mark.parametrize(("cell", "steps"), [("both @ weight", 200), *((one, 25) for one in CELLS)])
@pytest.mark.long
def test_the_product_is_pointed_at(cell, steps, tmp_path):
    first, *_ = diagnosed_text(PROGRAM.format(cell=cell, steps=steps), tmp_path).findings

    assert first.rule == "GS401"
    assert first.location.line == 13
