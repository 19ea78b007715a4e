"""Values that leave the graph as rows of Python numbers (GS403): told where they come back."""

import pytest
from corpus import diagnosed_text, findings, patched

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(6, 8), nn.Linear(8, 1)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.01)
x, y = torch.randn(10, 6), torch.randn(10, 1)
for step in range(4):
    rows = []
    for row in x:
        rows.append(encoder(row))
    z = {}
    loss = (head(torch.tanh(z)) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_rows_that_come_back_as_numbers_are_told_where_they_do(here):
    program = PROGRAM.format("torch.tensor([one.tolist() for one in rows])")

    (found,) = diagnosed_text(program, here, verify=True).findings

    assert (found.rule, found.location.line) == ("GS403", 12)
    assert found.evidence["reason"] == "number"
    assert found.fixes[0].verified is True
    repaired = PROGRAM.format("torch.stack([one for one in rows])")
    assert patched(found.fixes[0].patch, here) == repaired


@pytest.mark.parametrize(
    "made",
    [
        "torch.stack(rows)",
        "torch.stack(rows) + torch.tensor([one.tolist() for one in rows]).mean()",
        "torch.stack(rows) + torch.tensor([[float(i), 1.0] * 4 for i in range(10)])",
    ],
)
def test_rows_with_their_graph_are_not_told(made):
    assert findings(PROGRAM.format(made)) == []
