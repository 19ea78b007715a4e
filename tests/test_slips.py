"""GS301: a slip in the formula of a backward is found by trying, and nothing else is offered."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import diagnosed_text

from gradscope.facts import Finding

PROGRAM = """\
import torch

class Mine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, {arguments}):
        {forward}

    @staticmethod
    def backward(ctx, g):
        {unpacked} = ctx.saved_tensors
        return {returned}

torch.manual_seed(0)
x = torch.randn(4, 4, requires_grad=True)
w = torch.randn(4, 4, requires_grad=True)
m = torch.randn(4, 4) > 0
Mine.apply({given}).square().sum().backward()
"""
# given to forward; forward; unpacked; returned; the line that mends it
SLIPS = {
    "branches exchanged": (
        "x, m",
        "ctx.save_for_backward(m); return torch.where(m, x, 0.1 * x)",
        "m,",
        "torch.where(m, 0.1 * g, g), None",
        "torch.where(m, g, 0.1 * g), None",
    ),
    "the wrong dimension": (
        "x",
        "ctx.save_for_backward(x); return torch.logsumexp(x, 1)",
        "x,",
        "g.unsqueeze(1) * torch.softmax(x, dim=0)",
        "g.unsqueeze(1) * torch.softmax(x, dim=1)",
    ),
    "a transpose forgotten": (
        "x, w",
        "ctx.save_for_backward(x, w); return x @ w",
        "x, w",
        "g @ w, x.t() @ g",
        "g @ w.mT, x.t() @ g",
    ),
    "a transpose too many": (
        "x, w",
        "ctx.save_for_backward(x, w); return x @ w.t()",
        "x, w",
        "g @ w.t(), g.t() @ x",
        "g @ w, g.t() @ x",
    ),
    "a factor forgotten inside": (
        "x",
        "ctx.save_for_backward(x); return x * x.sigmoid()",
        "x,",
        "g * (x.sigmoid() + x.sigmoid() * (1 - x.sigmoid()))",
        "x.sigmoid() * (1 - x.sigmoid()) * x",
    ),
    "a sign inside": (
        "x",
        "ctx.save_for_backward(x); return x.sin() + x**3",
        "x,",
        "g * (x.cos() - 3 * x**2)",
        "g * (x.cos() + (3 * x**2))",
    ),
    "a square's factor forgotten in one term": (
        "x",
        "ctx.save_for_backward(x); return x.sin() + x * x",
        "x,",
        "g * (x.cos() + x)",
        "g * (x.cos() + 2 * x)",
    ),
    "a bound forgotten": (
        "x",
        "ctx.save_for_backward(x); return (3 * x).clamp(0, 2)",
        "x,",
        "3 * g * (x > 0)",
        "3 * g * (x > 0) * (x <=",
    ),
    "the input saved for the output": (
        "x",
        "y = x.exp(); ctx.save_for_backward(x); return y",
        "y,",
        "g * y",
        "y = x.exp(); ctx.save_for_backward(y); return y",
    ),
}


def traced(folder: Path, text: str) -> Finding:
    return diagnosed_text(text, folder, verify=True).findings[0]


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_found_and_verified(slip, tmp_path):
    given, forward, unpacked, returned, mended = SLIPS[slip]
    text = PROGRAM.format(
        arguments=given, given=given, forward=forward, unpacked=unpacked, returned=returned
    )
    finding = traced(tmp_path, text)
    (fix,) = finding.fixes
    assert (finding.rule, fix.verified) == ("GS301", True), fix.verdict
    assert mended in (fix.patch or "")


def test_where_no_edit_mends_it_none_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("gradscope.repair.serve.GUESSES", 1 / 60)
    text = PROGRAM.format(
        arguments="x",
        given="x",
        forward="ctx.save_for_backward(x); return x.erf()",
        unpacked="x,",
        returned="g * (1 - x.tanh() ** 2)",
    )
    (fix,) = traced(tmp_path, text).fixes
    assert (fix.patch, fix.verified) == (None, None)


def test_a_guess_that_was_not_run_is_not_offered(tmp_path):
    given, forward, unpacked, returned, _ = SLIPS["branches exchanged"]
    text = PROGRAM.format(
        arguments=given, given=given, forward=forward, unpacked=unpacked, returned=returned
    )
    report = diagnosed_text(text, tmp_path)

    assert [fix.patch for fix in report.findings[0].fixes] == [None]


def test_a_size_that_forward_left_on_the_ctx_is_used(tmp_path):
    text = PROGRAM.format(
        arguments="x",
        given="x",
        forward="ctx.save_for_backward(); ctx.size = (4, 4); return x.mean(0)",
        unpacked="_",
        returned="g.expand(4, 4)",
    )
    (fix,) = traced(tmp_path, text).fixes
    assert fix.verified
    assert "g.expand(4, 4) / ctx.size[0]" in (fix.patch or "")


def test_a_fraction_that_forward_left_on_the_ctx_is_used(tmp_path):
    text = PROGRAM.format(
        arguments="x, m, p",
        given="x, m, 0.3",
        forward="ctx.save_for_backward(m); ctx.p = p; return x * m / (1 - p)",
        unpacked="m,",
        returned="g * m, None, None",
    )
    (fix,) = traced(tmp_path, text).fixes
    assert fix.verified
    assert "g * m / (1 - ctx.p), None, None" in (fix.patch or "")


def test_a_conjugate_that_was_forgotten_is_put_in(tmp_path):
    text = PROGRAM.format(
        arguments="x, t",
        given="torch.complex(x, w), torch.complex(w, x)",
        forward="ctx.save_for_backward(x, t); return x * t",
        unpacked="x, t",
        returned="g * t.conj(), g * x",
    )
    (fix,) = traced(tmp_path, text.replace(".square()", ".abs().square()")).fixes
    assert fix.verified
    assert "g * t.conj(), g * x.conj()" in (fix.patch or "")
