"""Averages of the weights of two models that nobody writes back (GS407)."""

import pytest
from corpus import diagnosed_text, patched

PROGRAM = """import copy
import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
online = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.Linear(8, 1))
target = copy.deepcopy(online){frozen}
optimizer = torch.optim.SGD(online.parameters(), lr=0.05)
average = {{name: one.detach().clone() for name, one in online.named_parameters()}}


def follow(tau=0.1):
    {follow}


for step in range(12):
    x = torch.randn(16, 3)
    with torch.no_grad():
        wanted = x.sum(1, keepdim=True) + 0.5 * target(x)
    optimizer.zero_grad()
    (online(x) - wanted).square().mean().backward()
    optimizer.step()
    follow()
"""
LOOP = "for p, t in zip(online.parameters(), target.parameters()):\n        {}"
NAMED = (
    "own, theirs = dict(target.named_parameters()), dict(online.named_parameters())\n"
    "    for name in own:\n        {}"
)
FROZEN = ".requires_grad_(False)"
LOST = {  # how it follows, what is frozen, and what the line becomes
    "the loop's variable": (
        LOOP.format("t = tau * p.detach() + (1 - tau) * t"),
        FROZEN,
        "t.copy_(tau * p.detach() + (1 - tau) * t)",
    ),
    "data, of what requires a gradient": (
        LOOP.format("t = p.data * tau + t.data * (1.0 - tau)"),
        "",
        "t.data.copy_(p.data * tau + t.data * (1.0 - tau))",
    ),
    "under no_grad": (
        "with torch.no_grad():\n        "
        + LOOP.format("    t = t + tau * (p - t)").replace("for", "for", 1),
        "",
        "t.copy_(t + tau * (p - t))",
    ),
    "an entry of a dictionary": (
        NAMED.format("own[name] = torch.lerp(own[name], theirs[name].detach(), tau)"),
        FROZEN,
        "own[name].copy_(torch.lerp(own[name], theirs[name].detach(), tau))",
    ),
}
KEPT = {
    "written in place": LOOP.format("t.data.copy_(tau * p.data + (1 - tau) * t.data)"),
    "given as its data": LOOP.format("t.data = tau * p.data + (1 - tau) * t.data"),
    "loaded": NAMED.format("own[name] = tau * theirs[name].detach() + (1 - tau) * own[name]")
    + "\n    target.load_state_dict(own)",
    "in steps": LOOP.format("t.data.mul_(1 - tau).add_(p.data, alpha=tau)"),
    "an average beside both": "for name, p in online.named_parameters():\n"
    "        average[name] = tau * p.detach() + (1 - tau) * average[name]",
    "a model between both, that is run": NAMED.format(
        "own[name] = 0.5 * theirs[name].detach() + 0.5 * own[name]"
    )
    + "\n    functional_call(online, own, (torch.randn(4, 3),))",
    "a distance": LOOP.format("far = (p.data - t.data).norm()"),
    "another sum": LOOP.format("both = 2.0 * p.data + t.data"),
}


@pytest.mark.parametrize(("follow", "frozen", "written"), LOST.values(), ids=LOST)
def test_an_average_that_nobody_reads_is_told_and_written(here, follow, frozen, written):
    text = PROGRAM.format(follow=follow, frozen=frozen)
    found, *_ = diagnosed_text(text, here, verify=True).findings

    assert (found.rule, found.severity, found.op) == ("GS407", "error", "average")
    assert "target.0.weight" in found.message
    assert found.fixes[0].verified is True
    assert written in patched(found.fixes[0].patch, here)


@pytest.mark.parametrize("follow", KEPT.values(), ids=KEPT)
def test_what_is_written_or_used_is_not_told(tmp_path, follow):
    text = PROGRAM.format(follow=follow, frozen=FROZEN)

    assert not [one for one in diagnosed_text(text, tmp_path).findings if one.op == "average"]
