"""Initialising a layer, copying it or logging it is no use of it, and cuts nothing."""

import pytest
from corpus import diagnosed_text, patched

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.spare = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)
        for layer in (self.body, self.spare, self.head):
            {start}

    def forward(self, x):
        {log}
        return self.head(torch.relu(self.body(x)))


net = Net()
{before}
optimizer = torch.optim.Adam(net.parameters())
for _ in range(3):
    optimizer.zero_grad()
    loss = net(torch.randn(8, 3)).square().mean()
    {beside}
    loss.backward()
    optimizer.step()
"""
INNOCENT = {
    "fill": {"start": "layer.bias.data.fill_(0.01)"},
    "normal": {"start": "layer.weight.data.normal_(0, 0.02)"},
    "slice": {"start": "layer.bias.data[:1].fill_(1.0)"},
    "scaled": {"start": "layer.weight.data = layer.weight.data * 0.5"},
    "detach": {"start": "nn.init.constant_(layer.bias.detach(), 0.1)"},
    "copy": {"start": "layer.bias.data.copy_(torch.zeros_like(layer.bias) + 0.1)"},
    "norm": {"start": "layer.weight.data.div_(layer.weight.detach().norm())"},
    "from another": {"before": "net.head.weight.data = net.spare.weight.data[:1].clone()"},
    "logged before": {"before": "print(sum(p.detach().norm() for p in net.parameters()))"},
    "no_grad": {"before": "with torch.no_grad():\n    print([p.norm() for p in net.parameters()])"},
    "logged inside": {"log": "self.size = self.spare.weight.detach().norm()"},
    "logged beside": {"beside": "print(net.spare.weight.data.abs().max().item())"},
}


@pytest.mark.parametrize("kind", INNOCENT)
def test_what_is_not_called_is_told_as_such(kind, tmp_path):
    parts = {"start": "pass", "log": "pass", "before": "", "beside": "pass", **INNOCENT[kind]}

    (found,) = diagnosed_text(PROGRAM.format(**parts), tmp_path).findings

    assert found.evidence["reason"] == "unused"
    assert found.evidence["parameters"] == ["net.spare.weight", "net.spare.bias"]
    assert found.location.function == "Net.__init__"


def test_values_that_reach_the_loss_without_their_graph_are_a_use(tmp_path):
    parts = {"start": "pass", "log": "x = x * self.spare.weight.data.mean()", "before": ""}

    findings = diagnosed_text(PROGRAM.format(beside="pass", **parts), tmp_path).findings

    reasons = {one.evidence["parameters"][0]: one.evidence["reason"] for one in findings}
    assert reasons == {"net.spare.weight": "detach", "net.spare.bias": "unused"}


GAINED = """\
import torch
from torch import nn

torch.manual_seed(0)
cell = nn.Linear(16, 16, bias=False)
nn.init.orthogonal_(cell.weight, gain=nn.init.calculate_gain("relu"))
start = nn.Linear(4, 16)
state = start(torch.randn(8, 4))
for _ in range(80):
    state = cell(state)
state.square().mean().backward()
"""


def test_an_orthogonal_weight_that_recurs_has_no_gain(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    (found, *_) = diagnosed_text(GAINED, tmp_path, verify=True).findings

    assert (found.rule, found.fixes[0].verified) == ("GS401", True)
    assert "nn.init.orthogonal_(cell.weight)\n" in patched(found.fixes[0].patch, tmp_path)
