"""GS206 where a triangle masks the diagonal as well: the mask begins one diagonal farther out."""

import pytest
from corpus import diagnosed_text

ATTENTION = """\
import torch
from torch import nn

torch.manual_seed(0)
q, k, v = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
x = torch.randn(3, 5, 4)
scores = q(x) @ k(x).transpose(1, 2)
{mask}
loss = (scores.softmax(-1) @ v(x)).square().mean()
loss.backward()
"""
WHOLE = [
    # the lines of the mask, and the one that the patch writes
    ("mask = torch.ones(5, 5).triu().bool()\nscores = scores.masked_fill(mask, float('-inf'))",
     "mask = torch.ones(5, 5).triu(diagonal=1).bool()"),
    ("seen = torch.tril(torch.ones(5, 5), diagonal=-1)\n"
     "scores = scores.masked_fill(seen == 0, float('-inf'))",
     "seen = torch.tril(torch.ones(5, 5), diagonal=0)"),
    ("i, j = torch.tril_indices(5, 5)\nscores[:, i, j] = float('-inf')",
     "i, j = torch.tril_indices(5, 5, offset=-1)"),
    ("scores = scores + torch.full((5, 5), float('-inf')).triu(0)",
     "scores = scores + torch.full((5, 5), float('-inf')).triu(1)"),
]  # fmt: skip


@pytest.mark.parametrize(("mask", "patched"), WHOLE)
@pytest.mark.long
def test_each_row_keeps_its_diagonal(tmp_path, mask, patched):
    (found,) = diagnosed_text(ATTENTION.format(mask=mask), tmp_path, verify=True).findings

    assert found.rule == "GS206"
    assert found.fixes[0].verified
    assert f"+{patched}\n" in found.fixes[0].patch


OTHERS = [
    "scores[:, 2] = float('-inf')",
    "scores[0, 0] = float('-inf')",  # of one sample
    "scores[:, :2] = float('-inf')",
]


@pytest.mark.parametrize("mask", OTHERS)
def test_other_rows_have_nothing_to_do_with_a_diagonal(tmp_path, mask):
    (found,) = diagnosed_text(ATTENTION.format(mask=mask), tmp_path).findings

    assert found.rule == "GS206"
    assert not any("diagonal" in fix.title for fix in found.fixes)
