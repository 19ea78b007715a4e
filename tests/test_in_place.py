"""In-place ops inside a graph: the line that broke is named, and a patch still writes in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from apart import traced

from gradscope.record.flow import Flow

HEAD = """\
import torch

a = torch.tensor([0.0, 4.0], requires_grad=True)
b = torch.tensor([0.0, 4.0], requires_grad=True)
h, part = a * 1.0, a * 1.0
"""
BREAKING = [
    # the line, the op it is
    ("h.div_(b)", "div"),
    ("h.log_()", "log"),
    ("h.sqrt_()", "sqrt"),
    ("h.reciprocal_()", "reciprocal"),
    ("h.pow_(b - 0.5)", "pow"),
    ("h.mul_(1 / b)", "reciprocal"),
    ("h.add_(1).acos_()", "acos"),
    ("h.xlogy_(b)", "xlogy"),
    ("torch.log_(h)", "log"),
    ("h /= b", "div"),
    ("h[:1].div_(b[:1])", "div"),
    ("h[:].log_()", "log"),
    ("part[:1] = h[:1].log_()", "log"),
    ("torch._foreach_div_([part, h], [b + 1, b])", "div"),
    ("torch._foreach_log_([h, part])", "log"),
]


@pytest.mark.parametrize(("line", "op"), BREAKING, ids=[line for line, _ in BREAKING])
def test_the_line_of_the_op_is_named(line: str, op: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"{HEAD}{line}\n(h + part).sum().backward()\n")

    found = traced(program).findings[0]

    assert found.location is not None
    assert (found.location.line, found.op) == (6, op)


MASKED = """\
import torch

a = torch.tensor([0.0, 4.0], requires_grad=True)
h = a * 1.0
{line}
torch.where(a > 0, h, 0.0).sum().backward()
"""
PATCHED = [
    ("h.log_()", "h.copy_(torch.where(h > 0, h, 1.0)).log_()"),
    ("h[:].sqrt_()", "h[:].copy_(torch.where(h[:] > 0, h[:], 1.0)).sqrt_()"),
]


@pytest.mark.parametrize(("line", "patched"), PATCHED, ids=[line for line, _ in PATCHED])
def test_a_patch_still_writes_into_the_operand(
    line: str, patched: str, gradscope: Callable[..., object], tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(MASKED.format(line=line))

    done = gradscope("fix", "program.py")

    assert f"-{line}\n+{patched}\n" in done.stdout


def test_an_operand_that_changes_when_it_is_read_twice_is_not_patched(
    gradscope: Callable[..., object], tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(MASKED.format(line="h.sub_(0).log_()"))

    done = gradscope("fix", "program.py")

    assert "sub_(0).copy_" not in done.stdout


def test_a_node_of_an_inspected_pass_leads_to_its_in_place_op() -> None:
    x, divisor = torch.ones(3, requires_grad=True), torch.ones(3)
    with Flow(lambda: None) as flow:
        h = x * 1
        h.div_(divisor)
        divided = h.grad_fn
        h.log_()

    assert divided is not None and h.grad_fn is not None
    assert flow.calls[divided._sequence_nr()].op == "div"
    assert flow.calls[h.grad_fn._sequence_nr()].op == "log"
