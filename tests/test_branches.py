"""GS101: the branches of a `where` that computes more than one op of what it discards."""

from pathlib import Path

import pytest
from corpus import diagnosed_text, patched

BRANCHES = """\
import torch

x = torch.tensor([0.0, 1e-9, 0.3, 2.0], requires_grad=True)
theta = x.abs()
small = 1 - theta ** 2 / 6
big = torch.sin(theta) / theta * torch.log(theta)
y = torch.where(theta {test}, {branches})
y.sum().backward()
"""


@pytest.mark.parametrize(
    ("test", "branches", "line"),
    [
        ("< 1e-4", "small, big", "above = torch.where(theta < 1e-4, 1.0, theta)"),
        (">= 1e-4", "big, small", "above = torch.where(theta >= 1e-4, theta, 1.0)"),
    ],
)
def test_a_branch_in_which_several_ops_break_is_computed_of_what_it_is_chosen_for(
    test: str, branches: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = BRANCHES.format(test=test, branches=branches)

    report = diagnosed_text(program, tmp_path, verify=True)

    first = report.findings[0]
    text = patched(first.fixes[0].patch, tmp_path)
    assert {one.rule for one in report.findings} == {"GS101"}
    assert first.fixes[0].verified and first.fixes[0].safety == "safe"
    assert line in text and "big = torch.sin(above) / above * torch.log(above)" in text
    assert "small = 1 - theta ** 2 / 6" in text
