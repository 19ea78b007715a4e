"""GS103: a mask that is multiplied by an infinite number."""

import pytest
from corpus import diagnosed_text, patched

PROGRAM = """\
import math
import torch
from torch import nn

torch.manual_seed(0)
NOTHING = float("-inf")
net = nn.Linear(4, 6)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
kept = torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0, 0.0])
for step in range(4):
    scores = net(torch.randn(8, 4))
    {line}
    loss = -scores.log_softmax(-1)[:, 0].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MASKS = {
    "what a mask leaves": (
        'scores = scores + (1.0 - kept) * float("-inf")',
        'scores = scores.masked_fill(kept != 1, float("-inf"))',
    ),
    "a comparison": (
        "scores = -math.inf * (kept == 0) + scores",
        "scores = scores.masked_fill(kept == 0, -math.inf)",
    ),
    "a name": (
        "scores = scores + NOTHING * (1 - kept)",
        "scores = scores.masked_fill(kept != 1, NOTHING)",
    ),
    "added in place": (
        "scores += (1 - kept) * -torch.inf",
        "scores += torch.where(kept != 1, -torch.inf, 0.0)",
    ),
}


@pytest.mark.parametrize(("line", "written"), MASKS.values(), ids=MASKS)
def test_the_inf_is_filled_in_where_the_mask_is_set(here, line, written):
    text = PROGRAM.format(line=line)
    found, *_ = diagnosed_text(text, here, verify=True).findings

    assert (found.rule, found.location.line, found.fixes[0].verified) == ("GS103", 12, True)
    assert written in patched(found.fixes[0].patch, here)
