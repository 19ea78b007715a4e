"""What an optimizer carries from step to step in half precision is made wider, with the gradient
that goes into it, where it takes part in what underflowed."""

import pytest
from corpus import finding_of

from gradscope.facts import Fix, Location, Measured, Phase
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import locate
from gradscope.repair.write.propose import candidates, fixes_of
from gradscope.repair.write.splice import spliced
from gradscope.source import Source

CULPRIT = "g / (v.sqrt() + 1e-8)"
BY_ARGUMENT = """\
class Own(torch.optim.Optimizer):
    def step(self):
        for p in self.param_groups[0]["params"]:
            self.update(p, p.grad, self.state[p])

    def update(self, p, g, state):
        if not state:
            state["v"] = torch.zeros_like(p)
            state["other"] = torch.zeros_like(p)
        v = state["v"]
        v.mul_(0.9).addcmul_(g, g, value=0.1)
        p.sub_(g / (v.sqrt() + 1e-8))
"""
IN_LISTS = """\
class Own:
    def __init__(self, params):
        self.params = list(params)
        self.v = [torch.zeros_like(p) for p in self.params]

    def step(self):
        for p, v in zip(self.params, self.v):
            g = p.grad.data
            v += 0.1 * (g * g - v)
            p.sub_(g / (v.sqrt() + 1e-8))
"""
MADE_AT_ONCE = """\
class Own(torch.optim.Optimizer):
    def step(self):
        for p in self.param_groups[0]["params"]:
            v = self.state[p].setdefault("v", p.detach().clone())
            g = p.grad.add(p, alpha=0.1)
            v.mul_(0.9).addcmul_(p.grad, p.grad, value=0.1)
            p.sub_(g / (v.sqrt() + 1e-8))
"""
WIDE = ", dtype=torch.float32"


def mended(text: str, dtype: str = "float16") -> tuple[str, str]:
    """The title of the first fix, and the text with it."""
    text = f"import torch\n\n{text}"
    source = Source("own.py", text)
    start = text.index(CULPRIT)
    place = Location("own.py", *source.place(start), *source.place(start + len(CULPRIT)), "Own")
    found = finding_of(
        "GS205",
        op="div",
        phase=Phase.OPTIMIZER,
        location=place,
        measured=Measured((("self", 1e-4), ("other", 0.0)), dtype),
        fixes=(Fix("dtype", "a wider dtype", request=ask.WiderDtype()),),
    )
    culprit = locate(found, source)
    fix = fixes_of(culprit)[0]
    way = next(candidates(culprit, fix), None)
    return fix.title, spliced(source, way.edits if way is not None else ())


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (
            BY_ARGUMENT,
            {
                '["v"] = torch.zeros_like(p)': f'["v"] = torch.zeros_like(p{WIDE})',
                "        if not state": "        g = g.float()\n        if not state",
            },
        ),
        (IN_LISTS, {"zeros_like(p)": f"zeros_like(p{WIDE})", "p.grad.data": "p.grad.data.float()"}),
        (
            MADE_AT_ONCE,
            {"p.detach().clone()": "p.detach().clone().float()", "p.grad": "p.grad.float()"},
        ),
    ],
)
def test_the_state_and_its_gradient_are_wide(text, changes):
    right = f"import torch\n\n{text}"
    for was, now in changes.items():
        right = right.replace(was, now)
    assert mended(text) == ("keep `v` in float32, and compute what follows in it", right)


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        (BY_ARGUMENT, "float32"),
        (BY_ARGUMENT.replace('v = state["v"]', "v = g * g"), "float16"),
        (BY_ARGUMENT.replace("zeros_like(p)", f"zeros_like(p{WIDE})"), "float16"),
    ],
)
def test_of_what_is_wide_or_not_kept_there_is_none(text, dtype):
    assert mended(text, dtype)[0] == "a wider dtype"
