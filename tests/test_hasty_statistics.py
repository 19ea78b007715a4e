"""BatchNorm whose running statistics are those of the last batch, and that is evaluated (GS410)."""

import pytest
from corpus import diagnosed_text, findings, patched

PROGRAM = """import argparse
import copy
from functools import partial
import torch
from torch import nn
from torch.optim.swa_utils import update_bn

torch.manual_seed(0)
{before}

class Block(nn.Module):
    def __init__(self, inputs, outputs, momentum=0.1):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.norm = {made}

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x)))


net = nn.Sequential({blocks}, nn.Linear(6, 1))
{after}
data, held_out = torch.randn(64, 3), torch.randn(20, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for step in range(24):
    batch = {batch}
    optimizer.zero_grad()
    (net(batch) - batch.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
    if step % 6 == 5:
{evaluation}
"""
PLAIN = {
    "before": "",
    "made": "nn.BatchNorm1d(outputs, momentum=0.99)",
    "blocks": "Block(3, 6), Block(6, 6)",
    "after": "",
    "batch": "data[torch.randperm(64)[:8]]",
    "evaluation": "        net.eval()\n        with torch.no_grad():\n            net(held_out)\n"
    "        net.train()",
}
GIVEN = "nn.BatchNorm1d(outputs, momentum=momentum)"
HASTY = {  # what is otherwise, and what the patch makes of which text
    "a number": ({}, "momentum=0.99)", "momentum=0.01)"),
    "by its place": ({"made": "nn.BatchNorm1d(outputs, 1e-3, 0.9)"}, "1e-3, 0.9)", "1e-3, 0.1)"),
    "a name": (
        {"before": "MOMENTUM = 0.997\n", "made": "nn.BatchNorm1d(outputs, momentum=MOMENTUM)"},
        "MOMENTUM = 0.997",
        "MOMENTUM = 0.003",
    ),
    "a name for more": (
        {
            "before": "DECAY = 0.99\nother = DECAY * 2\n",
            "made": "nn.BatchNorm1d(outputs, momentum=DECAY)",
        },
        "momentum=DECAY)",
        "momentum=1 - DECAY)",
    ),
    "1 less a name": (
        {"before": "rate = 0.02\n", "made": "nn.BatchNorm1d(outputs, momentum=1 - rate)"},
        "momentum=1 - rate)",
        "momentum=rate)",
    ),
    "a default": (
        {
            "before": "def normed(outputs, eps=1e-5, momentum=0.99):\n"
            "    return nn.BatchNorm1d(outputs, eps, momentum)\n",
            "made": "normed(outputs)",
        },
        "momentum=0.99)",
        "momentum=0.01)",
    ),
    "a key": (
        {"before": "kept = {'bn': 0.99}\n", "made": "nn.BatchNorm1d(outputs, momentum=kept['bn'])"},
        "'bn': 0.99",
        "'bn': 0.01",
    ),
    "a keyword of a class": (
        {"made": GIVEN, "blocks": "Block(3, 6), Block(6, 6, momentum=0.99)"},
        "momentum=0.99)",
        "momentum=0.01)",
    ),
    "partial": (
        {"before": "norm = partial(nn.BatchNorm1d, momentum=0.99)\n", "made": "norm(outputs)"},
        "momentum=0.99)",
        "momentum=0.01)",
    ),
    "a dictionary": (
        {
            "before": "kept = dict(momentum=0.99, eps=1e-3)\n",
            "made": "nn.BatchNorm1d(outputs, **kept)",
        },
        "momentum=0.99,",
        "momentum=0.01,",
    ),
    "an option": (
        {
            "before": "parser = argparse.ArgumentParser()\n"
            "parser.add_argument('--bn-momentum', type=float, default=0.99)\n"
            "args = parser.parse_args([])\n",
            "made": "nn.BatchNorm1d(outputs, momentum=args.bn_momentum)",
        },
        "default=0.99",
        "default=0.01",
    ),
    "with gradients": (
        {"evaluation": "        net.eval()\n        net(held_out)\n        net.train()"},
        "momentum=0.99)",
        "momentum=0.01)",
    ),
    "two of them": (
        {"made": GIVEN, "blocks": "Block(3, 6, 0.99), Block(6, 6, 0.99)"},
        "6, 0.99)",
        "6, 0.01)",
    ),
}
RIGHT = {
    "torch's": {"made": "nn.BatchNorm1d(outputs)"},
    "slow": {"made": "nn.BatchNorm1d(outputs, momentum=0.01)"},
    "half": {"made": "nn.BatchNorm1d(outputs, momentum=0.5)"},
    "an average of all": {"made": "nn.BatchNorm1d(outputs, momentum=None)"},
    "without any": {
        "made": "nn.BatchNorm1d(outputs, momentum=0.99, track_running_stats=False)",
    },
    "never evaluated": {"evaluation": "        pass"},
    "taken again": {
        "evaluation": "        update_bn([data], net)\n" + PLAIN["evaluation"],
    },
    "taken again by hand": {
        "made": "nn.BatchNorm1d(outputs)",
        "evaluation": "        norms = [one for one in net.modules() if hasattr(one, 'momentum')]\n"
        "        for one in norms:\n            one.momentum = 1.0\n"
        "        with torch.no_grad():\n            net(data)\n"
        + PLAIN["evaluation"]
        + "\n        for one in norms:\n            one.momentum = 0.1",
    },
}


def program(otherwise):
    return PROGRAM.format(**PLAIN | otherwise)


@pytest.mark.parametrize(("otherwise", "wrong", "right"), HASTY.values(), ids=HASTY)
@pytest.mark.long
def test_statistics_of_the_last_batch_are_told(otherwise, wrong, right, here):
    text = program(otherwise)
    (found,) = diagnosed_text(text, here, verify=True).findings

    assert (found.rule, found.severity, found.op) == ("GS410", "warning", "net")
    assert wrong in text.splitlines()[found.location.line - 1]
    assert found.fixes[0].verified
    assert patched(found.fixes[0].patch, here) == text.replace(wrong, right)


@pytest.mark.parametrize("otherwise", RIGHT.values(), ids=RIGHT)
def test_statistics_that_tell_of_the_data_are_not(otherwise):
    told = findings(program(otherwise))

    assert not [one for one in told if "last batch" in one.message]
