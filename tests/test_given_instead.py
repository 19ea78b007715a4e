"""The gradient by a tensor that was made of what a call was given, and not given itself (GS303)."""

import pytest
from corpus import diagnosed_text

PROGRAM = """{imports}import torch
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(body.parameters(), lr=0.1)


def wrap(x):
    return x - torch.floor(x + 0.5)


{helpers}


for step in range(3):
    x, other = torch.randn(6, 2), torch.randn(6, 2)
{lines}
    optimizer.zero_grad()
    slope.square().mean().backward()
    optimizer.step()
"""
NET = """def net(batch):
    return body(wrap(batch[{}]))"""
FIELD = """def net(batch):
    return body(batch.x)"""
ASKED = "slope, = torch.autograd.grad(value.sum(), xs, create_graph=True)"
KEPT = "import dataclasses\n", "@dataclasses.dataclass\nclass Batch:\n    x: torch.Tensor\n\n\n"
NAMED = "import typing\n", "class Batch(typing.NamedTuple):\n    x: torch.Tensor\n\n\n"
GIVEN = {
    "a copy": (
        ("", ""),
        ["xs = x.clone().requires_grad_(True)", "value = body(x)  # <-", ASKED],
        "value = body(xs)",
    ),
    "a part of a tuple": (
        ("", ""),
        [
            "pair = x, other",
            "xs = pair[0].clone().requires_grad_()",
            "value = body(pair[0])  # <-",
            ASKED,
        ],
        "value = body(xs)",
    ),
    "a key": (
        ("", NET.format("'x'")),
        [
            "batch = {'x': x, 'y': other}",
            "xs = wrap(batch['x']).requires_grad_()",
            "value = net(batch)  # <-",
            ASKED,
        ],
        "value = net(dict(batch, x=xs))",
    ),
    "a key that is no name": (
        ("", NET.format("'x 1'")),
        [
            "batch = {'x 1': x}",
            "xs = batch['x 1'].data.requires_grad_()",
            "value = net(batch)  # <-",
            ASKED,
        ],
        "value = net({**batch, 'x 1': xs})",
    ),
    "a field": (
        (KEPT[0], KEPT[1] + FIELD),
        [
            "batch = Batch(x)",
            "xs = batch.x.detach().clone()",
            "xs.requires_grad_()",
            "value = net(batch)  # <-",
            ASKED,
        ],
        "value = net(dataclasses.replace(batch, x=xs))",
    ),
    "a field of a tuple": (
        (NAMED[0], NAMED[1] + FIELD),
        [
            "batch = Batch(x)",
            "xs = batch.x.clone().requires_grad_()",
            "value = net(batch)  # <-",
            ASKED,
        ],
        "value = net(batch._replace(x=xs))",
    ),
    "by a function of its own": (
        (
            "",
            "def slopes(out, by):\n"
            "    return torch.autograd.grad(out.sum(), by, create_graph=True)[0]",
        ),
        ["xs = (0.3 * x + 0.7 * other).requires_grad_()", "slope = slopes(body(other), xs)  # <-"],
        "slope = slopes(body(xs), xs)",
    ),
    "of two calls": (
        ("", NET.format("'x'")),
        [
            "batch = {'x': x}",
            "xs = batch['x'].clone().requires_grad_()",
            "first = net(batch)  # <-",
            "value = first * net(batch)",
            ASKED,
        ],
        "value = first * net(dict(batch, x=xs))",
    ),
}
RIGHT = {
    "given": ["xs = x.clone().requires_grad_()", "value = body(xs) * x.sum()", ASKED],
    "given in a dict": [
        "batch = {'x': x}",
        "xs = batch['x'].clone().requires_grad_()",
        "value = net(dict(batch, x=xs))",
        ASKED,
    ],
    "the tensor itself": [
        "batch = {'x': x}",
        "xs = batch['x'].requires_grad_()",
        "value = net(batch)",
        ASKED,
    ],
}


@pytest.mark.parametrize(("around", "lines", "patch"), GIVEN.values(), ids=GIVEN)
@pytest.mark.long
def test_the_call_that_was_to_be_given_it_is_told_and_given_it(around, lines, patch, tmp_path):
    text = PROGRAM.format(imports=around[0], helpers=around[1], lines=_indented(lines))
    (found,) = diagnosed_text(text, tmp_path, verify=True).findings

    assert found.rule == "GS303"
    assert text.splitlines()[found.location.line - 1].endswith("# <-")
    assert found.fixes[0].verified, found.fixes[0].verdict
    assert f"+    {patch}" in found.fixes[0].patch


ATTACK = """import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def attack(x):
    near = x.clone().requires_grad_(True)
    error = net({}).square().mean()
    error.backward()
    return (x + 0.1 * near.grad.sign()).detach()


for step in range(4):
    x = torch.randn(6, 3)
    loss = net(attack(x)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.long
def test_a_gradient_that_is_none_since_its_leaf_was_given_to_nobody_is_told_so(tmp_path):
    (found,) = diagnosed_text(ATTACK.format("x"), tmp_path, verify=True).findings

    assert (found.rule, found.location.line) == ("GS303", 11)
    assert found.fixes[0].verified, found.fixes[0].verdict
    assert "+    error = net(near).square().mean()" in found.fixes[0].patch
    assert not diagnosed_text(ATTACK.format("near"), tmp_path).findings


@pytest.mark.parametrize("lines", RIGHT.values(), ids=RIGHT)
def test_what_is_given_it_is_silent(lines, tmp_path):
    text = PROGRAM.format(imports="", helpers=NET.format("'x'"), lines=_indented(lines))
    report = diagnosed_text(text, tmp_path)

    assert report.trace.ending.kind == "finished"
    assert not [one for one in report.findings if one.rule == "GS303"]


@pytest.mark.parametrize(
    "lines",
    [
        ["xs = torch.zeros(x.shape).requires_grad_()", "value = body(x)", ASKED],
        ["xs = torch.zeros_like(other).requires_grad_()", "value = body(x)", ASKED],
        ["n = len(x)", "xs = torch.zeros(n, 2).requires_grad_()", "value = body(x).roll(n)", ASKED],
    ],
    ids=["its shape", "another", "a number"],
)
def test_a_tensor_that_nothing_was_made_of_is_not_handed_over(lines, tmp_path):
    text = PROGRAM.format(imports="", helpers="", lines=_indented(lines))
    (found,) = diagnosed_text(text, tmp_path).findings

    assert "# <-" not in text.splitlines()[found.location.line - 1]
    assert found.fixes[0].title == "let that gradient be None: `allow_unused=True`"


def _indented(lines):
    return "\n".join(f"    {one}" for one in lines)
