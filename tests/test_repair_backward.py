"""GS301: the patch of a backward follows from what was measured of it, else there is none."""

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
WRONG = {
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
    "the sum of a softmax along another dimension": (
        "x",
        "y = x.softmax(-1); ctx.save_for_backward(y); return y",
        "y,",
        "y * (g - (g * y).sum(0, keepdim=True))",
        "y * (g - (g * y).sum(-1, keepdim=True))",
    ),
    "a term without its factor": (
        "x",
        "ctx.save_for_backward(x); return x * x.sigmoid()",
        "x,",
        "g * (x.sigmoid() + x.sigmoid() * (1 - x.sigmoid()))",
        "g * (x.sigmoid() + x.sigmoid() * (1 - x.sigmoid()) * x)",
    ),
    "a term subtracted that is added, and the other way round": (
        "x",
        "ctx.save_for_backward(x); return torch.stack([x[0] - 2 * x[1], 2 * x[0] + x[1]])",
        "x,",
        "torch.cat([torch.stack([g[0] - 2 * g[1], 2 * g[0] + g[1]]), 0 * x[2:]])",
        "torch.stack([g[0] + 2 * g[1], -2 * g[0] + g[1]])",
    ),
    "no None for an argument that is no tensor": (
        "x, n",
        "ctx.save_for_backward(x); ctx.n = n; return x ** n",
        "x,",
        "g * ctx.n * x ** (ctx.n - 1)",
        "g * ctx.n * x ** (ctx.n - 1), None",
    ),
    "a power that is one too high": (
        "x, n",
        "ctx.save_for_backward(x); ctx.n = n; return x ** n + x.sin()",
        "x,",
        "g * (ctx.n * x ** ctx.n + x.cos()), None",
        "g * (ctx.n * x ** (ctx.n - 1) + x.cos()), None",
    ),
    "a mask turned around, where a gradient is written into": (
        "x, a",
        "ctx.save_for_backward(x); ctx.a = a; return torch.where(x > 0, x, a * x)",
        "x,",
        "g.masked_scatter(x > 0, ctx.a * g[x > 0]), None",
        "g.masked_scatter(x < 0, ctx.a * g[x < 0]), None",
    ),
    "a mean that has lost its dimension": (
        "x",
        "ctx.save_for_backward(x); return x * (x - x.mean(-1, keepdim=True)).sign()",
        "x,",
        "g * (x - x.mean(-1)).sign()",
        "g * (x - x.mean(-1, keepdim=True)).sign()",
    ),
    "two slips, each on its own side": (
        "x",
        "ctx.save_for_backward(x); return torch.where(x > 0, x * x, 0.1 * x)",
        "x,",
        "g * torch.where(x > 0, x, 0.2 * torch.ones_like(x))",
        "g * torch.where(x > 0, x * 2, 0.1 * torch.ones_like(x))",
    ),
}


def traced(folder: Path, text: str) -> Finding:
    return diagnosed_text(text, folder, verify=True).findings[0]


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.long
def test_what_is_wrong_is_mended(name, tmp_path):
    given, forward, unpacked, returned, mended = WRONG[name]
    text = (
        PROGRAM.format(
            arguments=given, given=given, forward=forward, unpacked=unpacked, returned=returned
        )
        .replace("apply(x, n", "apply(x, 3")
        .replace("apply(x, a", "apply(x, 0.2")
    )
    finding = traced(tmp_path, text)
    (fix,) = finding.fixes
    assert (finding.rule, fix.verified) == ("GS301", True), fix.verdict
    assert mended in (fix.patch or "")


OF_COMPLEX = """\
import torch

class Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, by):
        ctx.save_for_backward(z, by)
        return z * by

    @staticmethod
    def backward(ctx, g):
        z, by = ctx.saved_tensors
        return g * by, (g * z.conj()).sum(0)

torch.manual_seed(0)
z = torch.randn(5, 3, dtype=torch.complex64, requires_grad=True)
by = torch.randn(3, dtype=torch.complex64, requires_grad=True)
torch.view_as_real(Rotate.apply(z, by)).pow(2).sum().backward()
"""


def test_a_conjugate_that_was_forgotten_is_written(tmp_path):
    finding = traced(tmp_path, OF_COMPLEX)
    (fix,) = finding.fixes
    assert (finding.rule, fix.verified) == ("GS301", True)
    assert "+        return g * by.conj(), (g * z.conj()).sum(0)\n" in fix.patch


def test_where_no_relation_is_found_autograd_differentiates_the_forward(tmp_path):
    text = PROGRAM.format(
        arguments="x",
        given="x",
        forward="ctx.save_for_backward(x); return x.erf()",
        unpacked="x,",
        returned="g * (1 - x.tanh() ** 2)",
    )
    (fix,) = traced(tmp_path, text).fixes
    assert fix.verified and "+            out = x.erf()" in fix.patch


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


def test_two_functions_whose_inputs_are_called_alike_are_mended_each(tmp_path):
    text = PROGRAM.format(
        arguments="x",
        given="x",
        forward="ctx.save_for_backward(x); return x * x.sigmoid()",
        unpacked="x,",
        returned="g * (x.sigmoid() - x * x.sigmoid() * (1 - x.sigmoid()))",
    )
    other = text[text.index("class Mine") : text.index("torch.manual_seed")]
    other = other.replace("Mine", "Other").replace("x * x.sigmoid(); ", "").replace("- x *", "+")
    text = text.replace("torch.manual_seed", f"{other}torch.manual_seed")
    text = text.replace("Mine.apply(x)", "Other.apply(Mine.apply(x))")

    findings = diagnosed_text(text, tmp_path, verify=True).findings

    assert [one.fixes[0].verified for one in findings] == [True, True]
    changes = [one.fixes[0].verdict.effects.change for one in findings]
    assert [change.bad_after for change in changes] == [0, 0]


SAVED = "ctx.save_for_backward(x, w); "


@pytest.mark.parametrize(
    ("arguments", "given", "forward", "unpacked", "returned", "written"),
    [
        (
            "x",
            "x",
            "ctx.save_for_backward(x); return x * torch.sigmoid(x)",
            "x,",
            "g * torch.sigmoid(x) * (1 - torch.sigmoid(x))",
            "return torch.autograd.grad(out, x, g)[0]\n",
        ),
        (
            "x, power",
            "x, 3",
            "ctx.save_for_backward(x); ctx.n = power; y = x**power; return y * torch.exp(-x)",
            "x,",
            "g * ctx.n * x, None",
            "return torch.autograd.grad(out, x, g)[0], None\n",
        ),
        (
            "x, w",
            "x, w",
            SAVED + "return x * torch.tanh(w) + w**2",
            "x, w",
            "g * w, g * x * w",
            "return grads[0], grads[1]\n",
        ),
        (
            "x, w",
            "x, w",
            SAVED + "return x * w",
            "x, w",
            "g * w",
            "return grads[0], grads[1]\n",
        ),
    ],
)
@pytest.mark.long
def test_autograd_differentiates_what_no_slip_explains(
    arguments, given, forward, unpacked, returned, written, tmp_path
):
    text = PROGRAM.format(
        arguments=arguments, given=given, forward=forward, unpacked=unpacked, returned=returned
    )

    leading = traced(tmp_path, text).fixes[0]

    assert leading.title == "let autograd differentiate the forward"
    assert leading.verified, leading.verdict
    assert written in leading.patch


@pytest.mark.parametrize(
    "forward",
    [
        "ctx.save_for_backward(x); return x * torch.sigmoid(x.detach())",
        "ctx.save_for_backward(x); ctx.mark_dirty(x); x.mul_(2); return x",
        "ctx.save_for_backward(x); return x * torch.sigmoid(w)",
        "ctx.save_for_backward(x); ctx.save_for_backward(w); return x * torch.sigmoid(w)",
        "return x if ctx.save_for_backward(x) else x",
    ],
)
def test_a_forward_that_hides_from_autograd_is_not_given_to_it(forward, tmp_path):
    text = PROGRAM.format(
        arguments="x, w",
        given="x, w",
        forward=forward,
        unpacked="x,",
        returned="g * torch.cos(x), None",
    )

    report = diagnosed_text(text, tmp_path)

    titles = {fix.title for found in report.findings for fix in found.fixes}
    assert "let autograd differentiate the forward" not in titles


def test_a_forward_without_a_context_of_its_own_is_left_as_it_is(tmp_path):
    text = PROGRAM.replace("ctx, {arguments}", "*parts").format(
        given="x",
        forward="ctx, x = parts; ctx.save_for_backward(x); return x * torch.sigmoid(x)",
        unpacked="x,",
        returned="g * torch.cos(x)",
    )

    assert traced(tmp_path, text).fixes[0].patch is None


def test_a_transposed_gradient_of_a_flat_forward_is_turned(tmp_path):
    text = PROGRAM.format(
        arguments="x, w",
        given="x, w",
        forward="ctx.save_for_backward(x, w); return x @ w.sign().t()",
        unpacked="x, w",
        returned="g @ w.sign(), x.t() @ g",
    ).replace("w = torch.randn(4, 4", "w = torch.randn(2, 4")

    report = diagnosed_text(text, tmp_path, verify=True)
    wrong = next(one for one in report.findings if "shape" in one.message)

    assert wrong.fixes[0].verified
    assert "+        return g @ w.sign(), (x.t() @ g).mT\n" in wrong.fixes[0].patch


RUNNING = """\
import torch

class Running(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().cumsum(1).sum(1)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        grads = torch.zeros_like(x)
        for at in range(x.shape[1]):
            grads[:, at] = 2 * x[:, at] * (x.shape[1] - at)
        return grads

torch.manual_seed(0)
x = torch.randn(4, 3, requires_grad=True)
(3 * Running.apply(x)).sum().backward()
"""


@pytest.mark.long
def test_a_gradient_that_a_loop_fills_is_mended_where_it_is_returned(tmp_path):
    finding = traced(tmp_path, RUNNING)

    assert finding.rule == "GS301"
    assert RUNNING.splitlines()[finding.location.line - 1].strip() == "return grads"
    assert "+        return g.unsqueeze(-1) * grads\n" in finding.fixes[0].patch
    assert finding.fixes[0].verified


SCAN = """\
import torch

class Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        h, states = torch.zeros_like(a[0]), []
        for one, other in zip(a, b):
            h = one * h + other
            states.append(h)
        out = torch.stack(states)
        ctx.save_for_backward(a, out)
        return out

    @staticmethod
    def backward(ctx, g):
        a, out = ctx.saved_tensors
        grad_b, carry = torch.empty_like(g), torch.zeros_like(g[0])
        for at in reversed(range(len(a))):
            carry = carry + g[at]
            grad_b[at] = carry
            carry = carry * a[at]
        return grad_b * out, grad_b

torch.manual_seed(0)
a, b = torch.rand(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
Scan.apply(a, b).square().sum().backward()
"""


@pytest.mark.long
def test_a_forward_with_a_loop_is_left_to_autograd_and_saves_what_that_needs(tmp_path):
    finding = traced(tmp_path, SCAN)

    assert (finding.rule, finding.fixes[0].verified) == ("GS301", True)
    patch = finding.fixes[0].patch
    assert "+        ctx.save_for_backward(a, b)\n" in patch
    assert "+                h = one * h + other\n" in patch
    assert "torch.autograd.grad(out, (a, b), g)" in patch


STEEP = """\
import torch

class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        e = torch.exp(x)
        return g * e * (e + x + 1) / (e + 1) ** 2

x = torch.tensor([-1.0, 0.5, 60.0], requires_grad=True)
Gate.apply(x).sum().backward()
"""


@pytest.mark.long
def test_a_backward_that_overflows_is_left_to_autograd(tmp_path):
    finding = traced(tmp_path, STEEP)

    assert finding.rule == "GS204"
    assert finding.fixes[0].kind == "backward-rewrite"
    assert finding.fixes[0].verified
    assert "torch.autograd.grad(out, x, g)[0]" in finding.fixes[0].patch
