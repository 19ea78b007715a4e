"""GS403: several layers in a row that start at 0, where only the last one was to."""

from pathlib import Path

import pytest
from corpus import diagnosed_text

from gradscope.facts import Finding, LossMove

PROGRAM = """\
import torch
from torch import nn


def zero(module):
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.weight)
        nn.init.zeros_(module.bias)


def zeroed(module):
    for p in module.parameters():
        p.detach().zero_()
    return module


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        {made}
        {start}

    def reset(self):
        for m in self.net:
            if isinstance(m, nn.Linear):
                nn.init.constant_(m.weight, 0)
                nn.init.constant_(m.bias, 0)

    def _zero(self, m):
        if isinstance(m, nn.Linear):
            m.weight.data.fill_(0.0)
            m.bias.data.zero_()

    def forward(self, x):
        return x + {call}


def branches():
    return nn.Sequential(Branch(), Branch())


torch.manual_seed(0)
x = torch.randn(32, 2)
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    loss = (model(x) - x.prod(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LAYERS = "nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)"
NET = f"self.net = nn.Sequential({LAYERS})"
LISTED = "self.net = nn.ModuleList([nn.Linear(2, 8), nn.Linear(8, 8), nn.Linear(8, 2)])"
EACH = "self.net[2](self.net[1](self.net[0](x)))"
NAMED = "self.a, self.b, self.c = nn.Linear(2, 8), nn.Linear(8, 8), nn.Linear(8, 2)"
NESTED = "self.c(self.b(self.a(x)))"
WHOLE = "nn.Sequential(Branch(), Branch(), nn.Linear(2, 1))"


def written(start: str, made: str = NET, call: str = "self.net(x)", model: str = WHOLE) -> str:
    start = start.replace("\n", "\n        ")
    return PROGRAM.format(made=made, start=start, call=call, model=model)


def found_in(text: str, folder: Path) -> tuple[Finding, str, list[str]]:
    """What is told, the line at which it is, and what the patch changes."""
    (found,) = diagnosed_text(text, folder).findings
    assert (found.rule, found.evidence["reason"]) == ("GS403", "zero-weight")
    changed = found.fixes[0].patch.splitlines()[2:]
    lines = [one[0] + one[1:].strip() for one in changed if one[0] in "+-"]
    return found, text.splitlines()[found.location.line - 1].strip(), lines


@pytest.mark.parametrize(
    ("made", "start", "call", "lines"),
    [
        (NET, "self.net.apply(zero)", "", ["+self.net[-1].apply(zero)"]),
        (NET, "zeroed(self.net)", "", ["+zeroed(self.net[-1])"]),
        (NET, "self.apply(self._zero)", "", ["+self.net[-1].apply(self._zero)"]),
        (NAMED, "self.apply(zero)", NESTED, ["+self.c.apply(zero)"]),
        (LISTED, "self.net.apply(zero)", EACH, ["+self.net[-1].apply(zero)"]),
        (
            f"net = nn.Sequential({LAYERS}, nn.Dropout(0.0))",
            "net.apply(zero)\nself.net = net",
            "",
            ["+net[4].apply(zero)"],
        ),
        (
            "",
            f"self.net = zeroed(nn.Sequential({LAYERS}))",
            "",
            [f"+{NET}", "+zeroed(self.net[-1])"],
        ),
        (
            "",
            f"self.net = nn.Sequential({LAYERS}).apply(zero)",
            "",
            [f"+{NET}", "+self.net[-1].apply(zero)"],
        ),
        (
            "",
            f"self.net = nn.Sequential(nn.Identity(), zeroed(nn.Sequential({LAYERS})))",
            "",
            [
                "+self.net = nn.Sequential(nn.Identity(), "
                f"nn.Sequential({LAYERS.replace('nn.Linear(8, 2)', 'zeroed(nn.Linear(8, 2))')}))"
            ],
        ),
    ],
)
def test_a_function_that_is_given_all_layers_is_given_the_last(made, start, call, lines, tmp_path):
    found, line, patch = found_in(written(start, made, call or "self.net(x)"), tmp_path)

    assert line == start.splitlines()[0]
    assert [one.role for one in found.related] == ["product", "use"]
    assert patch == [f"-{line}", *lines]


IN_LOOP = """for m in {0}:
    if isinstance(m, nn.Linear):
        nn.init.zeros_(m.weight)
        nn.init.zeros_(m.bias)"""


@pytest.mark.parametrize(
    ("made", "start", "call", "line", "loop"),
    [
        (
            NET,
            "for p in self.net.parameters():\n    nn.init.zeros_(p)",
            "",
            "nn.init.zeros_(p)",
            "for p in self.net[-1].parameters():",
        ),
        (
            NAMED,
            "for p in self.parameters():\n    p.data.zero_()",
            NESTED,
            "p.data.zero_()",
            "for p in self.c.parameters():",
        ),
        (NET, IN_LOOP.format("self.net"), "", "", "for m in self.net[-1:]:"),
        (NET, IN_LOOP.format("self.net.children()"), "", "", "for m in self.net[-1:].children():"),
        (NET, IN_LOOP.format("self.net.modules()"), "", "", "for m in self.net[-1].modules():"),
        (
            f"self.net = nn.Sequential({LAYERS}, nn.Dropout(0.0))",
            IN_LOOP.format("self.net"),
            "",
            "",
            "for m in (self.net[4],):",
        ),
        (
            NAMED,
            IN_LOOP.format("(self.a, self.b, self.c)"),
            NESTED,
            "",
            "for m in (self.c,):",
        ),
        (LISTED, "for one in self.net:\n    zero(one)", EACH, "", "for one in self.net[-1:]:"),
        (
            NET.replace("self.net = nn.Sequential", "self.nets = nn.ModuleList([nn.Sequential")
            + f", nn.Sequential({LAYERS})])",
            "for net in self.nets:\n    for p in net.parameters():\n        nn.init.zeros_(p)",
            "sum(net(x) for net in self.nets)",
            "nn.init.zeros_(p)",
            "for p in net[-1].parameters():",
        ),
        (
            NET,
            "for _, one in enumerate(self.net):\n    zero(one)",
            "",
            "",
            "for _, one in enumerate(self.net[-1:]):",
        ),
    ],
)
def test_a_loop_over_all_layers_goes_over_the_last(made, start, call, line, loop, tmp_path):
    _, told, patch = found_in(written(start, made, call or "self.net(x)"), tmp_path)

    zeros = "zero(one)" if "zero(one)" in start else "nn.init.zeros_(m.weight)"
    assert told == (line or zeros)
    before = next(one.strip() for one in start.splitlines() if one.split()[1] == loop.split()[1])
    assert patch == [f"-{before}", f"+{loop}"]


@pytest.mark.parametrize(
    ("start", "patch"),
    [
        ("for one in (self.a, self.b, self.c):\n    zero(one)", ["+zero(self.c)"]),
        (
            "for one in [self.c, self.b, self.a]:\n    one.weight.data.zero_()\n"
            "    one.bias.data.zero_()",
            ["+self.c.weight.data.zero_()", "+self.c.bias.data.zero_()"],
        ),
    ],
)
def test_of_a_loop_over_listed_layers_the_last_is_left(start, patch, tmp_path):
    _, _, changed = found_in(written(start, NAMED, NESTED), tmp_path)

    assert changed == [*(f"-{one.strip()}" for one in start.splitlines()), *patch]


def test_each_line_but_that_of_the_last_layer_is_left_out(tmp_path):
    _, told, patch = found_in(
        written("zero(self.a)\nzero(self.b)\nzero(self.c)", NAMED, NESTED), tmp_path
    )

    assert (told, patch) == ("zero(self.b)", ["-zero(self.a)", "-zero(self.b)"])


def test_a_layer_that_is_filled_where_it_is_made_is_left_as_it_is(tmp_path):
    parts = ("zeroed(nn.Linear(2, 8))", "nn.ReLU()", "zeroed(nn.Linear(8, 2))")
    start = f"self.net = nn.Sequential({', '.join(parts)})"
    _, _, patch = found_in(written(start, ""), tmp_path)

    assert patch == [f"-{start}", f"+{start.replace(parts[0], 'nn.Linear(2, 8)')}"]


def test_a_method_that_fills_its_own_layers_is_told_where_it_does(tmp_path):
    _, told, patch = found_in(written("self.reset()"), tmp_path)

    assert told == "nn.init.constant_(m.weight, 0)"
    assert patch == ["-for m in self.net:", "+for m in self.net[-1:]:"]


def test_a_function_that_is_given_the_model_is_not_told(tmp_path):
    start = (
        "for one in model:\n        if isinstance(one, Branch):\n            one.net.apply(zero)"
    )
    helper = f"def branches(model):\n    {start}\n    return model"
    text = written("pass", model=f"branches({WHOLE})")
    text = text.replace("def branches():\n    return nn.Sequential(Branch(), Branch())", helper)
    _, told, patch = found_in(text, tmp_path)

    assert told == "one.net.apply(zero)"
    assert patch == [f"-{told}", "+one.net[-1].apply(zero)"]


@pytest.mark.parametrize(
    "model",
    [f"nn.Sequential({LAYERS}).apply(zero)", f"zeroed(nn.Sequential({LAYERS}))"],
)
def test_of_a_whole_model_what_fills_it_is_told(model, tmp_path):
    found, told, patch = found_in(written("pass", model=model), tmp_path)

    assert told in ("nn.init.zeros_(module.weight)", "p.detach().zero_()")
    assert [one.role for one in found.related] == ["product"]
    assert any("kaiming_normal_" in one for one in patch)


@pytest.mark.parametrize(
    ("made", "start", "call"),
    [
        pytest.param(NET, "self.net.apply(zero)", "", marks=pytest.mark.long),
        pytest.param(NET, IN_LOOP.format("self.net"), "", marks=pytest.mark.long),
        (NAMED, "for one in (self.a, self.b, self.c):\n    zero(one)", NESTED),
    ],
)
def test_with_the_last_layer_alone_at_0_the_others_live_from_the_second_step(
    made, start, call, tmp_path
):
    text = written(start, made, call or "self.net(x)")
    (found,) = diagnosed_text(text, tmp_path, verify=True).findings
    fix = found.fixes[0]

    assert (found.step, fix.verified) == (0, True)
    assert "last of these layers" in fix.title
    assert [one.step for one in fix.verdict.effects.moves if isinstance(one, LossMove)] == [1]


@pytest.mark.parametrize(
    "start",
    [
        "self.net[-1].apply(zero)",
        "zeroed(self.net[-1])",
        "for m in self.net[-1:]:\n    zero(m)",
        "for m in self.net:\n    if isinstance(m, nn.Linear):\n        nn.init.zeros_(m.bias)",
        "for m in self.net:\n    if isinstance(m, nn.Linear):\n        nn.init.zeros_(m.weight)",
        "self.net.apply(zero)\nfor m in self.net[:-1:2]:\n    m.reset_parameters()",
    ],
)
def test_layers_at_0_between_others_that_learn_are_right(start, tmp_path):
    found = diagnosed_text(written(start), tmp_path).findings

    assert [one for one in found if one.rule == "GS403"] == []


BESIDE = """\
import torch
from torch import nn


def zeroed(module):
    for p in module.parameters():
        p.detach().zero_()
    return module


class Control(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = zeroed(nn.Conv2d(1, 4, 1))
        self.body = nn.Conv2d(4, 4, 3, padding=1)
        self.out = nn.ModuleList(zeroed(nn.Conv2d(4, 4, 1)) for _ in range(2))

    def forward(self, x, hint):
        h = torch.tanh(self.body(x + self.first(hint)))
        return [one(h) for one in self.out]


torch.manual_seed(0)
base = nn.Conv2d(1, 4, 3, padding=1).requires_grad_(False)
head = nn.Conv2d(4, 1, 1).requires_grad_(False)
control = Control()
optimizer = torch.optim.Adam(control.parameters(), lr=1e-2)
for step in range(6):
    x, hint = torch.randn(4, 1, 6, 6), torch.randn(4, 1, 6, 6)
    h = base(x)
    one, other = control(h, hint)
    loss = (head(torch.relu(h + one) + other) - hint).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_single_convolutions_at_0_between_others_are_right(tmp_path):
    assert diagnosed_text(BESIDE, tmp_path).findings == ()
