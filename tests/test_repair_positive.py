"""A parameter that has to be positive is learnt as its logarithm, in the program's own spelling."""

import pytest
from corpus import diagnosed_text, finding_of

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


DENSITY = """import torch

sigma = torch.nn.Parameter(torch.tensor([0.5, 1.0]))
opt = torch.optim.SGD([sigma], lr=0.5)
for step in range(3):
    shares = torch.full((3, 2), 0.5) / (sigma * 2.5)
    loss = -torch.log(shares.sum(-1)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(sigma.data.min().item())
"""


def test_a_factor_of_what_the_logarithm_is_taken_of(tmp_path):
    found = diagnosed_text(DENSITY, tmp_path, verify=True).findings[0]

    assert found.location.line == 7
    assert "where `sigma` is" in found.why
    leading = found.fixes[0]
    assert leading.kind == "init" and leading.verified
    assert "log_sigma.exp().data.min()" in leading.patch


@pytest.mark.parametrize(
    "other",
    ["sigma * torch.tensor([1.0, -1.0])", "sigma - 2 * sigma.detach()", "sigma.sin() - 1"],
)
def test_a_parameter_that_is_not_alone_or_not_negative_is_not_named(other, tmp_path):
    text = f"sigma = torch.nn.Parameter(torch.ones(2))\nloss = torch.log({other}).sum()"
    report = diagnosed_text(f"import torch\n{text}\nloss.backward()\n", tmp_path)

    assert report.trace.events[0].given_by is None


@pytest.mark.parametrize(
    "write", ["scale.data[0] = 1.0", "scale.data.clamp_(0.1)", "scale.data += 1", "scale.data = x"]
)
def test_what_writes_to_its_data_stands_in_the_way(write):
    assert repaired(f"{LEAF}x = torch.ones(2)\n{write}\n", "scale") is None


@pytest.mark.parametrize(
    ("zeros", "ones"),
    [
        ("torch.zeros(2)", "torch.ones(2)"),
        ("torch.zeros_like(x)", "torch.ones_like(x)"),
        ("torch.tensor([0.0, 0])", "torch.tensor([1.0, 1.0])"),
        ("torch.full((2,), 0.0)", "torch.full((2,), 1.0)"),
    ],
)
@pytest.mark.long
def test_what_is_divided_by_starts_at_one(zeros, ones, tmp_path):
    text = f"import torch\n\nx = torch.arange(2.0)\nscale = torch.nn.Parameter({zeros})\n"
    text += "loss = ((x + 1) / (2 * scale).square()).sum()\nloss.backward()\n"

    leading = diagnosed_text(text, tmp_path, verify=True).findings[0].fixes[0]

    assert leading.kind == "init" and leading.verified
    assert f"+scale = torch.nn.Parameter({ones})" in leading.patch


def test_what_has_been_trained_to_zero_is_not_started_anew(tmp_path):
    text = """import torch

scale = torch.nn.Parameter(torch.ones(2))
opt = torch.optim.SGD([scale], lr=1.0)
for _ in range(3):
    loss = (torch.ones(2) / scale).sum() + 2 * scale.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
    found = diagnosed_text(text, tmp_path).findings[0]

    assert found.name == "zero-division"
    assert not any(fix.title == "start `scale` at 1" for fix in found.fixes)


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ("return net.scale, 1", "return net.log_scale.exp(), 1"),
        ("a, b = net.scale, 1", "a, b = net.log_scale.exp(), 1"),
        ("return [net.scale]", "return [net.log_scale]"),
        ("held = (net.scale, net.scale)", "held = (net.log_scale, net.log_scale)"),
    ],
)
def test_a_result_is_the_value_and_what_a_list_holds_is_what_is_trained(line, new):
    text = repaired(MODULE.format(start="torch.ones(3)", more=f"def f():\n    {line}"), "net.scale")

    assert text is not None and f"    {new}" in text
