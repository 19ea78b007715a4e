"""Repairs of the training loop that the source alone gives away."""

import pytest
from corpus import diagnosed_file, diagnosed_text

UNSCALED = """\
import torch

torch.manual_seed(0)
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
for _ in range(20):
    optimizer.zero_grad()
    x = torch.randn(64, 8)
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    scaler.scale(loss).backward()
    optimizer.step()
"""


@pytest.mark.long
def test_a_loss_that_is_scaled_and_never_unscaled_is_stepped_through_its_scaler(here):
    script = here / "train.py"
    script.write_text(UNSCALED, encoding="utf-8")

    finding = diagnosed_file(script, verify=True).findings[0]

    assert finding.name == "diverging-training"
    fix = finding.fixes[0]
    assert (fix.kind, fix.verified) == ("loss-scaling", True), fix.verdict
    assert "+    scaler.step(optimizer)\n+    scaler.update()\n" in (fix.patch or "")


SUMMED = """\
import torch

torch.manual_seed(0)
x = torch.randn(64, 4)
w = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.05)
for _ in range(60):
    optimizer.zero_grad()
    loss = {}
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("total", "mean"),
    [
        ("(x @ w - 1).square().sum()", "(x @ w - 1).square().mean()"),
        ("torch.sum((x @ w - 1).square())", "torch.mean((x @ w - 1).square())"),
    ],
)
@pytest.mark.long
def test_a_sum_that_makes_the_steps_too_long_becomes_a_mean(total, mean, here):
    [finding] = diagnosed_text(SUMMED.format(total), here, verify=True).findings

    assert finding.evidence["summed_terms"] == 64
    assert finding.fixes[0].verified and f"+    loss = {mean}\n" in finding.fixes[0].patch


TOO_SMALL = """\
import torch

torch.manual_seed(0)
w = torch.nn.Parameter(torch.full((4,), 1e-4, dtype=torch.float16))
optimizer = torch.optim.SGD([w], lr=0.1)
scaler = torch.amp.GradScaler("cpu", enabled=False)
for step in range(4):
    x = torch.full((8, 4), 1e-4, dtype=torch.float16)
    loss = x.mul(w).mul(1e-3).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def test_what_underflows_is_not_taken_for_an_optimizer(here):
    [finding] = diagnosed_text(TOO_SMALL, here).findings

    assert (finding.name, finding.location.line) == ("underflow", 9)
    assert [fix.patch for fix in finding.fixes if "scaler.step(x)" in (fix.patch or "")] == []
