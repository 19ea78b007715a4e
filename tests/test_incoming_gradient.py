"""GS301: a backward whose gradient does not depend on the one that comes in, also where its slope
is somebody's choice; and what is right, though not linear in it."""

import pytest
import torch
from corpus import diagnosed_text, patched
from right_functions import made, matrix
from torch.nn.functional import one_hot

from gradscope.facts import Ending, Severity
from gradscope.record import Observation

X, V = matrix(4, 6), matrix(4, 6)


def step(x):
    return (x > 0).to(x.dtype)


def slope(x):
    return 1 / (1 + 5 * x.abs()) ** 2


def filled(grad, where, number):
    return grad.masked_fill(where, number)


def cheapest(costs):
    return one_hot(costs.argmin(-1), costs.shape[-1]).to(costs.dtype)


def verdicts(cls, args):
    with Observation(keep_going=False) as recorder:
        cls.apply(*args)
    found = recorder.trace("case", Ending("finished")).functions
    return [(one.verdict, one.relation.last) for one in found]


WRONG = {  # and what is found of each input
    "a surrogate": (made(step, lambda g, x: slope(x)), (X,), ["ignored"]),
    "straight through": (made(torch.sign, lambda g, x: torch.ones_like(x)), (X,), ["ignored"]),
    "of what is not reached": (
        made(lambda x: step(x - 5), lambda g, x: slope(x)),
        (X,),
        ["ignored"],
    ),
    "where all are alike": (
        made(lambda x: step(x - 1), lambda g, x: slope(x)),
        (torch.zeros(4, 6, requires_grad=True),),
        ["ignored"],
    ),
    "a reversal": (made(torch.clone, lambda g, x: -0.5 * torch.ones_like(g)), (X,), ["ignored"]),
    "a number for some": (
        made(torch.sign, lambda g, x: filled(g, x.abs() > 1, 0.1)),
        (X,),
        ["partly"],
    ),
    "a slope for some": (
        made(lambda x: x.clamp(min=0), lambda g, x: filled(g, x < 0, 0.1)),
        (X,),
        ["partly"],
    ),
    "added": (made(torch.sin, lambda g, x: g + x.cos()), (X,), ["added"]),
    "of one of two inputs": (
        made(lambda x, v: step(x - v), lambda g, x, v: (g * slope(x - v), -slope(x - v).sum(0))),
        (X, matrix(6)),
        ["surrogate", "ignored"],
    ),
    "of one of two outputs": (
        made(lambda x: (step(x), 2 * x), lambda spike, moved, x: slope(x) + 2 * moved),
        (X,),
        ["added"],
    ),
}
RIGHT = {
    "a surrogate": made(step, lambda g, x: g * slope(x)),
    "the sign of the gradient": made(step, lambda g, x: g.sign() * slope(x)),
    "a step of a solver": made(cheapest, lambda g, x: (cheapest(x + 9 * g) - cheapest(x)) / 9),
    "a clipped gradient": made(torch.clone, lambda g, x: g.clamp(-0.1, 0.1)),
    "a gradient of norm 1": made(torch.clone, lambda g, x: g / g.norm()),
    "a rounded gradient": made(torch.clone, lambda g, x: (8 * g).round() / 8),
    "a penalty": made(torch.clone, lambda g, x: g + 1e-3 * x.sign()),
    "a penalty of what is rounded": made(torch.round, lambda g, x: g + 1e-3 * x.sign()),
    "another gradient": made(torch.clone, lambda g, x: 1e-3 * x.sin()),
    "a gradient given to a constant": made(lambda x: torch.zeros(1), lambda g, x: 0.1 * x),
    "two outputs": made(lambda x: (step(x), 2 * x), lambda s, m, x: s * slope(x) + 2 * m),
}
ADDED_LOSS = made(lambda x, loss: x.clone(), lambda g, x, loss: (g, torch.ones_like(loss)))


@pytest.mark.parametrize(("cls", "args", "relations"), WRONG.values(), ids=WRONG)
def test_a_gradient_that_does_not_depend_on_grad_output_is_wrong(cls, args, relations):
    found = verdicts(cls, args)

    assert [relation for _, relation in found] == relations
    assert found[-1][0] == "wrong"


@pytest.mark.parametrize("cls", RIGHT.values(), ids=RIGHT)
def test_what_depends_on_it_or_replaces_it_on_purpose_is_none(cls):
    assert {verdict for verdict, _ in verdicts(cls, (X,))} <= {"right", "intended"}


def test_a_loss_that_is_added_has_a_gradient_of_its_own():
    assert [verdict for verdict, _ in verdicts(ADDED_LOSS, (X, matrix(1)))] == ["right", "intended"]


PROGRAM = """import torch
from torch import nn

torch.manual_seed(0)


class Custom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return {forward}

    @staticmethod
    def backward(ctx, {grads}):
        (x,) = ctx.saved_tensors
        slope = {slope}
        return {returned}


net, last = nn.Linear(4, 16), nn.Linear(16, 1)
data = torch.randn(64, 4)
optimizer = torch.optim.SGD([*net.parameters(), *last.parameters()], lr=0.05)
for step in range(6):
    optimizer.zero_grad()
    {loss}
    loss.backward()
    optimizer.step()
"""
RATE = "loss = (last(Custom.apply(net(data))) - data.sum(1, keepdim=True)).square().mean()"
ROOT = "loss = Custom.apply(last(net(data)) - data.sum(1, keepdim=True))"
SPIKE = {"forward": "(x > 0).float()", "slope": "1 / (1 + x.abs()) ** 2", "loss": RATE}
LOSS = {"forward": "x.square().mean()", "slope": "2 * x / x.numel()", "loss": ROOT}


def written(grads="grad", returned="slope", **parts):
    return PROGRAM.format(grads=grads, returned=returned, **parts)


SPELLED = {  # and what the patch makes of it
    "a surrogate": (written(**SPIKE), "return grad * slope"),
    "an expression": (written(returned="slope + 0.1", **SPIKE), "return grad * (slope + 0.1)"),
    "one of a tuple": (written("g", "(slope,)", **SPIKE), "return (g * slope,)"),
    "a loss": (written(**LOSS | {"loss": f"{ROOT} / 4"}), "return grad * slope"),
    "added": (
        written(returned="grad + slope", **SPIKE | {"forward": "x.square()", "slope": "2 * x"}),
        "return grad * slope",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(("text", "repaired"), SPELLED.values(), ids=SPELLED)
def test_the_return_is_multiplied_by_it(text, repaired, here):
    (found,) = diagnosed_text(text, here, verify=True).findings

    assert (found.rule, found.severity, found.location.line) == ("GS301", Severity.ERROR, 17)
    assert found.fixes[0].verified
    assert repaired in patched(found.fixes[0].patch, here)


@pytest.mark.parametrize(
    ("loss", "severity"),
    [(ROOT, Severity.NOTE), (f"{ROOT} / 4", Severity.ERROR), (f"{ROOT} / (step + 1)", "error")],
)
def test_a_loss_that_nothing_scales_makes_it_a_note(loss, severity, here):
    (found,) = diagnosed_text(written(**LOSS | {"loss": loss}), here).findings

    assert (found.rule, found.severity) == ("GS301", severity)
    assert ("grad_output of 1 alone" in found.message) == (severity is Severity.NOTE)
    assert bool(found.symptoms) != (severity is Severity.NOTE)
