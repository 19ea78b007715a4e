"""Patches of the user's source: every spelling, exactly undoable, never of foreign files."""

import ast
import math
import random
import re
import subprocess
from dataclasses import replace

import pytest
import torch
from corpus import REQUESTS, diagnosed_file
from hypothesis import given, settings
from hypothesis import strategies as st

from gradscope.facts import (
    Finding,
    Fix,
    Holds,
    Location,
    Measured,
    NumberDecides,
    Operand,
    Phase,
    Related,
    Severity,
)
from gradscope.facts import requests as ask
from gradscope.record.sites import resolve
from gradscope.repair.patched import Patched, patched
from gradscope.repair.write.culprit import Unpatchable, locate
from gradscope.repair.write.propose import candidates, fixes_of
from gradscope.repair.write.splice import (
    after,
    before,
    edits_between,
    spliced,
    unified,
    without_first,
)
from gradscope.report.diffs import changes
from gradscope.source import Source

HEAD = """import math
import torch
import torch as th
import torch.nn.functional as F
from torch import sqrt as root

x = torch.tensor([0.0, 0.5, 2.0], requires_grad=True)
m = x > 0
"""

MASKED = [
    # culprit, op, operands at 0, the line
    ("x ** 0.5", "pow", {"self": 0.0, "exponent": 0.5}, "y = torch.where(m, {}, x)"),
    ("x**.5", "pow", {"self": 0.0, "exponent": 0.5}, "y = torch.where(x > 0, {}, x)"),
    ("x.pow(0.5)", "pow", {"self": 0.0, "exponent": 0.5}, "y = torch.where(m, {}, x)"),
    ("torch.pow(x, 0.5)", "pow", {"self": 0.0, "exponent": 0.5}, "y = th.where(m, {}, x)"),
    ("torch.pow(input=x, exponent=0.5)", "pow", {"self": 0.0, "exponent": 0.5}, "y = ({})[m]"),
    ("pow(x, 0.5)", "pow", {"self": 0.0, "exponent": 0.5}, "y = ({})[x > 0]"),
    ("(x + 0) ** 0.5", "pow", {"self": 0.0, "exponent": 0.5}, "y = torch.where(m, {}, 1.0)"),
    ("(2 * x.abs()) ** 0.5", "pow", {"self": 0.0, "exponent": 0.5}, "y = torch.where(m, {}, 1.0)"),
    ("x.sqrt()", "sqrt", {"self": 0.0}, "y = x.where(~m, {})"),
    ("torch.sqrt(x)", "sqrt", {"self": 0.0}, "y = ({}).masked_fill(~m, 0.0)"),
    ("th.sqrt(x)", "sqrt", {"self": 0.0}, "y = ({}).masked_fill(x <= 0, 0.0)"),
    ("root(x)", "sqrt", {"self": 0.0}, "y = m.float() * {}"),
    ("torch.sqrt(input=x)", "sqrt", {"self": 0.0}, "y = {} * (x > 0)"),
    ("torch.sqrt(x + 0)", "sqrt", {"self": 0.0}, "keep = m.float(); y = {} * keep"),
    ("x.abs().sqrt()", "sqrt", {"self": 0.0}, "y = torch.where(m, {}, 1.0)"),
    ("torch.sqrt((x))", "sqrt", {"self": 0.0}, "y = torch.where(m, {}, 1.0)"),
    ("torch.sqrt(\n    x,\n)", "sqrt", {"self": 0.0}, "y = torch.where(m, {}, 1.0)"),
    ("torch.log(x)", "log", {"self": 0.0}, "y = torch.where(m, {}, 1.0)"),
    ("x.log()", "log", {"self": 0.0}, "y = ({})[m]"),
    ("(x * 2).log()", "log", {"self": 0.0}, "y = ({}).masked_select(m)"),
    ("torch.log2(x)", "log2", {"self": 0.0}, "y = torch.where(m, {}, 1.0)"),
    ("1 / x", "reciprocal", {"self": 0.0}, "y = torch.where(m, {}, 1.0)"),
    ("torch.reciprocal(x)", "reciprocal", {"self": 0.0}, "y = torch.where(m, {}, 1.0)"),
    ("x.reciprocal()", "reciprocal", {"self": 0.0}, "y = torch.where(m, {}, 1.0)"),
    ("m / x", "div", {"self": 1.0, "other": 0.0}, "y = torch.where(m, {}, 1.0)"),
    ("torch.div(x + 1, x)", "div", {"self": 1.0, "other": 0.0}, "y = ({})[x != 0]"),
    ("(x + 1).div(x)", "div", {"self": 1.0, "other": 0.0}, "y = torch.where(m, {}, 1.0)"),
    ("(x + 1) / (x * 3)", "div", {"self": 1.0, "other": 0.0}, "y = torch.where(m, {}, 1.0)"),
    ("torch.rsqrt(x)", "rsqrt", {"self": 0.0}, "y = torch.where(m, {}, 1.0)"),
    (
        "x ** 0.5",
        "pow",
        {"self": 0.0, "exponent": 0.5},
        "f = lambda: torch.where(m, {}, x); y = f()",
    ),
    ("x.sqrt()", "sqrt", {"self": 0.0}, "y = torch.stack([torch.where(m, {}, a) for a in [x]])"),
    ("x ** 0.5", "pow", {"self": 0.0, "exponent": 0.5}, "y = torch.zeros(3); y[m] = ({})[m]"),
]


def span(text: str, expression: str) -> Location:
    source = Source("loss.py", text)
    start = text.index(expression, len(HEAD))
    return Location(
        "loss.py", *source.place(start), *source.place(start + len(expression)), "<module>"
    )


def finding(text: str, culprit: str, op: str, kind: str, values: dict[str, float], **more):
    return Finding(
        rule="GS101",
        name="masked-branch",
        severity=Severity.ERROR,
        phase=Phase.BACKWARD,
        step=0,
        op=op,
        message="",
        why="",
        location=span(text, culprit),
        measured=Measured(tuple(values.items()), "float32"),
        fixes=(Fix(kind, "a fix", request=REQUESTS.get(kind)),),
        **more,
    )


def ways(found: Finding, text: str) -> list[Patched]:
    culprit = locate(found, Source("loss.py", text))
    written = (
        patched(culprit, candidate)
        for fix in fixes_of(culprit)
        for candidate in candidates(culprit, fix)
    )
    return [way for way in written if way is not None]


def run(text: str):
    names: dict[str, object] = {}
    exec(compile(text, "loss.py", "exec"), names)
    return names["loss"], names["x"].grad


@pytest.mark.parametrize(("culprit", "op", "values", "line"), MASKED)
def test_a_masked_branch_in_every_spelling(culprit, op, values, line):
    """The first patch keeps the loss and every gradient that was finite bit-identical."""
    text = f"{HEAD}{line.format(culprit)}\nloss = y.sum()\nloss.backward()\n"
    loss, gradient = run(text)
    assert gradient[0].isnan()

    first = ways(finding(text, culprit, op, "masked-branch", values), text)[0]
    new_loss, new_gradient = run(first.text)

    assert "masked-branch" == first.kind
    assert torch.equal(loss, new_loss)
    assert torch.equal(gradient[1:], new_gradient[1:])
    assert new_gradient.isfinite().all()


ONCE = [
    # culprit, the line, the lines with the patch
    ("x / x.sum(0)", "y = {}", "x_sum = x.sum(0)\ny = x / torch.where(x_sum != 0, x_sum, 1.0)"),
    ("x / torch.norm(x)", "y = {}",
     "x_norm = torch.norm(x)\ny = x / torch.where(x_norm != 0, x_norm, 1.0)"),
    ("x / (x.abs() + m.abs())", "y = 1 + {}",
     "denominator = x.abs() + m.abs()\n"
     "y = 1 + x / torch.where(denominator != 0, denominator, 1.0)"),
    ("x / (\n    x.abs()\n    + m.abs()\n)", "y = {}",
     "denominator = (x.abs()\n    + m.abs())\n"
     "y = x / torch.where(denominator != 0, denominator, 1.0)"),
    ("x / x.sum(0)", "x_sum = 0; y = {}",
     "x_sum = 0; denominator = x.sum(0); y = x / torch.where(denominator != 0, denominator, 1.0)"),
    ("1.0 / x.pow(2)", "y = {}",
     "x_pow = x.pow(2)\ny = (1.0 / x_pow).masked_fill(x_pow == 0, 0.0)"),
    # what is no computation, or is not to be moved
    ("x / y", "y = x * 1; y = {}", "y = x * 1; y = x / torch.where(y != 0, y, 1.0)"),
    ("x / x.sum(0)", "y = [{} for x in m]",
     "y = [x / torch.where(x.sum(0) != 0, x.sum(0), 1.0) for x in m]"),
    ("x / x.sum(0)", "y = lambda x: {}",
     "y = lambda x: x / torch.where(x.sum(0) != 0, x.sum(0), 1.0)"),
]  # fmt: skip


@pytest.mark.parametrize(("culprit", "line", "expected"), ONCE)
def test_what_a_patch_writes_twice_is_computed_once(culprit, line, expected):
    text = HEAD + line.format(culprit) + "\n"
    op = "reciprocal" if culprit.startswith("1.0") else "div"
    found = finding(text, culprit, op, "guard-empty", {"self": 0.0, "other": 0.0})
    found = replace(found, fixes=(Fix("guard-empty", "a fix", request=ask.DivideByOne()),))

    (first, *_) = ways(found, text)

    assert first.text.removeprefix(HEAD) == expected + "\n"


def test_the_condition_of_the_mask_is_used_where_it_is_a_name_in_reach():
    line = "y = torch.where(m, x ** 0.5, x)"
    text = f"{HEAD}{line}\nloss = y.sum()\nloss.backward()\n"
    mask = Related("mask", span(text, "torch.where(m, x ** 0.5, x)"), "hides it")
    found = finding(text, "x ** 0.5", "pow", "masked-branch", {"self": 0.0, "exponent": 0.5})

    first = ways(replace(found, related=(mask,)), text)[0]

    assert "torch.where(m, torch.where(m, x, 1.0) ** 0.5, x)" in first.text


def test_a_mask_that_is_made_later_is_not_in_reach():
    text = f"{HEAD}p = x ** 0.5\nlate = x > 0\ny = torch.where(late, p, x)\nloss = y.sum()\n"
    mask = Related("mask", span(text, "torch.where(late, p, x)"), "hides it")
    found = finding(text, "x ** 0.5", "pow", "masked-branch", {"self": 0.0, "exponent": 0.5})

    assert all(
        "torch.where(late, x" not in way.text for way in ways(replace(found, related=(mask,)), text)
    )


def test_a_mask_made_from_the_value_itself_gets_that_value():
    text = f"{HEAD}y = x.rsqrt()\ny = y.masked_fill(y == torch.inf, 0.0)\nloss = y.sum()\n"
    text = f"{text}loss.backward()\n"
    loss, gradient = run(text)
    found = finding(text, "x.rsqrt()", "rsqrt", "masked-branch", {"self": 0.0})

    kept = [run(way.text) for way in ways(found, text) if "detach" in way.text]

    assert [one.item() for one, _ in kept] == [loss.item()]
    assert torch.equal(kept[0][1][1:], gradient[1:])
    assert kept[0][1].isfinite().all()


STABLE = [
    ("torch.log(torch.softmax(z, -1))", "torch.log(torch.softmax(z, -1))", "log",
     "torch.log_softmax(z, -1)"),
    ("F.softmax(z, dim=1).log()", "F.softmax(z, dim=1).log()", "log", "z.log_softmax(dim=1)"),
    ("torch.log(torch.sigmoid(z))", "torch.log(torch.sigmoid(z))", "log", "F.logsigmoid(z)"),
    ("torch.log(1 - torch.sigmoid(z))", "torch.log(1 - torch.sigmoid(z))", "log",
     "F.logsigmoid(-z)"),
    ("torch.log(1.0 + torch.exp(z))", "torch.exp(z)", "exp", "F.softplus(z)"),
    ("torch.log1p(z.exp())", "z.exp()", "exp", "F.softplus(z)"),
    ("torch.log(torch.exp(z).sum(-1))", "torch.exp(z)", "exp", "torch.logsumexp(z, -1)"),
    ("torch.exp(z) / torch.exp(z).sum(-1, keepdim=True)", "torch.exp(z)", "exp",
     "torch.softmax(z, -1)"),
    ("torch.exp(z) / torch.exp(z).sum(-1, True)", "torch.exp(z)", "exp", "torch.softmax(z, -1)"),
    ("torch.exp(z) / torch.exp(z).sum()", "torch.exp(z)", "exp",
     "torch.softmax(z.flatten(), 0).view_as(z)"),
    ("torch.exp(z) / torch.exp(z).sum(0)", "torch.exp(z)", "exp", "torch.softmax(z, 0)"),
    ("(z.exp() - (-z).exp()) / ((-z).exp() + z.exp())", "z.exp()", "exp", "torch.tanh(z)"),
    ("1 / (1 + torch.exp(-z))", "torch.exp(-z)", "exp", "torch.sigmoid(z)"),
    ("torch.log(torch.cosh(z))", "torch.cosh(z)", "cosh", "torch.logaddexp(z, -z)"),
    ("torch.log((torch.exp(z) + torch.exp(-z)) / 2)", "torch.exp(z)", "exp",
     "torch.logaddexp(z, -z)"),
    ("torch.log(torch.exp(z.abs()) - 1)", "torch.log(torch.exp(z.abs()) - 1)", "log",
     "z_abs + torch.log(-torch.expm1(-z_abs))"),
    ("torch.logdet(z)", "torch.logdet(z)", "logdet", "torch.linalg.slogdet(z).logabsdet"),
    ("z.logdet()", "z.logdet()", "logdet", "torch.linalg.slogdet(z).logabsdet"),
    ("torch.log(torch.special.i0(z) * 3)", "torch.special.i0(z)", "i0",
     "torch.log(torch.special.i0e(z)) + z.abs() + 1.0986122886681098"),
    ("torch.log(torch.special.i1(z.abs()))", "torch.special.i1(z.abs())", "special_i1",
     "torch.log(torch.special.i1e(z_abs)) + z_abs.abs()"),
    ("torch.special.i1(z) / torch.special.i0(z)", "torch.special.i1(z)", "special_i1",
     "torch.special.i1e(z) / torch.special.i0e(z)"),
    ("torch.sqrt(1 - z.sigmoid() ** z.exp())", "torch.sqrt(1 - z.sigmoid() ** z.exp())", "sqrt",
     "torch.sqrt(-torch.expm1(z.exp() * torch.log(z.sigmoid())))"),
    ("(1 - z.sigmoid() ** (1 / z.exp())) ** (1 / z.exp())",
     "(1 - z.sigmoid() ** (1 / z.exp())) ** (1 / z.exp())", "pow",
     "(-torch.expm1(1 / z.exp() * torch.log(z.sigmoid()))) ** (1 / z.exp())"),
    ("torch.log(0.5 * torch.erfc(z))", "torch.log(0.5 * torch.erfc(z))", "log",
     "torch.special.log_ndtr(-1.4142135623730951 * z)"),
    ("torch.log(0.5 * (1 + torch.erf(z / math.sqrt(2))))",
     "torch.log(0.5 * (1 + torch.erf(z / math.sqrt(2))))", "log", "torch.special.log_ndtr(z)"),
    ("torch.log(1 - torch.special.ndtr(2 - z))", "torch.log(1 - torch.special.ndtr(2 - z))", "log",
     "torch.special.log_ndtr(-(2 - z))"),
    ("torch.log(torch.special.ndtr(z + 2) - (1 + (z / 2**0.5).erf()) / 2)",
     "torch.log(torch.special.ndtr(z + 2) - (1 + (z / 2**0.5).erf()) / 2)", "log",
     "torch.special.log_ndtr(torch.minimum(z + 2, -z)) + torch.log(-torch.expm1("
     "torch.special.log_ndtr(torch.minimum(z, -(z + 2)))"
     " - torch.special.log_ndtr(torch.minimum(z + 2, -z))))"),
    ("torch.log(torch.sigmoid(z + 2) - torch.sigmoid(z))",
     "torch.log(torch.sigmoid(z + 2) - torch.sigmoid(z))", "log",
     "F.logsigmoid(z + 2) + F.logsigmoid(-z) + torch.log(-torch.expm1(z - (z + 2)))"),
    ("torch.log(1 + torch.erf(z))", "torch.log(1 + torch.erf(z))", "log",
     "torch.special.log_ndtr(1.4142135623730951 * z) + 0.6931471805599453"),
    ("torch.exp(z).diag() / torch.exp(z).sum(1)", "torch.exp(z)", "exp",
     "torch.exp(z.diag() - torch.logsumexp(z, 1))"),
    ("torch.log(torch.det(z @ z.T))", "torch.det(z @ z.T)", "_linalg_det",
     "torch.logdet(z @ z.T)"),
    ("torch.log((z.sigmoid() * 0.5).sum(0))", "torch.log((z.sigmoid() * 0.5).sum(0))", "log",
     "torch.logsumexp(F.logsigmoid(z) - 0.6931471805599453, 0)"),
    ("torch.log(z.softmax(1)[:, 0] ** 2)", "torch.log(z.softmax(1)[:, 0] ** 2)", "log",
     "2 * torch.log_softmax(z, 1)[:, 0]"),
    ("torch.log(1 - (1 - (1 - z.sigmoid()).prod(1)))",
     "torch.log(1 - (1 - (1 - z.sigmoid()).prod(1)))", "log", "F.logsigmoid(-z).sum(1)"),
    ("torch.special.xlogy(z.abs(), z.softmax(1))", "torch.special.xlogy(z.abs(), z.softmax(1))",
     "xlogy", "z.abs() * torch.log_softmax(z, 1)"),
    ("z.sigmoid().prod(1) ** 0.5", "z.sigmoid().prod(1) ** 0.5", "pow",
     "torch.exp(0.5 * F.logsigmoid(z).sum(1))"),
    ("torch.log(1 - z.tanh() ** 2)", "torch.log(1 - z.tanh() ** 2)", "log",
     "1.3862943611198906 - 2 * torch.logaddexp(z, -z)"),
    ("torch.log(1 - 1 / (1 + torch.exp(-z)))", "torch.log(1 - 1 / (1 + torch.exp(-z)))", "log",
     "F.logsigmoid(-z)"),
    ("(1 - z.abs().neg().exp()).log()", "(1 - z.abs().neg().exp()).log()", "log",
     "(-torch.expm1(z.abs().neg())).log()"),
    ("torch.log(torch.mean(torch.exp(3 * z), dim=1))", "torch.exp(3 * z)", "exp",
     "torch.logsumexp(3 * z, dim=1) - math.log((3 * z).shape[1])"),
    ("z.exp().cumsum(1).log()", "z.exp()", "exp", "z.logcumsumexp(1)"),
    ("torch.log(torch.cumprod(z.sigmoid(), dim=0))", "torch.cumprod(z.sigmoid(), dim=0)", "cumprod",
     "torch.cumsum(F.logsigmoid(z), dim=0)"),
    ("z.cumprod(-1) / z", "z.cumprod(-1) / z", "div",
     "torch.cat([torch.ones_like(z[..., :1]), z[..., :-1]], -1).cumprod(-1)"),
    ("torch.cumprod(1 - z, dim=1) / (1 - z)", "torch.cumprod(1 - z, dim=1) / (1 - z)", "div",
     "torch.cat([torch.ones_like((1 - z)[:, :1]), (1 - z)[:, :-1]], 1).cumprod(1)"),
    ("torch.log(torch.where(z > 1, z.sigmoid(), 1 - z.sigmoid()))",
     "torch.log(torch.where(z > 1, z.sigmoid(), 1 - z.sigmoid()))", "log",
     "torch.where(z > 1, F.logsigmoid(z), F.logsigmoid(-z))"),
    ("z.exp().where(z < 1, 2.0).log()", "z.exp().where(z < 1, 2.0).log()", "log",
     "torch.where(z < 1, z, 0.6931471805599453)"),
    ("torch.log(z.sigmoid() / (1 - z.sigmoid()))", "torch.log(z.sigmoid() / (1 - z.sigmoid()))",
     "log", "z"),
    ("torch.sqrt((z * z).mean(0) - z.mean(0) ** 2)", "torch.sqrt((z * z).mean(0) - z.mean(0) ** 2)",
     "sqrt", "torch.std(z, dim=0, correction=0)"),
    ("(z.pow(2).mean(1) - z.mean(1).pow(2)).sqrt()", "(z.pow(2).mean(1) - z.mean(1).pow(2)).sqrt()",
     "sqrt", "torch.std(z, dim=1, correction=0)"),
    ("z / torch.sqrt(z.pow(2).mean() - z.mean() * z.mean())",
     "z / torch.sqrt(z.pow(2).mean() - z.mean() * z.mean())", "div",
     "z / torch.std(z, correction=0)"),
    ("((z ** 2).mean(0) - 0.85 * z.mean(0) ** 2 + 1e-8).sqrt()",
     "((z ** 2).mean(0) - 0.85 * z.mean(0) ** 2 + 1e-8).sqrt()", "sqrt",
     "torch.sqrt(torch.var(z, dim=0, correction=0) + (1 - 0.85) * torch.mean(z, dim=0) ** 2"),
    ("z / z.norm(dim=1, keepdim=True)", "z / z.norm(dim=1, keepdim=True)", "div",
     "F.normalize(z, dim=1)"),
    ("z.div_(z.norm(dim=1, keepdim=True))", "z.div_(z.norm(dim=1, keepdim=True))", "div",
     "z.copy_(F.normalize(z, dim=1))"),
    ("(z * z.exp()).sum(1) / (z.norm(dim=1) * z.exp().norm(dim=1))",
     "(z * z.exp()).sum(1) / (z.norm(dim=1) * z.exp().norm(dim=1))", "div",
     "F.cosine_similarity(z, z.exp(), dim=1)"),
    ("(z ** 2).sum(-1).sqrt()", "(z ** 2).sum(-1).sqrt()", "sqrt",
     "torch.linalg.vector_norm(z, dim=-1)"),
    ("torch.sqrt(torch.sum(z * z, dim=0, keepdim=True))",
     "torch.sqrt(torch.sum(z * z, dim=0, keepdim=True))", "sqrt",
     "torch.linalg.vector_norm(z, dim=0, keepdim=True)"),
    ("(z ** 2).sum(1, True).sqrt()", "(z ** 2).sum(1, True).sqrt()", "sqrt",
     "torch.linalg.vector_norm(z, dim=1, keepdim=True)"),
    ("z / torch.linalg.vector_norm(z, 2, 1, True)", "z / torch.linalg.vector_norm(z, 2, 1, True)",
     "div", "F.normalize(z, dim=1)"),
    ("z.square().sum((0, 1)).pow(0.5)", "z.square().sum((0, 1)).pow(0.5)", "pow",
     "torch.linalg.vector_norm(z, dim=(0, 1))"),
    ("((z - 1) ** 2).sqrt()", "((z - 1) ** 2).sqrt()", "sqrt", "(z - 1).abs()"),
    ("torch.sqrt(z * z)", "torch.sqrt(z * z)", "sqrt", "z.abs()"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "both", "second"),
    [
        ("a\nB\nc\nd\n", "a\nB\nc\nD\n", "a\nb\nc\nD\n"),
        ("a\nx\nb\nc\nd\n", "a\nx\nb\ny\nc\nd\n", "a\nb\ny\nc\nd\n"),
        ("b\nc\nd\n", "b\nc\nd\ne\n", "a\nb\nc\nd\ne\n"),
        ("a\nB\nc\nd\n", "a\nBB\nc\nd\n", None),
        ("a\nx\nb\nc\nd\n", "a\nx\ny\nb\nc\nd\n", "a\ny\nb\nc\nd\n"),
    ],
)
def test_the_second_of_two_changes_alone(first, both, second):
    assert without_first("a\nb\nc\nd\n", first, both) == second


@pytest.mark.parametrize(
    ("text", "above", "below"),
    [
        ("a()\nhere()\n", "a()\nx = 1\nhere()\n", "a()\nhere()\nx = 1\n"),
        ("a(); here(); b()\n", "a(); x = 1; here(); b()\n", "a(); here(); x = 1; b()\n"),
        ("if a: here()\nb()\n", "if a: x = 1; here()\nb()\n", "if a: here(); x = 1\nb()\n"),
        ("here()  # why\n", "x = 1\nhere()  # why\n", "here()  # why\nx = 1\n"),
        ("here(); b()  # why\n", "x = 1\nhere(); b()  # why\n", "here(); x = 1; b()  # why\n"),
    ],
)
def test_a_new_statement_beside_one_that_shares_its_line(text, above, below):
    source = Source("a.py", text)
    calls = (one for one in ast.walk(source.tree) if isinstance(one, ast.Call))
    place = source.nodes.statement(next(one for one in calls if source.of(one) == "here()"))

    assert spliced(source, before(source, place, "x = 1")) == above
    assert spliced(source, after(source, place, "x = 1")) == below


def test_a_block_does_not_go_into_a_line():
    source = Source("a.py", "a(); here()\n")
    place = source.tree.body[1]

    assert before(source, place, "if x:", "    y()") == ()
    assert after(source, place, "if x:", "    y()") == ()


@pytest.mark.parametrize(("written", "culprit", "op", "stable"), STABLE)
def test_the_stable_form_of_a_composite(written, culprit, op, stable):
    """It stands in the patch, and computes the same where both are finite."""
    text = f"{HEAD}z = torch.tensor([[0.5, -1.0], [2.0, 0.1]])\nloss = {written}\n"

    first = ways(finding(text, culprit, op, "overflow", {}), text)[0]
    names: list[dict] = [{}, {}]
    exec(text, names[0])
    exec(first.text, names[1])

    assert "stable-op" == first.kind
    assert stable in first.text
    assert stable in first.made[0].title
    assert torch.allclose(names[0]["loss"], names[1]["loss"], atol=1e-6)


@pytest.mark.parametrize("power", ["z ** 2", "z * z", "z.square()", "z.pow(2)"])
def test_a_square_may_be_that_of_what_is_negative(power):
    text = f"{HEAD}z = torch.tensor([0.5, -1.0])\nloss = torch.log(1 - {power})\n"
    found = finding(text, f"torch.log(1 - {power})", "log", "log-zero", {})

    assert not any("expm1" in one.text for one in ways(found, text))


@pytest.mark.parametrize(
    ("made", "slope"),
    [
        ("y = torch.tanh(z) * 1.1", "1 - y.pow(2) + 1e-6"),
        ("y = 1.1 * z.tanh()", "1 - y ** 2"),
        ("t = torch.tanh(z)\ny = t * 1.1 + 0.2", "1 - y * y + 1e-6"),
    ],
)
def test_the_slope_of_a_tanh_is_taken_before_it_is_scaled(made, slope):
    text = f"{HEAD}z = torch.tensor([0.5, -1.0])\n{made}\nloss = torch.log({slope})\n"
    first = ways(finding(text, f"torch.log({slope})", "log", "epsilon", {}), text)[0]

    assert "torch.tanh(z)" in first.text.splitlines()[-1]


def test_another_square_is_not_taken_for_that_slope():
    text = f"{HEAD}z = torch.tensor([0.5])\ny = torch.tanh(z)\nloss = torch.log(1 - y ** 2)\n"
    found = finding(text, "torch.log(1 - y ** 2)", "log", "epsilon", {})

    assert not any("before it is scaled" in way.made[0].title for way in ways(found, text))


@pytest.mark.parametrize(
    ("body", "written", "line", "limit"),
    [
        ("a = torch.acos(c)\ns = torch.sin(a)", "torch.sin(0.25 * a) / s",
         "a = torch.acos(c).clamp_min(1e-4)\n", 0.25),
        ("a = (c - 1) * x", "torch.expm1(-a) / a", "a = a.masked_fill(a == 0, 1e-4)\n", -1.0),
        ("a = (c - 1) * x", "(1 - torch.exp(a)) / a",
         "a = a.masked_fill(a == 0, 1e-4)\nloss = ((-torch.expm1(a)) / a).sum()", -1.0),
        ("a = (c - 1) * x", "(a.exp() - 1) / a",
         "a = a.masked_fill(a == 0, 1e-4)\nloss = (torch.expm1(a) / a).sum()", 1.0),
        ("a = (c - 1) * x", "x / a * torch.tanh(a)", "a = a.masked_fill(a == 0, 1e-4)\n", None),
        ("a = (c - 1) * x", "a.clamp(max=5.0) / a", "a = a.masked_fill(a == 0, 1e-4)\n", 1.0),
        ("a = (c - 1) * x", "torch.stack([c, a]).min(0)[0] / a",
         "a = a.masked_fill(a == 0, 1e-4)\n", 1.0),
    ],
)  # fmt: skip
def test_a_quotient_is_taken_beside_the_zero_that_it_has_a_limit_at(body, written, line, limit):
    text = f"{HEAD}c = torch.ones(3)\n{body}\nloss = ({written}).sum()\n"
    culprit = written.partition(" * torch.tanh")[0]
    values = {"self": 0.0, "other": 0.0}
    found = finding(text, culprit, "div", "zero-division", values)
    asks = Fix("guard-empty", "a fix", request=ask.DivideByOne())

    first = ways(replace(found, fixes=(asks,)), text)[0]

    assert line in first.text
    if limit is not None:
        names: dict = {}
        exec(first.text, names)
        assert abs(names["loss"].item() - 3 * limit) < 1e-3


@pytest.mark.parametrize("above", ["a.clamp(0.0, 5.0)", "a.clamp(min=0.0)", "a.abs()"])
def test_a_quotient_that_has_another_limit_on_each_side_is_not_taken_beside_its_zero(above):
    text = f"{HEAD}a = (x - x) * 2\nloss = ({above} / a).sum()\n"
    found = finding(text, f"{above} / a", "div", "zero-division", {"self": 0.0, "other": 0.0})
    asks = Fix("guard-empty", "a fix", request=ask.DivideByOne())

    assert "1e-4" not in ways(replace(found, fixes=(asks,)), text)[0].text


@pytest.mark.parametrize("count", ["n, m = x.shape[0], 1", "n = len(x)", "(n,) = x.shape"])
def test_a_python_number_has_a_logarithm_too(count):
    text = f"{HEAD}{count}\nloss = torch.log(torch.exp(x) / n).sum()\n"

    found = finding(text, "torch.log(torch.exp(x) / n)", "log", "stable-op", {"self": 0.0})
    names: list[dict] = [{}, {}]
    exec(text, names[0])
    exec(ways(found, text)[0].text, names[1])

    assert torch.allclose(names[0]["loss"], names[1]["loss"])


def test_a_quotient_of_a_mask_and_its_sum_has_no_limit():
    text = f"{HEAD}m = x * 0\nloss = (torch.sin(m) / m.sum()).sum()\n"
    found = finding(text, "torch.sin(m) / m.sum()", "div", "", {"self": 0.0, "other": 0.0})
    asks = Fix("guard-empty", "a fix", request=ask.DivideByOne())

    assert all("1e-4" not in one.text for one in ways(replace(found, fixes=(asks,)), text))


def test_a_choice_between_something_else_and_a_probability_has_no_stable_form():
    """The slope of log(b) at b = 0 is inf also where b is not chosen."""
    written = "torch.log(torch.where(x > 0, torch.sigmoid(x), x))"
    text = f"{HEAD}loss = {written}.sum()\n"

    found = ways(finding(text, written, "log", "epsilon", {"self": 0.0}), text)

    assert all("logsigmoid" not in one.text for one in found)


@pytest.mark.parametrize(
    "written",
    [
        "torch.log(torch.add(x.exp(), x.exp(), alpha=2))",
        "torch.log(torch.sub(1, x.sigmoid(), alpha=2))",
        'torch.log(torch.div(x.exp(), 3, rounding_mode="floor"))',
    ],
)
def test_a_sum_with_a_factor_and_a_quotient_that_is_rounded_have_no_stable_form(written):
    text = f"{HEAD}loss = {written}.sum()\n"

    assert ways(finding(text, written, "log", "stable-op", {"self": 0.0}), text) == []


def test_logarithms_of_one_product_are_all_taken_over():
    one = "torch.ones_like(x)"
    head = f"s = torch.cumprod(1 - torch.sigmoid(x), 0)\np = torch.cat([{one}, s, {one}, {one}])\n"
    text = f"{HEAD}{head}a = p[1:]\nb = p[:2]\n"
    text += "loss = torch.log(a).sum() + torch.log(b).sum()\n"

    first = ways(finding(text, "torch.log(a)", "log", "epsilon", {"self": 0.0}), text)[0]
    names: list[dict] = [{}, {}]
    exec(text, names[0])
    exec(first.text, names[1])

    assert "loss = a.sum() + b.sum()" in first.text
    assert torch.allclose(names[0]["loss"], names[1]["loss"], atol=1e-6)


def test_one_of_several_names_in_one_assignment_is_given_its_logarithm():
    text = f"{HEAD}p, n = torch.softmax(x, 0), len(x)\nx = x + 1\nloss = torch.log(p).sum() / n\n"

    (first, *_) = ways(finding(text, "torch.log(p)", "log", "stable-op", {"self": 0.0}), text)

    assert "p, n = torch.log_softmax(x, 0), len(x)\nx = x + 1\nloss = p.sum() / n" in first.text


def test_a_stable_form_reads_through_names_that_still_hold():
    text = f"{HEAD}p = torch.softmax(x, 0)\nloss = torch.log(p).sum()\n"
    changed = text.replace("loss", "x = x + 1\nloss")

    first = ways(finding(text, "torch.log(p)", "log", "epsilon", {"self": 0.0}), text)[0]
    other = ways(finding(changed, "torch.log(p)", "log", "epsilon", {"self": 0.0}), changed)[0]

    assert "loss = torch.log_softmax(x, 0).sum()" in first.text
    assert "p = torch.log_softmax(x, 0)\nx = x + 1\nloss = p.sum()" in other.text


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("mu, logvar = h.chunk(2)\n    std = torch.exp(0.5 * logvar)",
         "mu, logvar = h.chunk(2)\n    logvar = logvar.clamp(-10, 10)\n"),
        ("mu = h\n    std = torch.exp(0.5 * logvar)",
         "def f(h, logvar):\n    logvar = logvar.clamp(-10, 10)\n"),
    ],
)  # fmt: skip
def test_an_exponent_is_bounded_for_all_that_read_it(body, line):
    text = f"{HEAD}def f(h, logvar):\n    {body}\n    return mu * std - logvar\nloss = f(x, x)\n"
    found = finding(text, "torch.exp(0.5 * logvar)", "exp", "clamp-domain", {"self": 200.0})

    first = ways(found, text)[0]

    assert line in first.text and "torch.exp(0.5 * logvar)" in first.text


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("from __future__ import annotations\nfrom torch import nn\n",
         "annotations\nimport torch\nfrom torch import nn\n"),
        ("import torch.nn as nn\n", "import torch\nimport torch.nn as nn\n"),
        ("import torch as th\nfrom torch import nn\n", "import torch as th\nfrom torch"),
    ],
)  # fmt: skip
def test_a_file_without_a_name_for_torch_gets_one(head, expected):
    text = f"{head}# {HEAD!r}\nfrom torch import log, tensor\nx = tensor([0.0, 200.0])\n"
    text = f"{text}loss = log(nn.functional.softmax(x, 0)).sum()\n"
    culprit = "log(nn.functional.softmax(x, 0))"

    first = ways(finding(text, culprit, "log", "epsilon", {"self": 0.0}), text)[0]
    names: dict = {}
    exec(first.text, names)

    assert expected in first.text
    assert names["loss"].item() == -200.0


def test_a_module_is_not_called_again():
    text = f"{HEAD}net = torch.nn.Dropout()\ngates = torch.softmax(net(x), 0)\n"
    text = f"{text}loss = (gates * torch.log(gates)).sum()\n"

    found = ways(finding(text, "torch.log(gates)", "log", "epsilon", {"self": 0.0}), text)

    assert "values = net(x)\ngates = torch.softmax(values, 0)\n" in found[0].text
    assert "loss = (gates * torch.log_softmax(values, 0)).sum()\n" in found[0].text
    assert {way.text.count("net(x)") for way in found} == {1}


def test_a_stable_form_takes_nothing_out_of_a_block():
    """Outside of its no_grad the teacher would get a gradient."""
    text = f"{HEAD}with torch.no_grad():\n    p = torch.softmax(x, 0)\nloss = torch.log(p).sum()\n"

    first = ways(finding(text, "torch.log(p)", "log", "epsilon", {"self": 0.0}), text)[0]

    assert "loss = torch.log(p.clamp_min(1e-12)).sum()" in first.text


@pytest.mark.parametrize(
    ("written", "op", "kind", "values", "expected"),
    [
        ("torch.sqrt(x)", "sqrt", "epsilon", {"self": 0.0}, "torch.sqrt(x.clamp_min(1e-12))"),
        ("x.square().sum().sqrt()", "sqrt", "epsilon", {"self": 0.0},
         "x.square().sum().clamp_min(1e-12).sqrt()"),
        ("torch.acos(x.clamp(-1, 1))", "acos", "clamp-domain", {"self": 1.0},
         "torch.acos(x.clamp(-1 + 1e-06, 1 - 1e-06))"),
        ("x.std()", "std", "guard-empty", {}, "x.std(correction=min(1, x.numel() - 1))"),
        ("x.std(unbiased=True)", "std", "guard-empty", {},
         "x.std(correction=min(1, x.numel() - 1))"),
        ("x.clamp(min=0).sqrt()", "sqrt", "epsilon", {"self": 0.0},
         "loss = x.clamp_min(1e-12).sqrt()"),
        ("torch.clamp(x, 0).sqrt()", "sqrt", "epsilon", {"self": 0.0},
         "loss = x.clamp_min(1e-12).sqrt()"),
        ("x.clamp(0, 1).sqrt()", "sqrt", "epsilon", {"self": 0.0},
         "loss = x.clamp(0, 1).clamp_min(1e-12).sqrt()"),
        ("f(x.clamp_max(3)).clamp_min(0).sqrt()", "sqrt", "epsilon", {"self": 0.0},
         "loss = f(x.clamp_max(3)).clamp_min(1e-12).sqrt()"),
        ("x.clamp_max(0).sqrt()", "sqrt", "epsilon", {"self": 0.0},
         "loss = x.clamp_max(0).clamp_min(1e-12).sqrt()"),
        ("x.mean()", "mean", "guard-empty", {}, "loss = x.sum() / max(x.numel(), 1)"),
        ("torch.softmax(x.masked_fill(m, -math.inf), 0)", "_softmax", "guard-empty", {},
         "torch.softmax(x.masked_fill(m, torch.finfo(x.dtype).min), 0)"),
        ("torch.exp(x)", "exp", "clamp-domain", {"self": 100.0}, "torch.exp(x.clamp_max(20))"),
        ("x.var(dim=(0, 1))", "var", "guard-empty", {},
         "correction=min(1, x.shape[0] * x.shape[1] - 1)"),
        ("x - m", "sub", "masked-branch", {"self": math.inf, "other": math.inf},
         "torch.where(x.isfinite() | m.isfinite(), x - m, 0.0)"),
        ("torch.empty(3)", "empty", "init", {}, "loss = torch.zeros(3)"),
        ("x.new_empty(3)", "new_empty", "init", {}, "loss = x.new_zeros(3)"),
        ("torch.Tensor(3)", "empty", "init", {}, "loss = torch.zeros(3)"),
        ("torch.log(x.prod(0))", "log", "stable-op", {"self": 0.0}, "loss = torch.log(x).sum(0)"),
        ("F.ctc_loss(x, m, 1, 1)", "_ctc_loss", "stable-op", {}, "m, 1, 1, zero_infinity=True)"),
    ],
)  # fmt: skip
def test_the_guard_of_an_op(written, op, kind, values, expected):
    text = f"{HEAD}loss = {written}\n"

    texts = [way.text for way in ways(finding(text, written, op, kind, values), text)]

    assert expected in texts[0]


def test_an_argument_that_a_library_hands_on():
    written = "F.poisson_nll_loss(x, m)"
    text = f"{HEAD}loss = {written}\n"
    found = finding(text, written, "exp", "clamp-domain", {"self": 99.0})
    found = replace(found, tensors=(Operand("self", "x", (3,), numel=3, min=0.0, max=99.0),))

    assert "F.poisson_nll_loss(x.clamp_max(20), m)" in ways(found, text)[0].text


def test_a_loss_module_that_gets_nothing_but_ignored_targets():
    written = "criterion(x, m)"
    text = f"{HEAD}criterion = torch.nn.NLLLoss()\nloss = {written}\n"
    found = finding(text, written, "nll_loss_forward", "guard-empty", {})

    expected = "criterion(x, m) if (m != criterion.ignore_index).any() else x.sum() * 0"
    assert expected in ways(found, text)[0].text


def test_an_augmented_division():
    text = f"{HEAD}y = torch.ones(3)\ny /= x\nloss = y[m].sum()\nloss.backward()\n"
    found = finding(text, "y /= x", "div", "masked-branch", {"self": 1.0, "other": 0.0})

    assert "y /= torch.where(x != 0, x, 1.0)" in ways(found, text)[0].text


def test_only_the_culprit_of_two_on_one_line():
    text = f"{HEAD}loss = (x ** 0.5)[m].sum() + (x ** 0.25)[m].sum()\n"
    found = finding(text, "x ** 0.25", "pow", "masked-branch", {"self": 0.0, "exponent": 0.25})

    assert (
        "(x ** 0.5)[m].sum() + (torch.where(x > 0, x, 1.0) ** 0.25)[m]" in ways(found, text)[0].text
    )


def test_random_operands_are_not_written_twice():
    text = f"{HEAD}loss = torch.sqrt(F.dropout(x))[m].sum()\n"
    found = finding(text, "torch.sqrt(F.dropout(x))", "sqrt", "masked-branch", {"self": 0.0})

    assert all(way.text.count("dropout") == 1 for way in ways(found, text))


def test_where_torch_is_another_name_a_method_does():
    text = "from net import torch, v\n" + "#" * len(HEAD) + "\ny = v.sqrt()\n"
    found = finding(text, "v.sqrt()", "sqrt", "masked-branch", {"self": 0.0})

    assert "y = v.where(v > 0, 1.0).sqrt()" in ways(found, text)[0].text


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["a = 1", "\tb = 'é'", "", "c = x  # naïve\x0c", "d"]), max_size=12),
    st.lists(st.sampled_from(["a = 1", "new", "", "ü"]), max_size=12),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_edits_make_the_new_text_and_undo_it(old, new, newline, ends):
    before = newline.join(old) + newline * ends
    after = newline.join(new) + newline * ends
    source, target = Source("f.py", before), Source("f.py", after)

    assert after == spliced(source, edits_between(source, after))
    assert before == spliced(target, edits_between(target, before))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_git_applies_the_patch(tmp_path, monkeypatch, newline, end):
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q", "."], check=True)
    text = newline.join(["def f(x):", "\treturn x.sqrt()", "# é"]) + end.replace("\n", newline)
    (tmp_path / "my loss.py").write_bytes(text.encode())
    new = text.replace("x.sqrt()", "x.clamp_min(1e-12).sqrt()").replace("# é", "# è")
    patch = unified(Source("my loss.py", text), new)
    (tmp_path / "fix.patch").write_bytes(patch.encode())

    subprocess.run(["git", "apply", "fix.patch"], check=True)

    assert new.encode() == (tmp_path / "my loss.py").read_bytes()


def test_an_installed_package_is_never_edited():
    found = replace(
        finding(HEAD + "x.sqrt()", "x.sqrt()", "sqrt", "epsilon", {}),
        location=resolve(torch.functional.norm.__code__, 0),
    )
    stdlib = replace(found, location=resolve(random.shuffle.__code__, 0))

    for one in (found, stdlib):
        with pytest.raises(Unpatchable, match="INSTALLED"):
            locate(one)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"# coding: latin-1\ny = '\xe9'.sqrt()\n", "ENCODING"),
        (b"y = '\xe9'.sqrt()\n", "not valid text"),
    ],
)
def test_other_encodings_are_said(tmp_path, raw, reason):
    file = tmp_path / "old.py"
    file.write_bytes(raw)
    found = finding(HEAD + "x.sqrt()", "x.sqrt()", "sqrt", "epsilon", {})

    with pytest.raises(Unpatchable, match=reason):
        locate(replace(found, location=Location(str(file), 2, 0, 2, 5, "f")))


def test_source_that_is_not_on_disk_is_said():
    found = finding(HEAD + "x.sqrt()", "x.sqrt()", "sqrt", "epsilon", {})

    with pytest.raises(Unpatchable, match="cannot be read"):
        locate(replace(found, location=Location("<string>", 1, 0, 1, 5, "f")))


def test_there_are_thirty_spellings():
    assert len({(culprit, line) for culprit, _, _, line in MASKED}) >= 30
    assert all(re.search(r"\{\}", line) for *_, line in MASKED)


MASKED_SUM = """
import torch

torch.manual_seed(0)
net = torch.nn.Linear(6, 5)
banned = torch.tensor([False, False, False, True, True])
logp = net(torch.randn(4, 6)).masked_fill(banned, -torch.inf).log_softmax(-1)
loss = {loss}
loss.backward()
"""


@pytest.mark.parametrize(
    ("loss", "fixed"),
    [
        ("-logp.mean(-1).sum()", "-logp.masked_fill(banned, 0.0).mean(-1).sum()"),
        ("-logp[:, 3].sum()", None),  # which asks for what was masked
    ],
)
@pytest.mark.long
def test_what_a_mean_takes_in_of_a_mask_counts_as_0(tmp_path, loss, fixed):
    program = tmp_path / "masked_sum.py"
    program.write_text(MASKED_SUM.format(loss=loss))

    fix = diagnosed_file(program, verify=True).findings[0].fixes[0]

    if fixed is None:  # the large number in the place of inf is what makes the loss
        assert isinstance(fix.verdict, Holds) and isinstance(fix.verdict.but, NumberDecides)
    else:
        assert fix.verified and fix.code == f"loss = {fixed}"


ANGLES = """\
import torch

torch.manual_seed(0)
net = torch.nn.Linear(8, 4)
rows = torch.nn.functional.normalize(net(torch.randn(16, 8)), dim=1)
cosine = rows @ rows.T
cosine = cosine + torch.eye(16) * (1 - cosine.detach())
cosine = cosine + 1e-6 * torch.eye(16)[3] * torch.eye(16)  # one of 16 that are as near to the end
(torch.acos(cosine) * (torch.eye(16) + 0.1)).mean().backward()
"""


def test_a_bound_where_the_value_comes_to_a_limit_decides_nothing(tmp_path):
    program = tmp_path / "angles.py"
    program.write_text(ANGLES)

    fix = diagnosed_file(program, verify=True).findings[0].fixes[0]

    assert fix.verified and ".clamp(" in fix.code


def test_a_count_that_is_divided_by_is_at_least_one(tmp_path):
    program = tmp_path / "masked_mean.py"
    program.write_text(
        "import torch\n"
        "x = torch.tensor([1.0, 2.0], requires_grad=True)\n"
        "kept = x.detach() > 5\n"
        "loss = (x * kept).sum() / kept.sum()\n"
        "loss.backward()\n"
    )

    fix = diagnosed_file(program).findings[0].fixes[0]

    assert fix.code == "loss = (x * kept).sum() / kept.sum().clamp(min=1)"


def test_what_is_no_divisor_is_not_divided_by(tmp_path):
    program = tmp_path / "logarithm.py"
    program.write_text(
        "import torch\n"
        "x = torch.ones(3, requires_grad=True)\n"
        "torch.xlogy(x, torch.tensor([1.0, 2.0, -1.0])).sum().backward()\n"
    )

    (found,) = diagnosed_file(program).findings

    assert found.rule == "GS203"
    assert "guard-empty" not in [fix.kind for fix in found.fixes]


@pytest.mark.parametrize(("weight", "sign"), [(0.0, "=="), (-2.0, "<=")])
def test_a_negative_power_of_a_degree_that_has_none_is_0(weight, sign, tmp_path):
    program = tmp_path / "degrees.py"
    program.write_text(
        "import torch\n"
        "x = torch.ones(3, requires_grad=True)\n"
        f"adjacency = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, {weight}]])\n"
        "degree = adjacency.sum(1)\n"
        "scale = degree ** -0.5\n"
        "(scale[:, None] * adjacency * scale @ x).sum().backward()\n"
    )

    fix = diagnosed_file(program, verify=True).findings[0].fixes[0]

    assert fix.verified
    assert fix.code == f"scale = (degree ** -0.5).masked_fill(degree {sign} 0, 0.0)"


@pytest.mark.parametrize(
    ("made", "fixed"),
    [
        ("F.softplus(raw + EPS)", "F.softplus(raw) + EPS"),
        ("F.softplus(raw * 1.0 + 1e-6).sqrt()", "(F.softplus(raw * 1.0) + 1e-6).sqrt()"),
    ],
)
def test_an_epsilon_inside_of_a_softplus_is_added_to_its_result(tmp_path, made, fixed):
    """In float64 the loss is another one: that of the program without its bound."""
    program = tmp_path / "scale.py"
    program.write_text(
        "import torch\nimport torch.nn.functional as F\nEPS = 1e-6\n"
        "raw = torch.tensor([0.5, -300.0], requires_grad=True)\n"
        f"scale = {made}\n"
        "(0.1 * scale.log()).mean().backward()\n"
    )

    fix = diagnosed_file(program, verify=True).findings[0].fixes[0]

    assert fix.verified
    assert fix.code == f"scale = {fixed}"


def test_an_exponential_that_a_minimum_throws_away_is_bounded(tmp_path):
    program = tmp_path / "ratio.py"
    program.write_text(
        "import torch\n"
        "new = torch.tensor([0.0, 0.1], requires_grad=True)\n"
        "ratio = torch.exp(new - torch.tensor([-120.0, 0.0]))\n"
        "(-torch.min(ratio, ratio.clamp(0.8, 1.2)).mean()).backward()\n"
    )

    fix = diagnosed_file(program, verify=True).findings[0].fixes[0]

    assert fix.verified
    assert fix.code.count("torch.") == 2 and ".clamp_max(" in fix.code


def test_what_a_maximum_goes_by_keeps_its_value(tmp_path):
    """A distance of 1 in place of 0 would be the largest one in another batch."""
    program = tmp_path / "triplet.py"
    program.write_text(
        "import torch\n"
        "x = torch.tensor([[0.0], [3.0]], requires_grad=True)\n"
        "d = (x[None] - x[:, None]).square().mean(-1)\n"
        "distance = torch.sqrt(d)\n"
        "distance.max(1)[0].sum().backward()\n"
    )

    fix = diagnosed_file(program).findings[0].fixes[0]

    assert fix.kind == "masked-branch"
    assert fix.code == "distance = torch.where(d > 0, torch.sqrt(torch.where(d > 0, d, 1.0)), 0.0)"


@pytest.mark.parametrize(
    ("made", "used", "fixed"),
    [
        ("torch.sqrt((x * x).sum(-1))", "x[:, 0] / n",
         "values = (x * x).sum(-1)\n+n = torch.sqrt(torch.where(values > 0, values, 1.0))"),
        ("x.square().sum(-1)", "x[:, 0] / n.sqrt()",
         "loss = (x[:, 0] / torch.where(n > 0, n, 1.0).sqrt()).sum()"),
        ("torch.sqrt((x * x).sum(-1))", "n.log()",
         "n = torch.sqrt((x * x).sum(-1).clamp_min(1e-12))"),
    ],
)  # fmt: skip
@pytest.mark.long
def test_a_root_is_guarded_under_the_root(tmp_path, made, used, fixed):
    """Beside it, at the division or the logarithm, the root's slope would stay infinite. What a
    logarithm gives there is made by the number that the patch writes: that is not verified."""
    program = tmp_path / "unit.py"
    program.write_text(
        "import torch\n"
        "x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)\n"
        f"n = {made}\n"
        f"loss = ({used}).sum()\n"
        "loss.backward()\n"
    )

    first = diagnosed_file(program, verify=True).findings[0].fixes[0]

    is_log = "log" in used
    assert (first.kind, first.verified) == (("epsilon", False) if is_log else ("guard-empty", True))
    assert first.patch is not None
    assert f"+{fixed}" in first.patch


@pytest.mark.parametrize(
    "name", ["plain.py", "a b.py", "é.py", 'q"\\.py', "\x1b[31m\n::error::x\u202e.py"]
)
def test_a_patch_names_any_file_as_git_does(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("x = 1\n")

    patch = unified(Source(name, "x = 1\n"), "x = 2\n")

    assert subprocess.run(["git", "apply"], input=patch.encode(), cwd=tmp_path).returncode == 0
    assert (tmp_path / name).read_text() == "x = 2\n"
    assert {change.file for change in changes(patch)} == {name}
    assert patch.replace("\n", "").replace("\t", "").isprintable()


APART = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 3)
        self.last = nn.Softmax(dim=-1)

    def forward(self, x):
        return {made}


def criterion(p, y):
    return {used}


net = Net().float()
with torch.no_grad():
    net.fc.weight.fill_(90.0).mul_(torch.tensor([[1.0], [-1.0], [2.0]]))
x = torch.tensor([[1.0, 2.0], [0.0, 3.0]])
out = net(x)
loss = criterion(out, F.one_hot(torch.tensor([1, 0]), 3))
loss.backward()
{more}
"""
ENDS = [
    ("F.softmax(self.fc(x), dim=-1)", "-(y * p.log()).sum()", "print(out.argmax(-1))",
     ["F.log_softmax(self.fc(x), dim=-1)", "-(y * p).sum()", "print(out.argmax(-1))"]),
    ("self.last(self.fc(x))", "-(y * torch.log(p + 1e-46)).sum()", "",
     ["nn.LogSoftmax(dim=-1)", "self.last(self.fc(x))", "-(y * p).sum()"]),
    ("torch.sigmoid(self.fc(x)).squeeze(0)",
     "-(y * torch.log(p) + (1 - y) * torch.log(1 - p)).sum()", "print(out > 0.5)",
     ["return self.fc(x).squeeze(0)", "y * F.logsigmoid(p) + (1 - y) * F.logsigmoid(-p)",
      "print(torch.sigmoid(out) > 0.5)"]),
    ("self.fc(x).sigmoid()", "-(y * torch.log(p) + (1 - y) * torch.log1p(-p)).mean()", "",
     ["return self.fc(x)", "y * F.logsigmoid(p) + (1 - y) * F.logsigmoid(-p)"]),
]  # fmt: skip


@pytest.mark.parametrize(("made", "used", "more", "expected"), ENDS)
@pytest.mark.long
def test_probabilities_of_one_function_and_their_logarithm_in_another(
    made, used, more, expected, tmp_path
):
    program = tmp_path / "apart.py"
    program.write_text(APART.format(made=made, used=used, more=more))

    fix = diagnosed_file(program, verify=True).findings[0].fixes[0]

    assert ("stable-op", True) == (fix.kind, fix.verified)
    assert all(text in fix.code for text in expected if text not in program.read_text())


@pytest.mark.parametrize(
    "more",
    [
        "print(criterion(x, x))",  # the loss is given other values as well
        "losses = [criterion]",  # and may be called anywhere
        "print(list(map(net, [x])))",
    ],
)
def test_ends_that_somebody_else_may_use_stay_as_they_are(more, tmp_path):
    program = tmp_path / "apart.py"
    made, used, *_ = ENDS[0]
    program.write_text(APART.format(made=made, used=used, more=more))

    fixes = diagnosed_file(program).findings[0].fixes

    assert not any(fix.patch and "log_softmax" in fix.patch for fix in fixes)


def test_zero_times_the_logarithm_of_zero():
    text = f"{HEAD}loss = (x * (x.log() - 1)).sum()\nloss.backward()\n"

    first = ways(finding(text, "x.log()", "log", "epsilon", {"self": 0.0}), text)[0]
    loss, gradient = run(first.text)

    assert "x * (torch.where(x > 0, x, 1.0).log() - 1)" in first.text
    assert loss.isfinite() and gradient.isfinite().all()


def test_a_mask_in_a_softmax_by_hand_gets_no_logarithm():
    text = f"{HEAD}e = torch.exp(x) * m\nloss = (e / e.sum()).sum()\n"

    found = ways(finding(text, "e / e.sum()", "div", "stable-op", {"other": 0.0}), text)

    assert not any("log" in way.text for way in found)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("net(a).clamp(min=0)", "var = torch.nn.functional.softplus(net(a))"),
        ("net(a).clamp_min(0)", "var = torch.nn.functional.softplus(net(a))"),
        # What takes a rounding error away is not what has to be learnt.
        ("net(a).square().clamp(min=0)", ""),
        ("net(a).clamp(0, 1)", ""),
    ],
)
def test_a_clamp_of_a_layer_becomes_a_softplus(made, expected, tmp_path):
    program = tmp_path / "program.py"
    text = "import torch\n\nnet = torch.nn.Linear(1, 1, bias=False)\nnet.weight.data.fill_(1.0)\n"
    a = "[[-1.0], [0.0], [2.0]]" if "square" in made else "[[-1.0], [-3.0], [0.5]]"
    text += f"a = torch.tensor({a})\nvar = {made}\ntorch.log(var).sum().backward()\n"
    program.write_text(text)

    fixes = diagnosed_file(program).findings[0].fixes

    patches = [fix.patch or "" for fix in fixes if "softplus" in fix.title]
    assert any(expected in patch for patch in patches) if expected else not any(patches)
