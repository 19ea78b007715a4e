"""GS303: a learning rate that a schedule makes complex."""

import pytest
from corpus import diagnosed_text

PROGRAM = """\
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

torch.manual_seed(0)
LAST = 4


class Poly(LRScheduler):
    def get_lr(self):
        return [base * (1 - self.last_epoch / LAST) ** 0.9 for base in self.base_lrs]


net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{schedule}
for step in range(8):
    x = torch.randn(16, 4)
    loss = (net(x).squeeze(1) - x.sum(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {turn}
"""
SCHEDULES = {
    "of its own": (
        "schedule = Poly(optimizer)",
        "schedule.step()",
        "+        return [base * max(0.0, 1 - self.last_epoch / LAST) ** 0.9",
    ),
    "lambda": (
        "schedule = LambdaLR(optimizer, lambda step: (1 - step / LAST) ** 0.9)",
        "schedule.step()",
        "+schedule = LambdaLR(optimizer, lambda step: max(0.0, 1 - step / LAST) ** 0.9)",
    ),
    "by hand": (
        "groups = optimizer.param_groups",
        "groups[0]['lr'] = 0.1 * (1 - (step + 1) / LAST) ** 0.9",
        "+    groups[0]['lr'] = 0.1 * max(0.0, 1 - (step + 1) / LAST) ** 0.9",
    ),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_past_its_end_is_told_at_its_power(schedule, tmp_path):
    made, turn, written = SCHEDULES[schedule]
    text = PROGRAM.format(schedule=made, turn=turn)
    report = diagnosed_text(text, tmp_path)
    (found,) = [one for one in report.findings if one.severity != "note"]

    assert (found.rule, found.evidence["reason"]) == ("GS303", "complex-setting")
    assert "** 0.9" in text.splitlines()[found.location.line - 1]
    assert f"\n{written}" in found.fixes[0].patch
