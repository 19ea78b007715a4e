"""A model that stops learning in the middle of training, at a loss that is not 0."""

from collections.abc import Callable

import pytest
import torch
from corpus import diagnosed_text
from torch import nn

from gradscope.facts import Finding, Step, Trace
from gradscope.record import Observation
from gradscope.rules import RULES


def trained(forward: Callable[[nn.Module, torch.Tensor], torch.Tensor], lr: float) -> list[Finding]:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), torch.rand(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    steps = []
    with Observation() as observed:
        for step in range(10):
            optimizer.zero_grad()
            loss = forward(model, x)
            loss.backward()
            optimizer.step()
            steps.append(Step(step, loss.item(), 0.0, 0))
    trace = Trace("t", steps=tuple(steps), magnitudes=observed.sizes.facts())
    return list(RULES["GS403"].check(trace, ()))


def test_a_rectifier_at_the_output_dies_for_negative_targets():
    (found,) = trained(lambda model, x: (torch.relu(model(x) + 1) + 8).square().mean(), 0.05)

    assert found.op == "relu" and found.evidence["reason"] == "died"
    assert "every gradient is exactly 0 from step" in found.message
    assert "all inputs are negative" in found.label


@pytest.mark.parametrize(
    "forward",
    [
        lambda model, x: torch.relu(model(x) + 1).mean(),  # a margin that is met: the loss is 0
        lambda model, x: (model(x) + 8).square().mean(),
    ],
)
def test_training_that_goes_on_or_is_done_is_left_alone(forward):
    assert trained(forward, 0.05) == []


CUT_AWAY = """\
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr={lr})
x = torch.randn(32, 3)
y = {target}
for step in range(12):
    weight = torch.ones(32, 1){mask}
    loss = (weight * {error}).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_loss_that_breaks_off_to_0_is_a_note(tmp_path):
    text = CUT_AWAY.format(
        lr=0.005,
        target="x.sum(1, keepdim=True)",
        mask=" * (step < 6)",
        error="(model(x) - y).square()",
    )
    (found,) = diagnosed_text(text, tmp_path).findings

    assert (found.rule, found.severity, found.location.line) == ("GS403", "note", 10)
    assert (found.evidence["reason"], found.step) == ("nothing-left", 6)


def test_a_loss_that_is_learnt_to_0_is_right(tmp_path):
    text = CUT_AWAY.format(
        lr=0.4,
        target="x[:, :1].sign() * (1 + x[:, :1].abs())",
        mask="",
        error="torch.relu(0.2 - y * model(x))",
    )

    assert diagnosed_text(text, tmp_path).findings == ()


ROUNDED_LATER = """\
import torch
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
x = torch.randn(32, 3)
y = x.sum(1, keepdim=True)
for steps, is_rounded in ((20, False), (20, True)):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(steps):
        weight = {weight} if is_rounded else model.weight
        loss = (torch.nn.functional.linear(x, weight, model.bias) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_weights_that_are_rounded_from_some_step_on_are_told(tmp_path):
    text = ROUNDED_LATER.format(weight="torch.round(4 * model.weight) / 4")
    (found,) = diagnosed_text(text, tmp_path).findings

    assert (found.rule, found.location.line) == ("GS403", 9)


def test_weights_that_are_rounded_straight_through_are_right(tmp_path):
    rounded = "model.weight + (torch.round(4 * model.weight) / 4 - model.weight).detach()"

    assert diagnosed_text(ROUNDED_LATER.format(weight=rounded), tmp_path).findings == ()


RECTIFIED = """\
import torch
import torch.nn.functional as F
from torch import nn


{model}

torch.manual_seed(0)
model = {made}
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
x = torch.randn(32, 4)
y = x[:, :1] - 3
for step in range(14):
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
IN_A_LOOP = """\
def mlp(sizes, act=nn.ReLU):
    layers = []
    for n, m in zip(sizes, sizes[1:]):
        layers += [nn.Linear(n, m), act()]
    return nn.Sequential(*layers)
"""
BEHIND_A_LOOP = """\
def mlp(sizes, act=nn.ReLU):
    layers = []
    for n, m in zip(sizes[:-2], sizes[1:]):
        layers += [nn.Linear(n, m), act()]
    layers.append(nn.Linear(*sizes[-2:]))
    layers.append(act())
    return nn.Sequential(*layers)
"""
IN_FORWARD = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        h = F.relu(self.hidden(x))
        score = F.relu(self.out(h))
        return score
"""
BY_BLOCKS = """\
def block(n, m, *more):
    return nn.Sequential(nn.Linear(n, m, *more), nn.ReLU())
"""


@pytest.mark.parametrize(
    ("model", "made", "line", "patch"),
    [
        (IN_A_LOOP, "mlp([4, 8, 1])", 10, "+    return nn.Sequential(*layers[:-1])\n"),
        (
            IN_A_LOOP.replace("*layers", "*layers, nn.Linear(8, 1), act()"),
            "mlp([4, 8])",
            10,
            "+    return nn.Sequential(*layers, nn.Linear(8, 1))\n",
        ),
        (BEHIND_A_LOOP, "mlp([4, 8, 1])", 11, "-    layers.append(act())\n"),
        (
            "",
            "nn.Sequential(\n    nn.Linear(4, 8),\n    nn.ReLU(),\n    nn.Linear(8, 1),\n"
            "    nn.ReLU(),\n)",
            13,
            "-    nn.ReLU(),\n",
        ),
        ("", "nn.Sequential(nn.Linear(4, 1))\nmodel.append(nn.ReLU())", 10, "-model.append("),
        (IN_FORWARD, "Net()", 13, "+        score = self.out(h)\n"),
        (
            BY_BLOCKS,
            "nn.Sequential(block(4, 8), block(8, 1))",
            11,
            "+model = nn.Sequential(block(4, 8), block(8, 1)[:-1])\n",
        ),
    ],
)
def test_a_rectifier_behind_the_last_layer_is_told_there_and_left_out(
    model, made, line, patch, tmp_path
):
    text = RECTIFIED.format(model=model, made=made)
    (found,) = diagnosed_text(text, tmp_path, verify=True).findings
    fix = found.fixes[0]

    assert (found.rule, found.evidence["reason"], found.location.line) == ("GS403", "died", line)
    is_elsewhere = model is not IN_FORWARD
    assert [one.role for one in found.related] == ["call"] * is_elsewhere
    assert patch in fix.patch and fix.verified


def test_a_rectifier_that_a_layer_reads_stays(tmp_path):
    made = "nn.Sequential(block(4, 1), nn.Linear(1, 1, bias=False))"
    (found,) = diagnosed_text(RECTIFIED.format(model=BY_BLOCKS, made=made), tmp_path).findings

    assert (found.evidence["reason"], found.location.line) == ("died", 16)
    assert not any(fix.patch for fix in found.fixes if fix.kind == "graph")


@pytest.mark.parametrize("target", ["x[:, :1].abs()", "1 + x[:, :1].square()"])
def test_a_rectifier_behind_a_model_that_learns_is_right(target, tmp_path):
    text = RECTIFIED.format(model=IN_A_LOOP, made="mlp([4, 8, 1])")
    text = text.replace("x[:, :1] - 3", target).replace("lr=0.5", "lr=0.05")

    assert diagnosed_text(text, tmp_path).findings == ()
