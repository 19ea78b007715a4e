"""GS404 tells what beside the rate makes the steps overshoot, and mends that."""

from dataclasses import replace
from pathlib import Path

import pytest
from corpus import diagnosed_text

from gradscope.facts import Finding, Location, Magnitudes, Step, Trace, Update, Usage
from gradscope.repair.write.culprit import locate
from gradscope.repair.write.propose import candidates
from gradscope.repair.write.splice import spliced
from gradscope.rules import RULES

STEP = "for _ in range(9):\n    optimizer.step()\n"
LOSSES = tuple(3.0**n for n in range(9))


def judged(folder: Path, text: str, *updates: Update) -> Finding:
    """The finding on a program, of which the updates are known."""
    file = folder / "train.py"
    file.write_text(text)
    line = text.count("\n")
    place = Location(str(file), line, 4, line, 20, "<module>")

    seen = Magnitudes(updates=tuple(replace(one, location=place) for one in updates))
    steps = tuple(Step(index, loss, 0.0, 0) for index, loss in enumerate(LOSSES))
    (found,) = RULES["GS404"].check(Trace("t", steps=steps, magnitudes=seen), ())
    return found


def repaired(found: Finding) -> str:
    """The text with the first fix, as it is where that cannot be written."""
    culprit = locate(found)
    way = next(candidates(culprit, found.fixes[0]), None)
    return spliced(culprit.source, way.edits if way is not None else ())


OWN = """
import torch

class Plain(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {{"lr": lr}})
        self.lr = lr

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                {update}

w = torch.nn.Parameter(torch.ones(3))
optimizer = Plain([w], lr={lr})
for _ in range(12):
    optimizer.zero_grad()
    w.square().sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("update", "mended"),
    [
        ("p.data.add_(p.grad, alpha=self.lr)", "p.data.add_(p.grad, alpha=-self.lr)"),
        ("p += self.lr * p.grad", "p -= self.lr * p.grad"),
        ("d = p.grad * 1; p += self.lr * d", "p -= self.lr * d"),
    ],
)
def test_an_optimizer_that_climbs_is_turned_around(tmp_path, update, mended):
    found, *_ = diagnosed_text(OWN.format(update=update, lr=0.9), tmp_path).findings

    assert "`Plain` adds the gradient to the parameters (line 13)" in found.why
    assert found.fixes[0].title == "subtract the gradient"
    assert mended in (found.fixes[0].patch or "")


@pytest.mark.parametrize(
    "update",
    [
        "p -= self.lr * p.grad",
        "p.data.add_(p.grad, alpha=-self.lr)",
        "grad = -p.grad; p += self.lr * grad",
        "step = -self.lr * p.grad; p += step",
        "p += -self.lr * 0.5 * p.grad",
        "p.data.add_(p.grad, alpha=-self.lr * 0.5)",
    ],
)
def test_one_that_descends_is_not_accused(tmp_path, update):
    found, *_ = diagnosed_text(OWN.format(update=update, lr=3.0), tmp_path).findings

    assert "lands farther from the minimum" in found.why


BY_HAND = """
import torch

w = torch.ones(3, requires_grad=True)
for _ in range(12):
    w.square().sum().backward()
    with torch.no_grad():
        w {sign} {lr} * w.grad
    w.grad = None
"""


def test_an_update_by_hand_is_read_where_it_stands(tmp_path):
    leaps, *_ = diagnosed_text(BY_HAND.format(sign="-=", lr=3.0), tmp_path).findings
    climbs, *_ = diagnosed_text(BY_HAND.format(sign="+=", lr=0.9), tmp_path).findings

    assert "The update adds the gradient to the parameters (line 8)" in climbs.why
    assert "w -= 0.9 * w.grad" in (climbs.fixes[0].patch or "")
    assert leaps.evidence["lr"] == 3.0


ACCUMULATES = (
    "optimizer = SGD(w, lr=0.5)\nfor i in range(9):\n    loss = f(i){}\n    loss.backward()\n"
)


@pytest.mark.parametrize(("scaled", "mended"), [("", True), (" / 4", False)])
def test_many_passes_for_one_step_are_averaged(tmp_path, scaled, mended):
    file = tmp_path / "train.py"
    file.write_text(ACCUMULATES.format(scaled) + "    if i % 4 == 3:\n        optimizer.step()\n")
    step = Location(str(file), 6, 8, 6, 24, "<module>")
    backward = Location(str(file), 4, 4, 4, 19, "<module>")
    updates = tuple(Update(at, "SGD", 0.5, step) for at in (3, 7, 11))
    steps = tuple(Step(at, 3.0**at, 0.0, 0, backward) for at in range(12))
    factor = 1 / 4 if scaled else 1.0
    used = Usage("SGD", 3, 12, 11, (4,) * 3, factors=(factor,) * 12, used=tuple(range(12)))
    usages = (replace(used, steps_at=step),)
    (found,) = RULES["GS404"].check(
        Trace("t", steps=steps, magnitudes=Magnitudes(updates=updates, usages=usages)), ()
    )

    assert ("gradients of 4 backward passes" in found.why) is mended
    assert ("(loss / 4).backward()" in repaired(found)) is mended
