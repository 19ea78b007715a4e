"""Modules that take the place of those that an optimizer holds: told there, and repaired there."""

import pytest
from corpus import diagnosed_text, loud, patched

TRAINER = """\
import copy
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(32, 4)


class Trainer:
    def __init__(self, width, rate):
        self.width, self.rate = width, rate
        self.net = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=rate)

    def restart(self):
        RESTART

    def fit(self, epochs):
        for _ in range(epochs):
            self.opt.zero_grad()
            (self.net(x).squeeze(1) - x[:, 0]).square().mean().backward()
            self.opt.step()


def renewed(layer):
    made = nn.Linear(layer.in_features, layer.out_features)
    return made


def renew(trainer):
    trainer.net[2] = renewed(trainer.net[2])


trainer = Trainer(8, 0.1)
trainer.fit(6)
AGAIN
trainer.fit(8)
"""
MADE = "self.opt = torch.optim.SGD(self.net.parameters(), lr=rate)\n"
NET = "self.net = nn.Sequential(nn.Linear(4, self.width), nn.Tanh(), nn.Linear(self.width, 1))"
SCHEDULED = f"{MADE}        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, width)\n"


def program(restart: str, again: str = "trainer.restart()") -> str:
    return TRAINER.replace("RESTART", restart).replace("AGAIN", again)


def anew(one: str, indent: int) -> str:
    return f"{' ' * indent}{one}.opt = torch.optim.SGD({one}.net.parameters(), lr={one}.rate)\n"


# The program, the line that is told, the line below which the optimizer is made, and what is there.
MADE_ANEW = {
    "a network": (program(NET), NET, NET, anew("self", 8)),
    "a layer that a function gives": (
        program("self.net[2] = renewed(self.net[2])"),
        "self.net[2] = renewed(self.net[2])",
        "self.net[2] = renewed(self.net[2])",
        anew("self", 8),
    ),
    "a copy, which has another name first": (
        program("fresh = copy.deepcopy(self.net)\n        self.net = fresh"),
        "self.net = fresh",
        "self.net = fresh",
        anew("self", 8),
    ),
    "by a function": (
        program("pass", "renew(trainer)"),
        "trainer.net[2] = renewed(trainer.net[2])",
        "renew(trainer)",
        anew("trainer", 0),
    ),
    "outside of the class": (
        program("pass", "trainer.net[2] = nn.Linear(8, 1)"),
        "trainer.net[2] = nn.Linear(8, 1)",
        "trainer.net[2] = nn.Linear(8, 1)",
        anew("trainer", 0),
    ),
    "two layers, one after the other": (
        program("self.net[0] = nn.Linear(4, 8)\n        self.net[2] = nn.Linear(8, 1)"),
        "self.net[0] = nn.Linear(4, 8)",
        "self.net[2] = nn.Linear(8, 1)",
        anew("self", 8),
    ),
    "with its schedule": (
        program(NET).replace(MADE, SCHEDULED),
        NET,
        NET,
        anew("self", 8) + SCHEDULED.split("\n")[1].replace("width", "self.width") + "\n",
    ),
}


@pytest.mark.parametrize("case", MADE_ANEW)
def test_an_optimizer_is_made_anew_below_what_replaces_what_it_holds(case, here):
    text, told, below, line = MADE_ANEW[case]

    found, *others = diagnosed_text(text, here, verify=True).findings

    lines = text.splitlines()
    assert (found.rule, found.evidence["reason"], others) == ("GS403", "replaced", [])
    assert lines[found.location.line - 1].strip() == told
    assert lines[found.related[-1].location.line - 1].strip() == MADE.strip()
    assert found.fixes[0].verified is True
    assert patched(found.fixes[0].patch, here) == text.replace(f"{below}\n", f"{below}\n{line}", 1)


# What makes it is not in sight there: the argument is kept nowhere, or not for good; who made a
# schedule keeps the old optimizer.
OUT_OF_SIGHT = {
    "a rate that is not kept": program(NET).replace(
        "self.width, self.rate = width, rate", "self.width = width"
    ),
    "a rate that changes": program(f"self.rate = 0.5 * self.rate\n        {NET}"),
    "a schedule in a list": program(NET).replace(
        MADE,
        f"{MADE}        self.held = []\n"
        "        self.held.append(torch.optim.lr_scheduler.StepLR(self.opt, 3))\n",
    ),
}


@pytest.mark.parametrize("case", OUT_OF_SIGHT)
def test_what_is_not_in_sight_there_leaves_advice(case, here):
    text = OUT_OF_SIGHT[case]

    (found,) = diagnosed_text(text, here, verify=True).findings

    assert text.splitlines()[found.location.line - 1].strip() == NET
    assert [fix.patch for fix in found.fixes] == [None]


MOVED = """\
import torch
from torch import nn

nets = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)) for _ in range(2))
{}opt = torch.optim.SGD(nets.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(opt, 3)
{}for step in range(6):
    opt.zero_grad()
    sum(net(torch.ones(4, 4)).square().mean() for net in nets).backward()
    opt.step()
    schedule.step()
"""


def test_what_is_made_of_the_optimizer_stays_below_it(here):
    loop = "for net in nets:\n    net[2] = nn.Linear(8, 1)\n"
    found, *_ = diagnosed_text(MOVED.format("", loop), here, verify=True).findings

    assert (found.rule, found.evidence["reason"], found.location.line) == ("GS403", "stale", 8)
    assert found.fixes[0].verified is True
    assert patched(found.fixes[0].patch, here) == MOVED.format(loop, "")


LATE = """\
import torch
from torch import nn

net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for step in range(100):
    if step == 92:
        net[2] = nn.Linear(8, 1)
    opt.zero_grad()
    net(torch.ones(4, 4)).square().mean().backward()
    opt.step()
"""


def test_a_layer_that_is_replaced_late_in_a_run_is_seen():
    (found,) = loud(LATE)

    assert (found.evidence["reason"], found.location.line) == ("replaced", 8)


HEALTHY = {
    "made anew by hand": program(
        f"{NET}\n        {MADE.strip()}".replace("lr=rate", "lr=self.rate")
    ),
    "given to it": program(
        "self.net[2] = nn.Linear(8, 1)\n"
        '        self.opt.add_param_group({"params": self.net[2].parameters()})'
    ),
    "another one beside it": program(
        "self.teacher = nn.Linear(4, 1).requires_grad_(False)\n        self.teacher(x)"
    ),
    "put around it": program("self.net = nn.Sequential(self.net, nn.Identity())"),
    "one for each turn": TRAINER.replace("RESTART", "pass").replace(
        "AGAIN", "trainer = Trainer(8, 0.1)"
    ),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_what_an_optimizer_is_given_or_others_have_is_silent(case):
    assert [found.message for found in loud(HEALTHY[case])] == []
