"""GS302: a write through `.data` into what backward will read; and what only looks like one."""

from pathlib import Path

import pytest
from corpus import diagnosed_file

PROGRAM = """\
import torch

torch.manual_seed(0)
x = torch.randn(4, 3, requires_grad=True)
buffer = torch.zeros(4, 3)
{body}
"""
KEEPS = """\
class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        buffer.copy_(x > 0.5)
        ctx.mask = buffer
        return x * buffer

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.mask

"""
WRONG = {
    # the body, the op that had saved it, the line to blame
    "an assignment": (
        "y = x.sigmoid()\ny.data[0] = 0.0\ny.square().sum().backward()", "sigmoid", 7),
    "a method": ("y = x.exp()\ny.data.mul_(2)\ny.sum().backward()", "exp", 7),
    "an operator": ("y = x.tanh()\ny.data += 1\ny.sum().backward()", "tanh", 7),
    "an operand": ("y = x * buffer\nbuffer.data.fill_(3.0)\ny.sum().backward()", "mul", 7),
    "a part of it": (
        "y = x.exp()\ny.data[1:, 1:].zero_()\ny.sum().backward()", "exp", 7),
    "the columns that it reads": (
        "y = x[:, :2] * buffer[:, 1:]\nbuffer.data[..., 1] = 3.0\ny.sum().backward()", "mul", 7),
    "what a Function keeps": (
        f"{KEEPS}y = Gate.apply(x) + Gate.apply(-x)\ny.square().sum().backward()", "Gate", 10),
    "the second step": (
        "for step in range(2):\n    y = x.exp()\n    if step:\n        y.data.clamp_(max=1)\n"
        "    y.sum().backward()", "exp", 9),
}  # fmt: skip
RIGHT = {
    "a Function that writes what it keeps": (
        f"{KEEPS}for _ in range(2):\n    Gate.apply(x).square().sum().backward()"
    ),
    "before it was saved": "buffer.data.fill_(2.0)\n(x * buffer).sum().backward()",
    "after backward": "y = x.exp()\ny.sum().backward()\ny.data.zero_()",
    "not read by backward": "y = x + buffer\nbuffer.data.fill_(3.0)\ny.sum().backward()",
    "another part of the memory": (
        "y = x[0] * buffer[0]\nbuffer.data[1:].fill_(3.0)\ny.sum().backward()"
    ),
    "the columns between": (
        "y = x[:, ::2] * buffer[:, ::2]\nbuffer.data[..., 1] = 3.0\ny.sum().backward()"
    ),
    "the gradient that is put in": (
        "y = x.exp()\nv = torch.zeros(4, 3)\nv[0] = 1.0\ny.backward(v)\n"
        "y = x.exp()\nv.data[1] = 1.0\ny.backward(v)"
    ),
    "memory that was given back": (
        "y = x.exp().sin().cos()\nfor _ in range(9):\n    torch.zeros(4, 3).add_(1)\n"
        "y.sum().backward()"
    ),
    "an update by hand": (
        "for _ in range(3):\n    (x * x).sum().backward()\n    x.data -= 0.1 * x.grad\n"
        "    x.grad.zero_()"
    ),
    "running statistics": (
        "norm = torch.nn.BatchNorm1d(3)\nfor _ in range(2):\n    y = norm(x) + norm(2 * x)\n"
        "    y.square().sum().backward()"
    ),
    "an average": (
        "y = (x - buffer).square()\nbuffer.mul_(0.9).add_(0.1 * x.detach())\ny.sum().backward()"
    ),
    "retained": (
        "y = x.exp().sum()\ny.backward(retain_graph=True)\ny.backward()\nbuffer.data.add_(1)"
    ),
}


def overwritten(body: str, folder: Path, *, verify: bool = False):
    file = folder / "program.py"
    file.write_text(PROGRAM.format(body=body))
    report = diagnosed_file(file, verify=verify)
    assert report.trace.ending.kind in ("finished", "stopped"), report.trace.ending
    return [finding for finding in report.findings if finding.rule == "GS302"]


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.long
def test_a_write_that_autograd_does_not_see(kind, tmp_path):
    body, saved_by, line = WRONG[kind]

    (finding,) = overwritten(body, tmp_path, verify=True)

    assert finding.evidence["saved_by"] == saved_by
    assert finding.location.line == line
    assert [symptom.kind for symptom in finding.symptoms] == ["wrong-grad"]
    assert finding.fixes[0].verified is True, finding.fixes[0].verdict
    assert ".clone()" in (finding.fixes[0].patch or "")


@pytest.mark.parametrize("kind", RIGHT)
def test_what_harms_no_gradient_is_silent(kind, tmp_path):
    assert overwritten(RIGHT[kind], tmp_path) == []


def test_what_autograd_refuses_is_no_write_that_it_missed(tmp_path):
    file = tmp_path / "program.py"
    body = "y = x.exp()\nwith torch.no_grad():\n    y.mul_(2)\ny.sum().backward()"
    file.write_text(PROGRAM.format(body=body))

    report = diagnosed_file(file)

    assert "modified by an inplace operation" in (report.trace.ending.detail or "")
    assert [finding.rule for finding in report.findings] == ["GS303"]


def test_a_view_that_can_no_longer_be_used_does_no_harm(tmp_path):
    text = """
import torch
w = torch.ones(4, requires_grad=True)
for step in range(7):
    parts = w.split(2)
    parts[0].sum().backward()
with torch.no_grad():
    w.add_(1)
"""
    file = tmp_path / "program.py"
    file.write_text(text)
    report = diagnosed_file(file)

    assert (report.verdict, report.findings) == ("healthy", ())
