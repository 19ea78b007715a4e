"""A layer that a model gets after its optimizer was made."""

import pytest
from corpus import diagnosed_text

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.head = nn.Linear(4, 1)
        self.more = None

    def forward(self, x):
        h = self.body(x)
        return self.head(h) + (self.more(h) if self.more is not None else 0)


net = Net()
optimizer = torch.optim.SGD({given}, lr=0.01)
for step in range(12):
    if step == {at}:
        {change}
    loss = net(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ADDED = {
    "an attribute": ("net.parameters()", 0, "net.more = nn.Linear(4, 1)", "more"),
    "while it trains": ("net.parameters()", 4, "net.more = nn.Linear(4, 1)", "more"),
    "appended": ("net.parameters()", 0, "net.body.append(nn.Linear(4, 4))", "body.2"),
    "to the part that was given": (
        "net.body.parameters()",
        0,
        "net.body.append(nn.Linear(4, 4))",
        "body.2",
    ),
}
MEANT = {
    "the body alone": ("net.body.parameters()", 0, "pass"),
    "the body alone, and a head": (
        "net.body.parameters()",
        0,
        "net.more = nn.Linear(4, 1)",
    ),
    "given": (
        "net.parameters()",
        4,
        "net.more = nn.Linear(4, 1); optimizer.add_param_group({'params': net.more.parameters()})",
    ),
    "another optimizer": (
        "net.parameters()",
        4,
        "net.more = nn.Linear(4, 1); optimizer = torch.optim.SGD(net.parameters(), lr=0.01)",
    ),
    "frozen": ("net.parameters()", 0, "net.more = nn.Linear(4, 1).requires_grad_(False)"),
    "in another order": ("net.parameters()", 0, "net.body = nn.Sequential(nn.Tanh(), net.body[0])"),
}


@pytest.mark.parametrize("how", ADDED)
def test_what_no_optimizer_got_is_told_at_the_optimizer(how, tmp_path):
    given, at, change, layer = ADDED[how]
    program = PROGRAM.format(given=given, at=at, change=change)

    (found,) = diagnosed_text(program, tmp_path).findings

    assert (found.rule, found.severity, found.evidence["reason"]) == ("GS403", "error", "added")
    assert found.evidence["parameters"] == [f"net.{layer}.weight", f"net.{layer}.bias"]
    assert found.location.line == 20


@pytest.mark.parametrize("how", MEANT)
@pytest.mark.long
def test_what_is_meant_is_silent(how, tmp_path):
    given, at, change = MEANT[how]
    program = PROGRAM.format(given=given, at=at, change=change)

    findings = diagnosed_text(program, tmp_path).findings

    assert [one for one in findings if one.severity != "note"] == []
