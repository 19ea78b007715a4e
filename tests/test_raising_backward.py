"""A backward of a custom Function that raises before it returns anything."""

import pytest
from corpus import diagnosed_text, patched

PROGRAM = """\
import torch


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        {lines}


torch.manual_seed(0)
x = torch.randn(3, 4, requires_grad=True)
w = torch.randn(4, 5, requires_grad=True)
loss = Product.apply(x, w).square().sum()
{end}
"""


@pytest.mark.parametrize(
    ("lines", "mended"),
    [
        ("return grad_output @ w, x.t() @ grad_output", "return grad_output @ w.mT, x.t()"),
        ("return grad_output @ w.t(), x @ grad_output", "return grad_output @ w.t(), x.mT @ "),
    ],
)
def test_what_lets_it_run_and_be_right_is_found(lines, mended, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PROGRAM.format(lines=lines, end="loss.backward()")

    (found,) = diagnosed_text(text, tmp_path, verify=True).findings

    assert (found.rule, found.location.line) == ("GS301", 13)
    assert found.evidence["relations"] == ["raises"]
    assert mended in patched(found.fixes[0].patch, tmp_path)
    assert found.fixes[0].verified is True


def test_one_that_nobody_runs_is_not_accused(tmp_path):
    lines = "return grad_output @ w, x.t() @ grad_output"
    text = PROGRAM.format(lines=lines, end="(x.sum() + w.sum()).backward()")

    report = diagnosed_text(text, tmp_path)

    assert report.findings == ()
    (left_out,) = report.not_checked
    assert left_out.what == "the backward of `Product`" and "RuntimeError" in left_out.why
