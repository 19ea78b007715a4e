"""What an optimizer carries from step to step in half precision is made wider, with the gradient
that goes into it, where it takes part in what underflowed; and what a program adds to in half
precision, where that overflowed."""

import pytest
from corpus import diagnosed_text, finding_of, patched

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


BUFFER = """\
class Counts(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        {start}

    def forward(self, label):
        label = label.half()
        {add}
        return 1 / self.seen
"""
COUNTED = "self.seen += label"
BUFFERS = {  # how it begins, and how it is added to
    "a buffer": ('self.register_buffer("seen", torch.ones(n, dtype=torch.float16))', COUNTED),
    "by a cast": ('self.register_buffer("seen", torch.ones(n).half())', COUNTED),
    "cast by name": ("self.seen = torch.ones(n).to(torch.half)", COUNTED),
    "an attribute": (
        "self.seen = torch.zeros_like(n, dtype=torch.float16)",
        "self.seen = self.seen + label",
    ),
    "by a method": ("self.seen = torch.ones(n, dtype=torch.half)", "self.seen.add_(label)"),
    "at places": ("self.seen = torch.ones(n, dtype=torch.half)", "self.seen[label] += 1"),
    "by another name": (
        "start = torch.ones(n, dtype=torch.half)\n        self.seen = start",
        COUNTED,
    ),
    "copied": (
        "self.seen = torch.ones(n).half()",
        "self.seen.copy_(0.9 * self.seen + label)",
    ),
    "where it is not there": (
        "self.seen = None",
        "if self.seen is None:\n            self.seen = torch.ones(4).half()\n        " + COUNTED,
    ),
}
LOOP = """\
{start}
for batch in range(8):
    label = torch.ones(4).half()
    {add}
    print(1 / seen)
"""
FUNCTION = """\
def count(seen, label):
    seen += label
    return 1 / seen


state = torch.zeros(4, dtype=torch.float16)
for batch in range(8):
    print(count(state, torch.ones(4).half()))
"""
COMPUTED = {
    "anew each time": BUFFER.format(start="self.n = n", add="self.seen = label * label"),
    "added to once": BUFFER.format(
        start="self.n = n", add=f"self.seen = torch.ones(4).half()\n        {COUNTED}"
    ),
    "never added to": BUFFER.format(start="self.seen = torch.ones(n).half()", add="pass"),
    "overwritten": BUFFER.format(
        start="self.seen = torch.ones(n).half()", add="self.seen.copy_(label)"
    ),
    "in a loop": LOOP.format(start="", add="seen = label.half()\n    seen += label"),
    "given another name": FUNCTION.replace("    seen +=", "    seen = seen * 2\n    seen +="),
    "of float32": BUFFER.format(start="self.seen = torch.ones(n)", add=COUNTED),
}


def widened(text: str, culprit: str = "1 / ") -> tuple[str, str]:
    """The title of the first fix of an overflow, and the text with it."""
    text = f"import torch\n\n{text}"
    source = Source("own.py", text)
    start = text.index(culprit)
    end = text.find("\n", start) - text[start:].partition("\n")[0].count(")")
    found = finding_of(
        "GS204",
        op="reciprocal",
        phase=Phase.FORWARD,
        location=Location("own.py", *source.place(start), *source.place(end), "Own"),
        measured=Measured((("self", 1e-4),), "float16"),
        fixes=(Fix("dtype", "a wider dtype", request=ask.WiderDtype()),),
    )
    culprit = locate(found, source)
    fix = fixes_of(culprit)[0]
    way = next(candidates(culprit, fix), None)
    return fix.title, spliced(source, way.edits if way is not None else ())


@pytest.mark.parametrize(("start", "add"), BUFFERS.values(), ids=BUFFERS)
def test_what_is_added_to_is_made_wide(start, add):
    text = BUFFER.format(start=start, add=add)
    made, others = text, "label = label.half()"
    for was, now in (("torch.float16", "torch.float32"), (").half()", ").float()")):
        made = made.replace(was, now)
    made = made.replace("torch.half", "torch.float32")

    assert others in made
    assert widened(text) == (
        "keep `seen` in float32, and compute what follows in it",
        f"import torch\n\n{made}",
    )


@pytest.mark.parametrize("add", ["seen += label", "seen = seen + label", "seen.add_(label)"])
def test_so_is_what_a_loop_adds_to(add):
    text = LOOP.format(start="seen = torch.zeros(4, dtype=torch.float16)", add=add)

    title, made = widened(text)

    assert title == "keep `seen` in float32, and compute what follows in it"
    assert made == f"import torch\n\n{text}".replace("torch.float16", "torch.float32")


def test_so_is_what_a_function_is_given_to_add_to():
    assert widened(FUNCTION) == (
        "keep `seen` in float32, and compute what follows in it",
        f"import torch\n\n{FUNCTION}".replace("torch.float16", "torch.float32"),
    )


@pytest.mark.parametrize("text", COMPUTED.values(), ids=COMPUTED)
def test_what_is_only_computed_with_is_no_state(text):
    assert widened(text)[0] == "a wider dtype"


COUNTS = """\
import torch
from torch import nn

torch.manual_seed(0)


class Balanced(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.ones(3, dtype=torch.float16))

    def forward(self, scores, label):
        with torch.no_grad():
            self.seen += torch.bincount(label, minlength=3).half() * 64
            weight = (self.seen.max() / self.seen).float()
        return nn.functional.cross_entropy(scores, label, weight)


net, criterion = nn.Linear(4, 3), Balanced()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(30):
    x = torch.randn(128, 4)
    loss = criterion(net(x), (x[:, 0] > 0).long() + (x[:, 1] > 1.5).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.long
def test_a_count_that_overflows_is_kept_in_float32(here):
    (found,) = diagnosed_text(COUNTS, here, verify=True).findings
    fix = found.fixes[0]

    assert (found.rule, found.location.line, fix.verified) == ("GS204", 14, True)
    assert patched(fix.patch, here) == COUNTS.replace("torch.float16", "torch.float32")
