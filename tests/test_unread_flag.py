"""GS414: `requires_grad` that is set where torch does not read it."""

import pytest
from corpus import diagnosed_text, findings, patched

TRAINING = """import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
{}
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    opt.zero_grad()
    net(torch.randn(8, 4)).square().mean().backward()
    opt.step()
"""
# What is written, and the same as it was meant; whether it is an error.
UNREAD = {
    "of a module": ("net[0].requires_grad = False", "net[0].requires_grad_(False)", False),
    "of layers in a loop": (
        "for layer in net[:2]:\n    layer.requires_grad = False",
        "for layer in net[:2]:\n    layer.requires_grad_(False)",
        False,
    ),
    "misspelt": (
        "for p in net[0].parameters():\n    p.require_grad = False",
        "for p in net[0].parameters():\n    p.requires_grad = False",
        False,
    ),
    "misspelt where it is to learn again": (
        "net[0].requires_grad_(False)\nnet[0].weight.required_grad = True",
        "net[0].requires_grad_(False)\nnet[0].weight.requires_grad = True",
        True,
    ),
}
MEANT = {
    "of parameters": "for p in net[0].parameters():\n    p.requires_grad = False",
    "of a module, as it is": "net[0].requires_grad_(False)\nnet[0].requires_grad = False",
    "of a module that is frozen in part": (
        "net[0].bias.requires_grad = False\nnet[0].requires_grad = False"
    ),
    "another attribute": "net[0].weight.decay = False\nnet[0].weight.is_sparse_grad = True",
}


@pytest.mark.parametrize("case", UNREAD)
@pytest.mark.long
def test_what_changes_nothing_is_told_and_mended(case, here):
    written, meant, is_error = UNREAD[case]

    told = diagnosed_text(TRAINING.format(written), here, verify=True).findings
    (found,) = [one for one in told if one.rule == "GS414"]

    assert (found.severity == "error") is is_error
    assert found.location.line == 6 + written.count("\n")
    assert patched(found.fixes[0].patch, here) == TRAINING.format(meant)
    assert found.fixes[0].verified is True
    assert all(one.rule != "GS414" for one in findings(TRAINING.format(meant)))


@pytest.mark.parametrize("case", MEANT)
def test_what_is_read_is_not_told(case):
    assert all(one.rule != "GS414" for one in findings(TRAINING.format(MEANT[case])))
