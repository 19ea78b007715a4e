"""Where a program keeps its model changes the names in a report, and nothing else."""

from pathlib import Path

import pytest
from corpus import diagnosed_text

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
{held}
optimizer = torch.optim.SGD({net}.parameters(), lr=0.5)
for _ in range(5):
    optimizer.zero_grad()
    x = torch.randn(5, 3)
    loss = {loss}
    loss.backward()
    optimizer.step()
"""
# A model, a loss of it, and what is wrong then.
WRONG = [
    (
        "nn.ModuleDict(dict(a=nn.Linear(3, 3), b=nn.Linear(3, 3)))",
        "{net}['a'](x).square().mean()",
        "dead-gradient",
    ),
    ("nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))", "{net}[1]({net}[0](x).detach()).mean()",
     "dead-gradient"),
    ("nn.Sequential(nn.Linear(3, 1))", "({net}(x) - 5).sqrt().mean()", "domain-error"),
]  # fmt: skip
# Where the model hangs, and how the program gets at it.
PLACES = [
    ("models = [MODEL]", "models[0]"),
    ("parts = {'net': MODEL}", "parts['net']"),
    ("class Trainer: pass\ntrainer = Trainer()\ntrainer.net = MODEL", "trainer.net"),
    ("class Core: pass\ncore = Core()\ncore.parts = {'nets': [MODEL]}", "core.parts['nets'][0]"),
    ("def make():\n    net = MODEL\n    return lambda: net\nget = make()", "get()"),
]


def said(model: str, loss: str, held: str, net: str, folder: Path) -> list[tuple[object, ...]]:
    """What is said of a program, with the model's name as the plain one has it."""
    lines = held + "\n" * (4 - held.count("\n"))  # the rest stands on the same lines
    text = PROGRAM.format(
        held=lines.replace("MODEL", model), net=net, loss=loss.replace("{net}", net)
    )
    return [
        (
            found.name,
            found.severity,
            one.replace(net, "net"),
        )
        for found in diagnosed_text(text, folder).findings
        for one in (found.message, found.why, *found.numbers, *(fix.title for fix in found.fixes))
    ]


@pytest.mark.parametrize(("model", "loss", "cause"), WRONG)
@pytest.mark.long
def test_the_same_is_said(model, loss, cause, tmp_path):
    plain = said(model, loss, "net = MODEL", "net", tmp_path)

    assert plain[0][0] == cause
    for held, net in PLACES:
        assert said(model, loss, held, net, tmp_path) == plain
