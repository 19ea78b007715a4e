"""GS417: an optimizer that steps past the GradScaler that has multiplied its loss."""

import pytest
from corpus import diagnosed_text

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
table = nn.Embedding(20, 4)
head = nn.Linear(4, 1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
dense = torch.optim.AdamW(head.parameters(), lr=0.01)
rows = torch.optim.{rows}(table.parameters(), lr={rate})
for step in range(12):
    x, y = torch.randint(0, 20, (32,)), torch.randn(32)
    loss = (head(table(x)).squeeze(1) - y).square().mean()
    dense.zero_grad()
    rows.zero_grad()
    scaler.scale(loss).backward()
    {steps}
    scaler.update()
"""
PAST = "scaler.step(dense)\n    rows.step()"


def findings(tmp_path, steps, rows="SGD", rate="1e-6"):
    text = PROGRAM.format(steps=steps, rows=rows, rate=rate)
    found = diagnosed_text(text, tmp_path).findings
    return [one for one in found if one.rule == "GS417"]


@pytest.mark.parametrize(("rows", "severity"), [("SGD", "error"), ("Adam", "warning")])
def test_a_step_past_the_scaler_is_told_while_another_goes_through_it(rows, severity, tmp_path):
    (found,) = findings(tmp_path, PAST, rows)

    assert (found.location.line, found.severity) == (17, severity)
    assert found.evidence["scale"] == 1024.0
    assert "+    scaler.step(rows)" in found.fixes[0].patch


def test_a_step_without_any_update_of_the_scaler_is_told(tmp_path):
    text = PROGRAM.format(steps="dense.step()\n    rows.step()", rows="SGD", rate="1e-6")
    text = text.replace("    scaler.update()\n", "")
    found = [one for one in diagnosed_text(text, tmp_path).findings if one.rule == "GS417"]

    assert {one.location.line for one in found} == {16, 17}
    assert all("+    scaler.update()" in one.fixes[0].patch for one in found)


RIGHT = {
    "both through it": "scaler.step(dense)\n    scaler.step(rows)",
    "divided first": "scaler.unscale_(rows)\n    rows.step()\n    scaler.step(dense)",
    "divided by hand": (
        "scaler.step(dense)\n    table.weight.grad.div_(scaler.get_scale())\n    rows.step()"
    ),
    "its own loss": (
        "scaler.step(dense)\n    rows.zero_grad()\n    table(x).square().mean().backward()\n"
        "    rows.step()"
    ),
}


@pytest.mark.parametrize("steps", RIGHT)
def test_gradients_that_are_divided_again_are_fine(steps, tmp_path):
    assert findings(tmp_path, RIGHT[steps]) == []


def test_a_loss_that_the_scale_alone_makes_inf_is_skipped_by_the_scaler(tmp_path):
    text = PROGRAM.format(
        steps="scaler.step(dense)\n    scaler.step(rows)", rows="SGD", rate="1e-6"
    )
    text = text.replace("1024.0", "2.0**127").replace("y).square().mean()", "y).square().sum()")

    assert not diagnosed_text(text, tmp_path).findings
