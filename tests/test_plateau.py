"""GS407 where a schedule waits for the wrong end of what it is told."""

import pytest
from corpus import diagnosed_text

PROGRAM = """\
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

torch.manual_seed(0)
x = torch.randn(256, 6)
y = (x[:, 0] + 0.5 * x[:, 1] > 0).long()
net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
schedule = {schedule}
told = iter({told})
for epoch in range(7):
    for part in torch.randperm(256).split(32):
        loss = nn.functional.cross_entropy(net(x[part]), y[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    schedule.step(next(told))
"""
ACCURACY = "[0.5, 0.6, 0.7, 0.75, 0.8, 0.82, 0.85]"
LOSS = "[0.69, 0.66, 0.62, 0.6, 0.58, 0.57, 0.55]"
MIXED = "[0.5, 0.62, 0.6, 0.65, 0.63, 0.7, 0.71]"
UPSIDE_DOWN = [
    # the schedule, what it is told, what the patch makes of it
    ("ReduceLROnPlateau(optimizer, patience=2)", ACCURACY,
     'ReduceLROnPlateau(optimizer, patience=2, mode="max")'),
    ("ReduceLROnPlateau(optimizer, 'min', patience=2)", ACCURACY,
     'ReduceLROnPlateau(optimizer, "max", patience=2)'),
    ("ReduceLROnPlateau(optimizer, mode='max', patience=2)", LOSS,
     'ReduceLROnPlateau(optimizer, mode="min", patience=2)'),
]  # fmt: skip
RIGHT = [
    ("ReduceLROnPlateau(optimizer, patience=2)", LOSS),
    ("ReduceLROnPlateau(optimizer, mode='max', patience=2)", ACCURACY),
    ("ReduceLROnPlateau(optimizer, patience=2)", MIXED),
    ("ReduceLROnPlateau(optimizer, patience=9)", ACCURACY),  # it lowers nothing
]


@pytest.mark.parametrize(("schedule", "told", "patched"), UPSIDE_DOWN)
@pytest.mark.long
def test_a_schedule_that_waits_for_the_wrong_end_is_turned(tmp_path, schedule, told, patched):
    text = PROGRAM.format(schedule=schedule, told=told)
    (found,) = diagnosed_text(text, tmp_path, verify=True).findings

    assert (found.rule, found.evidence["reason"], found.location.line) == (
        "GS407",
        "upside-down",
        10,
    )
    assert found.severity.value == "warning"
    assert found.fixes[0].verified
    assert f"+schedule = {patched}\n" in found.fixes[0].patch


@pytest.mark.parametrize(("schedule", "told"), RIGHT)
def test_a_schedule_that_waits_for_the_right_end_is_left(tmp_path, schedule, told):
    text = PROGRAM.format(schedule=schedule, told=told)

    assert diagnosed_text(text, tmp_path).findings == ()
