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


TWO_LOSSES = """\
import torch
from torch import nn

torch.manual_seed(0)
body, left, right = nn.Linear(6, 8), nn.Linear(8, 1), nn.Linear(8, 1)
parts = nn.ModuleList((body, left, right))
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
optimizer = torch.optim.SGD({trained}.parameters(), lr=0.05)
for step in range(12):
    x = torch.randn(32, 6)
    y = x.sum(1, keepdim=True)
    hidden = body(x).tanh()
    first = (left(hidden) - y).square().mean()
    second = (right(hidden) + y).square().mean()
    optimizer.zero_grad()
    {passes}
    scaler.step(optimizer)
    scaler.update()
"""
FIRST = "scaler.scale(first).backward(retain_graph=True)"


def of_two_losses(tmp_path, *passes, trained="parts", **kwargs):
    text = TWO_LOSSES.format(passes="\n    ".join(passes), trained=trained)
    found = diagnosed_text(text, tmp_path, **kwargs).findings
    return [one for one in found if one.rule == "GS417"]


UNSCALED = {
    "after it": (FIRST, "second.backward()", 17),
    "before it": ("second.backward(retain_graph=True)", "scaler.scale(first).backward()", 16),
    "a sum": (FIRST, "(0.5 * second + 0.1 * hidden.square().mean()).backward()", 17),
}


@pytest.mark.parametrize(("first", "second", "line"), UNSCALED.values(), ids=UNSCALED)
def test_one_of_several_losses_that_is_not_scaled_is_told(first, second, line, tmp_path):
    (found,) = of_two_losses(tmp_path, first, second, verify=True)

    assert (found.location.line, found.severity) == (line, "error")
    assert found.fixes[0].verified
    assert "+    scaler.scale(" in found.fixes[0].patch


ALL_SCALED = {
    "each": (FIRST, "scaler.scale(second).backward()"),
    "one of them by hand": (FIRST, "(second * scaler.get_scale()).backward()"),
    "divided by the number of passes": (
        "(scaler.scale(first) / 2).backward(retain_graph=True)",
        "(scaler.scale(second) / 2).backward()",
    ),
    "one of them divided": (FIRST, "(scaler.scale(second) / 2).backward()"),
    "added once they were divided": (FIRST, "scaler.unscale_(optimizer)", "second.backward()"),
    "cleared in between": (
        "second.backward(retain_graph=True)",
        "optimizer.zero_grad()",
        "scaler.scale(first).backward()",
    ),
}


@pytest.mark.parametrize("passes", ALL_SCALED.values(), ids=ALL_SCALED)
def test_losses_that_are_all_scaled_are_right(passes, tmp_path):
    assert of_two_losses(tmp_path, *passes) == []


def test_a_loss_of_other_parameters_needs_no_scale(tmp_path):
    other = "(nn.functional.linear(x, right.weight[:, :6]).mean() - 1).square().backward()"

    assert of_two_losses(tmp_path, FIRST, other, trained="nn.ModuleList((body, left))") == []
