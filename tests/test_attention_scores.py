"""Attention that breaks in its backward: by scores that are too large, and not by its mask."""

import pytest
from apart import traced

LARGE = """\
import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(2, 4, 12, 8, requires_grad=True)
hidden = x * {factor}
mask = torch.ones(12, 12, dtype=torch.bool).tril()
mask = mask & (torch.arange(12) < torch.tensor([12, 8])[:, None])[:, None, None]
out = F.scaled_dot_product_attention(hidden, hidden, x, attn_mask={mask})
out.square().mean().backward()
"""
MASKS = ["mask", "torch.zeros(2, 1, 12, 12).masked_fill(~mask, -torch.inf)"]

STEPS = """\
import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(2, 4, 12, 8)
mask = torch.ones(12, 12, dtype=torch.bool).tril()
weight = torch.nn.Parameter(torch.randn(8, 24) * 0.3)
optimizer = torch.optim.SGD([weight], lr=1e7)
for _ in range(10):
    optimizer.zero_grad()
    q, k, v = (x @ weight).chunk(3, dim=-1)
    F.scaled_dot_product_attention(q, k, v, attn_mask=mask).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("mask", MASKS, ids=["bool", "float"])
def test_scores_that_overflow_are_told_from_a_mask(mask, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(LARGE.format(factor=1e20, mask=mask))

    first = traced(program).findings[0]

    assert (first.rule, first.location and first.location.line) == ("GS204", 9)
    assert "Nothing is wrong with the mask" in first.why


@pytest.mark.parametrize("mask", MASKS, ids=["bool", "float"])
def test_scores_of_usual_size_are_healthy(mask, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(LARGE.format(factor=3, mask=mask))

    assert traced(program).verdict == "healthy"


def test_weights_that_grew_in_training_are_the_steps_fault(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(STEPS)

    first = traced(program).findings[0]

    assert (first.rule, first.location and first.location.line) == ("GS404", 13)
