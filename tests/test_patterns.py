"""Composite patterns: trees built by hand, and the graphs that torch itself builds."""

import pytest
import torch
from torch.nn import functional as F

from gradscope.facts import Ancestor, Call
from gradscope.ops import patterns as forms
from gradscope.ops.patterns import match
from gradscope.ops.traits import key

LEVELS = 5


ATEN = {full.removeprefix("aten::") for full in torch._C._dispatch_get_all_op_names()}


def ancestor(node, levels: int = LEVELS) -> Ancestor | None:
    if node is None or levels == 0:
        return None
    above = tuple(ancestor(one, levels - 1) for one, _ in node.next_functions)
    name = node.name().removeprefix("torch::autograd::")
    return Ancestor(name, Call(key(name), view=is_view(key(name))), above)


def is_view(op: str) -> bool:
    """By torch's own schemas, in which `op` is a name without underscores."""
    named = (full.partition(".") for full in ATEN if full.partition(".")[0].replace("_", "") == op)
    found = [getattr(getattr(torch.ops.aten, name), kind or "default") for name, _, kind in named]
    return any(one.is_view for one in found)


def of(op: str, *inputs: object, constant: float | None = None) -> Ancestor:
    """A node by hand: `of("Log", of("Softmax"))`; None where no gradient flows."""
    call = Call("add", constant=constant) if constant is not None else None
    return Ancestor(f"{op}Backward0", call, inputs)


def pattern_of(value: torch.Tensor, op: str) -> forms.Pattern | None:
    """The pattern of the op that made `value`, from torch's own graph."""
    return match(op, [ancestor(node) for node, _ in value.grad_fn.next_functions])


X = torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_()
Y = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
V = (Y + 0.1).requires_grad_()
CLASSES = torch.tensor([0, 1, 2])


def probabilities() -> torch.Tensor:
    return X.softmax(-1)


EXPRESSIONS = [
    ("log", forms.LOG_SOFTMAX, lambda: probabilities().log()),
    ("log", forms.LOG_SOFTMAX, lambda: (probabilities() + 1e-9).log()),
    ("log", forms.LOG_SOFTMAX, lambda: probabilities().gather(1, CLASSES[:, None]).log()),
    ("log", forms.LOG_SOFTMAX, lambda: probabilities().clamp(min=1e-20)[:, 1].view(-1).log()),
    ("log", forms.LOG_SOFTMAX, lambda: (X.exp() / X.exp().sum(-1, keepdim=True)).log()),
    ("log", forms.LOG_SIGMOID, lambda: X.sigmoid().log()),
    ("log", forms.LOG_SIGMOID, lambda: (1 / (1 + (-X).exp())).log()),
    ("log", forms.LOG_ONE_MINUS_SIGMOID, lambda: (1 - X.sigmoid()).log()),
    ("log", forms.LOG_ONE_MINUS_SIGMOID, lambda: (torch.ones(()) - X.sigmoid()).log()),
    ("log1p", forms.LOG_ONE_MINUS_SIGMOID, lambda: torch.log1p(-X.sigmoid())),
    ("log", forms.SOFTPLUS, lambda: (1 + X.exp()).log()),
    ("log1p", forms.SOFTPLUS, lambda: X.exp().log1p()),
    ("log", forms.LOGSUMEXP, lambda: X.exp().sum(-1).log()),
    ("log", forms.LOGSUMEXP, lambda: X.exp().mean().log()),
    ("log", forms.LOGADDEXP, lambda: (X.exp() + V.exp()).log()),
    ("log", forms.LOG_COSH, lambda: X.cosh().log()),
    ("log", forms.LOG_COSH, lambda: ((X.exp() + (-X).exp()) / 2).log()),
    ("log", forms.LOG_PROD, lambda: V.prod(0).log()),
    ("div", forms.SOFTMAX_BY_HAND, lambda: X.exp() / X.exp().sum(-1, keepdim=True)),
    ("sqrt", forms.SQRT_VAR, lambda: X.var(0).sqrt()),
    ("pow", forms.SQRT_VAR, lambda: X.var(0) ** 0.5),
    ("sqrt", forms.HAND_NORM, lambda: X.square().sum(-1).sqrt()),
    ("sqrt", forms.HAND_NORM, lambda: (X * X).sum(-1).sqrt()),
    ("sqrt", forms.ABSOLUTE, lambda: (X * X).sqrt()),
    ("pow", forms.ABSOLUTE, lambda: X.square() ** 0.5),
    ("sqrt", forms.HAND_RMS, lambda: X.square().mean(-1).sqrt()),
    ("div", forms.NORMALIZE, lambda: X / X.norm(dim=-1, keepdim=True)),
    ("div", forms.NORMALIZE, lambda: X / X.square().sum(-1, keepdim=True).sqrt()),
]


@pytest.mark.parametrize(
    ("op", "pattern", "make"), EXPRESSIONS, ids=[f"{op}-{p.name}" for op, p, _ in EXPRESSIONS]
)
def test_an_expression_is_recognised_in_torchs_graph(op, pattern, make):
    assert pattern_of(make(), op) is pattern


PLAIN = [
    ("log", lambda: V.log()),
    ("log", lambda: (V + 1).log()),
    ("log", lambda: (2 + X.exp()).sqrt().log()),
    ("sqrt", lambda: V.sqrt()),
    ("div", lambda: X / V),
    ("mul", lambda: X * V),
    ("add", lambda: X + V.log()),
    ("exp", lambda: X.exp()),
    ("pow", lambda: V.mean(0) ** 2),
    ("sqrt", lambda: (X.exp() * V).sum(-1).sqrt()),  # the scalar product of two
    ("pow", lambda: V.pow(V.sum()).sum(-1) ** 0.5),  # a learned exponent
    ("div", lambda: X.sin() / X.norm(dim=-1, keepdim=True)),
]


@pytest.mark.parametrize(("op", "make"), PLAIN)
def test_an_ordinary_expression_is_no_pattern(op, make):
    assert pattern_of(make(), op) is None


def test_a_large_constant_is_not_an_epsilon():
    softmax = of("Softmax")

    assert match("log", [of("Add", softmax, None, constant=1e-9)]) is forms.LOG_SOFTMAX
    assert match("log", [of("Add", softmax, None, constant=1.0)]) is None


def test_an_op_that_begins_a_pattern_is_told_by_what_follows():
    def path(*ops: str) -> list[Call]:
        return [Call(op, view=is_view(op)) for op in ops]

    assert match("exp", [None], path("sum", "log", "mean")) is forms.LOGSUMEXP
    assert match("exp", [None], path("log1p")) is forms.SOFTPLUS
    assert match("exp", [None], path("view", "sum", "log")) is forms.LOGSUMEXP
    assert match("exp", [None], path("mul", "mean")) is None


STABLE = [
    (forms.LOG_SOFTMAX, lambda x: x.softmax(-1).log()),
    (forms.LOG_SIGMOID, lambda x: x.sigmoid().log()),
    (forms.LOG_ONE_MINUS_SIGMOID, lambda x: (1 - x.sigmoid()).log()),
    (forms.SOFTPLUS, lambda x: (1 + x.exp()).log()),
    (forms.LOGSUMEXP, lambda x: x.exp().sum(-1).log()),
    (forms.LOG_COSH, lambda x: x.cosh().log()),
    (forms.SOFTMAX_BY_HAND, lambda x: x.exp() / x.exp().sum(-1, keepdim=True)),
    (forms.SQRT_VAR, lambda x: x.var(-1).sqrt()),
    (forms.HAND_NORM, lambda x: x.square().sum(-1).sqrt()),
    (forms.ABSOLUTE, lambda x: x.square().sqrt()),
    (forms.HAND_RMS, lambda x: x.square().mean(-1).sqrt()),
    (forms.NORMALIZE, lambda x: x / x.norm(dim=-1, keepdim=True)),
]
HARSH = {
    forms.SQRT_VAR: [1.0, 1.0, 1.0],
    forms.HAND_NORM: [0.0, 0.0, 0.0],
    forms.ABSOLUTE: [0.0, 1.0],
    forms.HAND_RMS: [0.0, 0.0, 0.0],
    forms.NORMALIZE: [0.0, 0.0, 0.0],
}


@pytest.mark.parametrize(("pattern", "written"), STABLE, ids=lambda one: getattr(one, "name", ""))
class TestStableForms:
    def stable(self, pattern: forms.Pattern, x: torch.Tensor) -> torch.Tensor:
        return eval(pattern.stable.format(x="x", dim="-1", eps="1e-12"), {"torch": torch, "x": x})

    def test_it_computes_the_same(self, pattern, written):
        x = torch.tensor([-0.5, 0.2, 1.5])

        assert torch.allclose(self.stable(pattern, x), written(x))

    def test_it_is_finite_where_the_written_one_is_not(self, pattern, written):
        points = [HARSH[pattern]] if pattern in HARSH else [[200.0, 0, -1], [-200.0, 0, 200.0]]
        broken = False
        for point in points:
            x = torch.tensor(point, requires_grad=True)
            by_hand = written(x)
            (slope,) = torch.autograd.grad(by_hand.sum(), x)
            broken |= not bool(by_hand.isfinite().all() and slope.isfinite().all())

            value = self.stable(pattern, x)
            (slope,) = torch.autograd.grad(value.sum(), x)

            assert value.isfinite().all()
            assert slope.isfinite().all()
        assert broken


def test_stable_losses_are_spelled_as_torch_has_them():
    for form in vars(forms).values():
        if isinstance(form, forms.Pattern) and "torch.nn.functional." in form.stable:
            name = form.stable.split("torch.nn.functional.")[1].split("(")[0]
            assert hasattr(F, name)
