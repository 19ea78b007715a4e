"""GS403 from end to end: where the graph is cut, and the patch that joins it again."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import diagnosed_file

from gradscope.facts import Finding

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
body, side, head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)
{definition}
optimizer = torch.optim.SGD([*body.parameters(), *side.parameters(), *head.parameters()], lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    x = torch.randn(5, 3)
    loss = head(body(x)).square().mean()
    {cut}
    loss.backward()
    optimizer.step()
"""
CUTS = {
    "losses copied into a tensor": (
        "",
        "loss = loss + torch.tensor([side(x).square().mean(), side(x).mean()]).sum()",
        12,
        "torch.stack([side(x).square().mean(), side(x).mean()]).sum()",
    ),
    "a loss read out": (
        "",
        "loss = loss + side(x).square().mean().item()",
        12,
        "loss + side(x).square().mean()\n",
    ),
    "a parameter made of a result": (
        "",
        "loss = loss + nn.Parameter(side(x)).square().mean()",
        12,
        "loss + side(x).square().mean()",
    ),
    "rounding": (
        "",
        "y = side(x); loss = loss + (y.round() - x).square().mean()",
        12,
        "((y + (y.round() - y).detach()) - x)",
    ),
    "a decorator": (
        "@torch.no_grad()\ndef score(x):\n    return side(x).square().mean()\n",
        "loss = loss + score(x)",
        6,
        "@torch.enable_grad()",
    ),
}


def first_finding(folder: Path, source: str) -> Finding:
    script = folder / "train.py"
    script.write_text(source, encoding="utf-8")
    finding, *others = diagnosed_file(script, verify=True).findings
    assert others == []
    return finding


@pytest.mark.parametrize("cut", CUTS)
def test_the_cut_is_shown_and_joined(
    cut: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition, line, place, repaired = CUTS[cut]
    monkeypatch.chdir(tmp_path)

    finding = first_finding(tmp_path, PROGRAM.format(definition=definition, cut=line))

    assert finding.name == "dead-gradient"
    assert finding.evidence["parameters"] == ["side.weight", "side.bias"]
    assert finding.location is not None
    assert finding.location.line == place
    fix = finding.fixes[0]
    assert (fix.kind, fix.verified) == ("graph", True), fix.verdict
    assert repaired in (fix.patch or "")
