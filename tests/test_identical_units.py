"""Units that are all the same and stay so (GS416): they are told, and no others."""

import pytest
from corpus import diagnosed_text

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
x, y = torch.randn(24, 4), torch.arange(24) % 3
first, last = nn.Linear(4, 8), nn.Linear(8, 3)
w = nn.Parameter(torch.randn(4, 8) / 2)
pool = nn.Parameter(torch.ones(1, 4) / 4)
down, up = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.zeros(3, 2))
conv, depthwise = nn.Conv1d(1, 6, 3), nn.Conv1d(4, 4, 3, groups=4)
"""
END = """
some = [*first.parameters(), *last.parameters(), *conv.parameters(), *depthwise.parameters()]
optimizer = torch.optim.SGD([*some, w, pool, down, up], lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    loss = F.cross_entropy({scores}, y)
    loss.backward()
    optimizer.step()
"""
SAME = [
    # the line that fills, the scores, with the patch
    ("nn.init.constant_(first.weight, 0.3)", "last(torch.tanh(first(x)))",
     'nn.init.kaiming_normal_(first.weight, nonlinearity="relu")'),
    ("first.weight.data.fill_(0.3)", "last(torch.tanh(first(x)))",
     'nn.init.kaiming_normal_(first.weight, nonlinearity="relu")'),
    ("w = nn.Parameter(torch.ones(4, 8))", "last(x @ w)",
     'w = nn.Parameter(nn.init.kaiming_normal_(torch.empty(4, 8), nonlinearity="relu"))'),
    ("w = nn.Parameter(torch.full((4, 8), 0.2))", "last(torch.tanh(x @ w))",
     'w = nn.Parameter(nn.init.kaiming_normal_(torch.empty((4, 8)), nonlinearity="relu"))'),
    ("nn.init.ones_(conv.weight)",
     "(conv(x[:, None]).relu().sum(2, keepdim=True) * last.weight.T[:6]).sum(1)",
     'nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")'),
]  # fmt: skip
# The bias of a layer is of its units, and the weights after it as well: they have to be alike.
ALIKE = "\nnn.init.zeros_(first.bias)\nnn.init.ones_(last.weight)\nnn.init.zeros_(conv.bias)\n"
APART = [
    ("nn.init.constant_(last.weight, 0.3)", "last(torch.tanh(first(x)))"),  # rows of their own
    ("nn.init.constant_(depthwise.weight, 0.3)", "depthwise(x.T[None]).mean(2) + last(first(x))"),
    ("", "last(first(x * pool))"),
    ("", "last(first(x)) + x @ down.T @ up.T"),
    ("nn.init.constant_(first.weight, 0.3)", "last(F.dropout(torch.tanh(first(x)), 0.5))"),
]


def told(text, tmp_path, **options):
    """Beside the parameters that a program here does not use."""
    found = diagnosed_text(text, tmp_path, **options).findings
    return [one for one in found if one.rule == "GS416"]


@pytest.mark.parametrize(("filled", "scores", "patched"), SAME)
@pytest.mark.long
def test_units_that_stay_the_same_are_told(tmp_path, filled, scores, patched):
    text = HEAD + filled + ALIKE + "last.weight.data[0] *= 2" + END.format(scores=scores)
    (found,) = told(text, tmp_path, verify=True)

    assert text.splitlines()[found.location.line - 1] == f"    loss = F.cross_entropy({scores}, y)"
    fix = found.fixes[0]
    assert fix.verified
    assert f"+{patched}\n" in fix.patch


@pytest.mark.parametrize(("filled", "scores"), APART)
def test_units_that_differ_are_no_finding(tmp_path, filled, scores):
    text = HEAD + filled + END.format(scores=scores)

    assert told(text, tmp_path) == []
