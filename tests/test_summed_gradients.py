"""A NaN that is born where two gradients are added: both branches are told, with their lines."""

import json

import pytest

ON_TWO_LINES = """\
import torch
x = torch.zeros(3, requires_grad=True)
a = x * 1.0
up = a.sqrt()
down = 2 * a.sqrt()
(up - down).sum().backward()
"""
# The sum stands in the program's own backward.
WRITTEN_OUT = """\
import torch
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone(), x.clone()
    @staticmethod
    def backward(ctx, first, second):
        return first + second
x = torch.zeros(3, requires_grad=True)
one, two = Twice.apply(x)
up = one.sqrt()
down = 2 * two.sqrt()
(up - down).sum().backward()
"""
PROGRAMS = {"engine": ON_TWO_LINES, "backward": WRITTEN_OUT}


@pytest.mark.parametrize("program", PROGRAMS)
def test_both_branches_are_told_with_their_lines(gradscope, tmp_path, program):
    (tmp_path / "loss.py").write_text(PROGRAMS[program])
    lines = PROGRAMS[program].splitlines()
    up = next(at for at, line in enumerate(lines, 1) if line.startswith("up ="))

    ran = gradscope("trace", "loss.py", "--no-verify", "--format", "json")
    found = json.loads(ran.stdout)["findings"]

    assert [(one["op"], one["location"]["line"]) for one in found] in (
        [("sqrt", up), ("sqrt", up + 1)],
        [("sqrt", up + 1), ("sqrt", up)],
    )
    for one in found:
        (link,) = [link for link in one["chain"] if link.get("branches")]
        told = {(branch["op"], branch["location"]["line"]) for branch in link["branches"]}
        assert told == {("sqrt", up), ("sqrt", up + 1)}
        assert f"`sqrt` (line {up}) and `sqrt` (line {up + 1})" in one["why"]
        assert "inf - inf" in one["why"]


def test_the_report_shows_the_other_branch(gradscope, tmp_path):
    (tmp_path / "loss.py").write_text(ON_TWO_LINES)

    text = " ".join(gradscope("trace", "loss.py", "--no-verify").stdout.split())

    assert "-> sum of the gradients of sqrt (4:6) and sqrt (5:12) ->" in text
    assert "inf of the other sign" in text


@pytest.mark.parametrize(
    "loss",
    [
        "(a.sqrt() + 2 * a.sqrt())",  # inf + inf
        "(a.sqrt() - 2 * a)",  # inf - 2
        "(a.sqrt() * 0 + 2 * a.sqrt())",  # NaN + inf
    ],
)
def test_other_sums_of_gradients_are_no_part_of_it(gradscope, tmp_path, loss):
    made = "import torch\nx = torch.zeros(3, requires_grad=True)\na = x * 1.0\n"
    (tmp_path / "loss.py").write_text(f"{made}{loss}.sum().backward()\n")

    ran = gradscope("trace", "loss.py", "--no-verify", "--format", "json")

    (found,) = json.loads(ran.stdout)["findings"]
    assert not [link for link in found["chain"] if link.get("branches")]
    assert "inf - inf" not in found["why"]
