"""GS407 where an optimizer is given one module twice, and another one never."""

import pytest
from corpus import diagnosed_text, patched

PROGRAM = """\
import itertools
import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 6), nn.Linear(5, 6)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x, y):
        return self.scale * self.one(x) @ self.two(y).T

    def learning(self):
        RETURNED


def made_for(parameters):
    return torch.optim.SGD([p for p in parameters if p.requires_grad], lr=0.05)


net = Net()
MADE
for step in range(6):
    optimizer.zero_grad()
    scores = net(torch.randn(8, 4), torch.randn(8, 5))
    nn.functional.cross_entropy(scores, torch.arange(8)).backward()
    optimizer.step()
"""
RETURNED = "return [*self.one.parameters(), *self.{}.parameters(), self.scale]"
GIVEN = "optimizer = torch.optim.SGD({}, lr=0.05)"
TWICE = {  # with what stands for the second of them
    "in a list": GIVEN.format("[*net.one.parameters(), *net.{}.parameters(), net.scale]"),
    "chained": GIVEN.format(
        "itertools.chain(net.one.parameters(), net.{}.parameters(), [net.scale])"
    ),
    "one after the other": "held = [net.scale, *net.one.parameters()]\n"
    "held += list(net.{}.parameters())\n" + GIVEN.format("held"),
    "extended": "held = [net.scale]\nheld.extend(net.one.parameters())\n"
    "held.extend(net.{}.parameters())\n" + GIVEN.format("[dict(params=held)]"),
    "in a loop": "held = [net.scale]\nfor part in (net.one, net.{}):\n"
    "    held += part.parameters()\n" + GIVEN.format("held"),
    "in a comprehension": GIVEN.format(
        "[p for part in [net.one, net.{}] for p in part.parameters()] + [net.scale]"
    ),
    "to a function": "scale = [net.scale]\n"
    "optimizer = made_for([*scale, *net.one.parameters(), *net.{}.parameters()])",
    "in groups": "decay, plain = [], [net.scale]\nfor part in (net.one, net.{}):\n"
    "    for p in part.parameters():\n        (plain if p.ndim < 2 else decay).append(p)\n"
    + GIVEN.format("[dict(params=decay, weight_decay=0.1), dict(params=plain)]"),
    "of an object": """class Trainer:
    def __init__(self):
        self.one, self.two = net.one, net.two
        held = [net.scale]
        for part in [self.one, self.{}]:
            held.extend(part.parameters())
        self.optimizer = torch.optim.SGD(held, lr=0.05)


optimizer = Trainer().optimizer""",
    "by a method": GIVEN.format("net.learning()"),
}
OTHERWISE = {
    "left out alone": GIVEN.format("[*net.one.parameters(), net.scale]"),
    "shared": "net.other = nn.Sequential(net.one)\n"
    + GIVEN.format("[*net.one.parameters(), *net.other.parameters()]"),
}


def program(made, second):
    returned = RETURNED.format(second if "learning" in made else "two")
    return PROGRAM.replace("MADE", made.format(second)).replace("RETURNED", returned)


@pytest.mark.parametrize("case", TWICE)
@pytest.mark.long
def test_the_second_is_the_one_that_was_left_out(case, here):
    found, *others = diagnosed_text(program(TWICE[case], "one"), here, verify=True).findings

    assert others == []
    assert (found.rule, found.severity) == ("GS407", "warning")
    wrong, right = (program(TWICE[case], one).splitlines() for one in ("one", "two"))
    assert [at for at, line in enumerate(wrong, 1) if line != right[at - 1]] == [
        found.location.line
    ]
    assert found.fixes[0].verified is True
    assert patched(found.fixes[0].patch, here) == program(TWICE[case], "two")


@pytest.mark.parametrize("made", OTHERWISE.values(), ids=OTHERWISE)
def test_what_is_not_listed_twice_is_noted_as_before(made, here):
    (found,) = diagnosed_text(program(made, "two"), here).findings

    assert (found.rule, found.severity) == ("GS407", "note")


@pytest.mark.parametrize("made", TWICE.values(), ids=TWICE)
def test_each_of_them_once_is_right(made, here):
    told = diagnosed_text(program(made, "two"), here).findings

    assert [one for one in told if one.severity != "note"] == []
