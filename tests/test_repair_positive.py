"""A parameter that has to be positive is learnt as its logarithm, in the program's own spelling."""

import pytest
from corpus import finding_of

from gradscope.facts import Location
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import locate
from gradscope.repair.write.positive import as_logarithm
from gradscope.repair.write.splice import spliced
from gradscope.source import Source

MODULE = """import torch
from torch import nn


class Noise(nn.Module):
    def __init__(self, scale=0.1):
        super().__init__()
        self.scale = nn.Parameter({start})

    def forward(self, x):
        return x / self.scale + torch.log(self.scale)


net = Noise()
opt = torch.optim.SGD([net.scale], lr=0.1)
{more}
"""
LEAF = """import torch

scale = torch.full((2,), 0.1, requires_grad=True)
opt = torch.optim.SGD([scale], lr=0.1)
loss = (3 / scale + scale.log()).sum()
print(scale.grad)
"""


def repaired(text: str, name: str) -> str | None:
    source = Source("a.py", text)
    found = finding_of("GS203", op="log", location=Location("a.py", 1, 0, 1, 6, "<module>"))
    culprit = locate(found, source)
    edits = next(as_logarithm(culprit, ask.LearnLogarithm(name)), None)
    return spliced(source, edits) if edits is not None else None


@pytest.mark.parametrize(
    ("start", "learnt"),
    [
        ("torch.tensor(scale)", "torch.tensor(scale).log()"),
        ("0.1 * torch.ones(3)", "(0.1 * torch.ones(3)).log()"),
    ],
)
def test_a_parameter_of_a_module(start, learnt):
    text = repaired(MODULE.format(start=start, more="print(net.scale.item())"), "net.scale")

    assert f"self.log_scale = nn.Parameter({learnt})" in text
    assert "return x / self.log_scale.exp() + self.log_scale\n" in text
    assert "SGD([net.log_scale], lr=0.1)" in text
    assert "print(net.log_scale.exp().item())" in text


def test_a_leaf():
    text = repaired(LEAF, "scale")

    assert "log_scale = torch.full((2,), 0.1).log().requires_grad_()" in text
    assert "SGD([log_scale], lr=0.1)" in text
    assert "loss = (3 / log_scale.exp() + log_scale).sum()" in text
    assert "print(log_scale.grad)" in text


@pytest.mark.parametrize(
    "more",
    [
        "net.scale.data.clamp_(min=0.1)",
        "net.scale.clamp_(min=0.1)",
        "net.scale = None",
        "log_scale = 1",
    ],
)
def test_nothing_is_renamed_that_is_written_to_elsewhere(more):
    assert repaired(MODULE.format(start="torch.ones(3)", more=more), "net.scale") is None
