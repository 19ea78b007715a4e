"""Gradients that a statement switches off for all that runs after it (GS303)."""

import pytest
from corpus import diagnosed_text

TRAINING = """import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 1)
x, y = torch.randn(8, 3), torch.randn(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


{helpers}


for step in range(4):
    {before}
    loss = (net(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {after}
"""
ITSELF = """def evaluate():
    net.eval()
    torch.set_grad_enabled(False)  # <-
    error = (net(x) - y).abs().mean()
    net.train()
    return error"""
TOLD = """def batch(evaluate=False):
    torch.set_grad_enabled(not evaluate)  # <-
    return x.clone(), y


def evaluate():
    x, y = batch(evaluate=True)
    return (net(x) - y).abs().mean()"""
HELPER = """def to_eval(model):
    model.eval()
    torch.set_grad_enabled(mode=False)  # <-


def evaluate():
    to_eval(net)
    return (net(x) - y).abs().mean()"""
IN_A_BRANCH = """def predict(data, training):
    if not training:
        torch.set_grad_enabled(False)  # <-
    return net(data)


def evaluate():
    return (predict(x, training=step < 0) - y).abs().mean()"""
ON_ITS_OWN_MODE = """def predict(model, data):
    torch.set_grad_enabled(model.training)  # <-
    return model(data)


def evaluate():
    predict(net.eval(), x)
    net.train()"""
ENTERED = """def sample():
    torch.no_grad().__enter__()  # <-
    return net(torch.randn(4, 3)).mean()"""
SWITCHES = {
    "entered by hand": (ENTERED, "sample()", "+@torch.no_grad()\n def sample():"),
    "before what learns": (
        "",
        "torch.set_grad_enabled(False)  # <-\n    target = net(y.expand(8, 3))\n"
        "    loss = (net(x) - target).square().mean()\n    loss.backward()",
        "+    with torch.no_grad():\n+        target = net(y.expand(8, 3))\n     loss",
    ),
    "by itself": (ITSELF, "evaluate()", "+@torch.no_grad()\n def evaluate():"),
    "by what it calls": (TOLD, "evaluate()", "+@torch.no_grad()\n def evaluate():"),
    "by a helper": (HELPER, "evaluate()", "+@torch.no_grad()\n def evaluate():"),
    "by what cannot be told": (IN_A_BRANCH, "evaluate()", "-        torch.set_grad_enabled(False)"),
    "by a mode": (ON_ITS_OWN_MODE, "evaluate()", "-    torch.set_grad_enabled(model.training)"),
    "in the loop": (
        "",
        "torch.set_grad_enabled(False)  # <-\n    print((net(x) - y).abs().mean())",
        "+    with torch.no_grad():\n+        print((net(x) - y).abs().mean())",
    ),
    "an update by hand": (
        "",
        "torch._C._set_grad_enabled(False)  # <-\n"
        "    for p in net.parameters():\n        p -= 0.1 * p",
        "+    with torch.no_grad():\n+        for p in net.parameters():\n+            p -= 0.1",
    ),
}
UNDONE = ITSELF.replace("    return error", "    torch.set_grad_enabled(True)\n    return error")
RIGHT = {
    "a block": (
        "",
        "",
        "with torch.set_grad_enabled(False):\n        print((net(x) - y).abs().mean())",
    ),
    "undone": (UNDONE, "", "evaluate()"),
    "undone by the next pass": (
        TOLD,
        "batch()",
        "evaluate()",
    ),
    "a decorator": (
        "@torch.set_grad_enabled(False)\ndef evaluate():\n    return net(x)",
        "",
        "evaluate()",
    ),
    "a phase": (
        "",
        "for phase in (False, True):\n        torch.set_grad_enabled(phase)\n        net(x)",
        "",
    ),
}


@pytest.mark.parametrize(("helpers", "after", "patch"), SWITCHES.values(), ids=SWITCHES)
@pytest.mark.long
def test_the_statement_is_told_and_switches_off_within_its_function_alone(
    helpers, after, patch, tmp_path
):
    text = TRAINING.format(helpers=helpers, before="", after=after)
    (found,) = diagnosed_text(text, tmp_path, verify=True).findings

    assert (found.rule, found.evidence["switched_off"]) == ("GS303", True)
    assert text.splitlines()[found.location.line - 1].endswith("# <-")
    assert found.fixes[0].verified, found.fixes[0].verdict
    assert patch in found.fixes[0].patch


@pytest.mark.parametrize(("helpers", "before", "after"), RIGHT.values(), ids=RIGHT)
def test_what_is_switched_on_again_is_silent(helpers, before, after, tmp_path):
    report = diagnosed_text(TRAINING.format(helpers=helpers, before=before, after=after), tmp_path)

    assert report.trace.ending.kind == "finished"
    assert not [one for one in report.findings if one.rule == "GS303"]


@pytest.mark.parametrize(("helpers", "before", "after"), RIGHT.values(), ids=RIGHT)
def test_another_reason_is_not_blamed_on_what_is_switched_on_again(
    helpers, before, after, tmp_path
):
    frozen = f"{after}\n    net.requires_grad_(False)"
    text = TRAINING.format(helpers=helpers, before=before, after=frozen)
    (found,) = [one for one in diagnosed_text(text, tmp_path).findings if one.rule == "GS303"]

    assert "switched_off" not in found.evidence


def test_an_evaluation_at_the_end_is_silent(tmp_path):
    text = TRAINING.format(helpers=ITSELF, before="", after="")
    report = diagnosed_text(f"{text}evaluate()\nprint(net(x))\n", tmp_path)

    assert report.trace.ending.kind == "finished"
    assert not report.findings
