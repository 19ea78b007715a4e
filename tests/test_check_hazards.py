"""Hazards: warnings in runs that are still healthy, and silence elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradscope.diagnose import diagnose
from gradscope.facts import Finding, Severity
from gradscope.rules import RULES
from gradscope.rules.pages import snippet
from gradscope.target import parse_target, run

HAZARDS = [rule for code, rule in RULES.items() if code.startswith("GS6")]


def findings(source: str, folder: Path) -> tuple[Finding, ...]:
    file = folder / "program.py"
    file.write_text(source)
    seen = run(parse_target(str(file)), silent=True)

    assert seen.steps and not seen.symptoms
    return diagnose(seen)


@pytest.mark.parametrize("rule", HAZARDS, ids=lambda rule: rule.name)
def test_the_example_warns_and_its_repair_does_not(rule, tmp_path):
    (finding,) = findings(snippet(rule, "Example"), tmp_path)

    assert (finding.rule, finding.severity) == (rule.code, Severity.WARNING)
    assert finding.location is not None
    assert findings(snippet(rule, "Use instead"), tmp_path) == ()


def test_the_mask_and_the_hidden_op_are_named(tmp_path):
    (finding,) = findings(snippet(RULES["GS601"], "Example"), tmp_path)

    assert finding.message == (
        "`add` gives inf at 1 of 2 elements, which `clamp` hides from the loss"
    )
    assert [one.role for one in finding.related] == ["mask"]
    assert finding.evidence["operands"] == {"self": 60000.0, "other": 30000.0}


@pytest.mark.parametrize(
    "loss",
    [
        "(x + 3e4).detach().clamp(max=5e4).float().sum() + x.float().sum()",  # no gradient there
        "x.float().sum(); metric = (x + 3e4).clamp(max=5e4)",  # not on the way to the loss
        "x.masked_fill(x > 10, -torch.inf).exp().float().sum()",  # meant
    ],
)
def test_what_no_gradient_passes_is_silent(tmp_path, loss):
    source = (
        "import torch\n"
        "x = torch.tensor([1.0, 6e4], dtype=torch.float16, requires_grad=True)\n"
        f"loss = {loss}\n"
        "loss.backward()\n"
    )

    assert findings(source, tmp_path) == ()
