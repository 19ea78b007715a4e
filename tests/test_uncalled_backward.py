"""GS304: a module's own backward that nobody calls."""

import pytest
import torch
from corpus import diagnosed_text, loud, patched

from gradscope.facts import Severity
from gradscope.record import Observation

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)


class Reverse(nn.Module):
    def __init__(self, strength):
        super().__init__()
        self.strength = strength

    def forward(self, x):
        {returns}

    def backward(self, grad):
        return -self.strength * grad


features = nn.Linear(8, 4)
domain = nn.Sequential(Reverse(0.5), nn.Linear(4, 1))
optimizer = torch.optim.SGD([*features.parameters(), *domain.parameters()], lr=0.1)
for step in range({steps}):
    x = torch.randn(16, 8)
    loss = (domain(features(x)) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(features.weight.grad)
"""
HOOKED = """{}
        if out.requires_grad:
            out.register_hook(self.backward)
        return out"""


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize(
    ("returned", "made"),
    [
        ("x", "out = x.view_as(x)"),
        ("x.view_as(x)", "out = x.view_as(x)"),
        ("x * 1.0", "out = x * 1.0"),
        ("0 + x", "out = 0 + x"),
        ("torch.div(x, 1)", "out = torch.div(x, 1)"),
        ("x.contiguous()", "out = x.contiguous()\n        out = out.view_as(out)"),
    ],
)
@pytest.mark.long
def test_it_is_told_where_it_stands_and_hooked(returned, made, steps, here):
    program = PROGRAM.format(returns=f"return {returned}", steps=steps)

    (found,) = diagnosed_text(program, here, verify=True).findings

    assert (found.rule, found.severity) == ("GS304", Severity.ERROR)
    assert found.location.line == 13
    assert [one.location.line for one in found.related] == [15]
    assert found.fixes[0].verified is True
    text = patched(found.fixes[0].patch, here)
    assert text == PROGRAM.format(returns=HOOKED.format(made), steps=steps)
    assert loud(text) == []


@pytest.mark.long
def test_a_static_one_is_hooked_too_and_other_readers_keep_their_gradient(tmp_path):
    program = PROGRAM.format(returns="return x", steps=3)
    program = program.replace(
        "    def backward(self, grad)", "    @staticmethod\n    def backward(grad)"
    )
    program = program.replace("return -self.strength * grad", "return -grad")
    program = program.replace(
        "loss = (domain(features(x))", "h = features(x)\n    loss = h.square().sum() + (domain(h)"
    )

    (found,) = diagnosed_text(program, tmp_path, verify=True).findings

    assert found.fixes[0].verified is True
    assert "+        out = x.view_as(x)\n" in found.fixes[0].patch


@pytest.mark.parametrize(
    ("own", "returned"),
    [("backward(self, ctx, grad)", "x * 1.0"), ("backward(self, grad)", "x, x * 1.0")],
    ids=["of two arguments", "of two results"],
)
def test_what_no_hook_fits_gets_advice(own, returned, tmp_path):
    program = PROGRAM.format(returns=f"return {returned}", steps=3)
    program = program.replace("backward(self, grad)", own)
    if "," in returned:
        program = program.replace("domain(features(x))", "domain[1](domain[0](features(x))[1])")

    (found,) = diagnosed_text(program, tmp_path, verify=True).findings

    assert (found.rule, found.fixes[0].patch) == ("GS304", None)


@pytest.mark.parametrize(
    "returned",
    ["self.strength * x", "1 / x", "0 - x", "x * 1.0 * self.strength", "self.inner(x)"],
)
def test_one_beside_a_forward_that_computes_is_a_warning(returned, tmp_path):
    program = PROGRAM.format(returns=f"return {returned}", steps=3)
    program = program.replace("= strength\n", "= strength\n        self.inner = nn.Tanh()\n")

    (found,) = diagnosed_text(program, tmp_path).findings

    assert (found.rule, found.severity) == ("GS304", Severity.WARNING)


LOOP = "model = Model()\nfor step in range(4):\n"
MODEL = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)

    def backward(self, loss):
        {}


"""


@pytest.mark.parametrize(
    "program",
    [
        MODEL.format("loss.backward()")
        + f"{LOOP}    loss = model(torch.ones(2, 4)).square().mean()\n    model.backward(loss)\n",
        MODEL.format("self(loss).square().mean().backward()")
        + f"{LOOP}    model.backward(torch.ones(2, 4))\n",
        PROGRAM.format(returns=HOOKED.format("out = x.clone()"), steps=3),
        PROGRAM.format(returns="return x", steps=3).replace(
            "print(", "domain[0].backward(torch.ones(2))\nprint("
        ),
    ],
    ids=["of a loss", "with the forward", "by a hook", "by hand"],
)
def test_one_that_is_called_is_no_fault(program):
    assert loud(program) == []


def test_the_class_is_left_as_it_was():
    class Kept(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

        def backward(self, grad: torch.Tensor) -> torch.Tensor:
            return grad

    own = vars(Kept)["backward"]
    with Observation(each_op=False) as watch:
        Kept()(torch.ones(2, requires_grad=True)).sum().backward()
    assert len(watch.sizes.facts().own_backwards) == 1

    assert vars(Kept)["backward"] is own
