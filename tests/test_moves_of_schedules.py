"""Schedules that are moved on more often than their optimizer steps, and those that are not."""

import pytest
from corpus import diagnosed_text, findings, loud, patched

from gradscope.facts import Schedule, Skipping, Usage
from gradscope.rules.reading.fates import moves_each

TRAINER = """\
import torch
from torch import nn
from torch.optim.lr_scheduler import LinearLR, SequentialLR

torch.manual_seed(0)
x = torch.randn(160, 4)


class Trainer:
    def __init__(self, batches, epochs, every):
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.batches, self.every = batches, every
        total = epochs * batches // every
        self.schedule = MADE

    def update(self):
        self.opt.step()
        self.opt.zero_grad()

    def fit(self, epochs):
        for epoch in range(epochs):
            for i, part in enumerate(x.chunk(self.batches)):
                loss = (self.net(part).squeeze(1) - part[:, 0]).square().mean()
                (loss / self.every).backward()
                if (i + 1) % self.every == 0:
UPDATE
MOVE
            print(epoch, loss.item())


Trainer(16, 6, 4).fit(6)
"""
DECAY = "LinearLR(self.opt, 1.0, 0.0, {})"
LAST = DECAY.format("total")
STAGES = (
    f"SequentialLR(self.opt, [LinearLR(self.opt, 0.5, 1.0, 2), {DECAY.format('total - 2')}], [2])"
)
BATCH, UPDATE = " " * 16, " " * 20
STEP, CLEAR = f"{UPDATE}self.opt.step()\n", f"{UPDATE}self.opt.zero_grad()"
HELPED = f"{UPDATE}self.update()"


def moved(indent: str, *, on_condition: bool = False) -> str:
    if on_condition:
        return f"{indent}if self.schedule is not None:\n{indent}    self.schedule.step()"
    return f"{indent}self.schedule.step()"


def program(made: str = LAST, update: str = f"{STEP}{CLEAR}", move: str = moved(BATCH)) -> str:
    """`move` is what stands at the end of the inner loop, or below it."""
    return TRAINER.replace("MADE", made).replace("UPDATE", update).replace("MOVE", move)


# The program, and the repaired one.
TOO_OFTEN = {
    "in the loop": (
        program(),
        program(update=f"{STEP}{moved(UPDATE)}\n{CLEAR}", move=""),
    ),
    "several in one": (
        program(STAGES),
        program(STAGES, update=f"{STEP}{moved(UPDATE)}\n{CLEAR}", move=""),
    ),
    "beside a helper that steps": (
        program(update=HELPED),
        program(update=f"{HELPED}\n{moved(UPDATE)}", move=""),
    ),
    "on a condition": (
        program(update=HELPED, move=moved(BATCH, on_condition=True)),
        program(update=f"{HELPED}\n{moved(UPDATE, on_condition=True)}", move=""),
    ),
}


@pytest.mark.parametrize("case", TOO_OFTEN)
def test_a_schedule_that_is_moved_on_at_each_pass_is_moved_on_at_each_step(case, here):
    text, repaired = TOO_OFTEN[case]

    found, *_ = diagnosed_text(text, here, verify=True).findings

    assert (found.rule, found.evidence["reason"]) == ("GS407", "idle")
    assert "moved on 96 times in 24 steps: 4 times for each" in found.why
    assert text.splitlines()[found.location.line - 1].strip() == "self.schedule.step()"
    assert found.fixes[0].verified is True
    assert patched(found.fixes[0].patch, here) == repaired.replace(
        "\n\n            print", "\n            print"
    )


EACH = program().replace("Trainer(16, 6, 4)", "Trainer(16, 6, 1)")
WARM = "self.warm = LinearLR(self.opt, 0.5, 1.0, 4)\n        self.schedule = "
OVER = {
    "too short for one step at each pass": EACH.replace("epochs * batches", "epochs + batches"),
    "too short for an epoch each": program(DECAY.format("2"), move=f"{moved(' ' * 12)}\n"),
    "beside a warm-up": EACH.replace("self.schedule = ", WARM)
    .replace("epochs * batches", "epochs + batches")
    .replace(moved(BATCH), f"{moved(BATCH)}\n{BATCH}self.warm.step()"),
}


@pytest.mark.parametrize("case", OVER)
def test_a_schedule_that_is_over_too_early_otherwise_is_moved_on_as_often_as_it_is(case):
    (found,) = (one for one in findings(OVER[case]) if one.severity == "error")

    assert (found.rule, found.evidence["reason"]) == ("GS407", "idle")
    assert "for each" not in found.why


HEALTHY = {
    "at each step": EACH,
    "at each pass, and as long": program().replace("epochs * batches // every", "epochs * batches"),
    "at each epoch": program(DECAY.format("epochs"), move=moved(" " * 12)),
    "a warm-up beside it": EACH.replace("self.schedule = ", WARM).replace(
        moved(BATCH), f"{moved(BATCH)}\n{BATCH}self.warm.step()"
    ),
}


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("case", HEALTHY)
def test_a_schedule_that_lasts_is_silent(case):
    assert [found.message for found in loud(HEALTHY[case])] == []


@pytest.mark.parametrize(
    ("moves", "updates", "asked", "times"),
    [
        (512, 64, 0, 8),
        (65 * 6, 8 * 6, 0, 8),  # the last pass of each epoch has no step
        (515, 128, 0, 4),  # the last cycle is cut off
        (64, 64, 0, 1),
        (6, 96, 0, 1),
        (64, 31, 64, 1),  # a scaler has left out the others
        (256, 62, 64, 4),
        (96, 64, 0, 1),
        (64, 0, 0, 1),
    ],
)
def test_the_number_of_moves_tells_how_many_there_are_for_each_step(moves, updates, asked, times):
    skipping = Skipping(asked, 0, 0.0, 0.0) if asked else None
    schedule = Schedule("LinearLR", moves=moves)

    assert moves_each(Usage("SGD", updates, 512, 0, schedule=schedule, skipping=skipping)) == times
