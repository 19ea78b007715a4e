"""GS403 from end to end: where the graph is cut, and the patch that joins it again."""

from pathlib import Path

import pytest
from corpus import diagnosed_file, diagnosed_text, findings, patched

from gradscope import pipeline
from gradscope.config import Config
from gradscope.facts import Finding
from gradscope.programs import parse_target

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
body, side, head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)
{definition}
optimizer = torch.optim.SGD([*body.parameters(), *side.parameters(), *head.parameters()], lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    x = torch.randn(5, 3)
    loss = head(body(x)).square().mean()
    {cut}
    loss.backward()
    optimizer.step()
"""
CUTS = {
    "losses copied into a tensor": (
        "",
        "loss = loss + torch.tensor([side(x).square().mean(), side(x).mean()]).sum()",
        12,
        "torch.stack([side(x).square().mean(), side(x).mean()]).sum()",
    ),
    "a variable of old": (
        "from torch.autograd import Variable\n",
        "loss = loss + Variable(side(x).data).square().mean()",
        13,
        "loss + side(x).square().mean()\n",
    ),
    "a loss read out": (
        "",
        "loss = loss + side(x).square().mean().item()",
        12,
        "loss + side(x).square().mean()\n",
    ),
    "a loss read out, of what is kept as a number too": (
        "kept = []\n\ndef part(x):\n    y = side(x).square().mean()\n    kept.append(y.item())\n"
        "    return y\n",
        "loss = loss + 0.5 * part(x).detach().item()",
        18,
        "loss + 0.5 * part(x)\n",
    ),
    "a loss made a float": (
        "",
        "loss = loss + float(side(x).square().mean())",
        12,
        "loss + side(x).square().mean()\n",
    ),
    "a gradient without its graph": (
        "",
        "h = 2 * x.requires_grad_(); y = side(h).tanh().sum(); "
        "loss = loss + torch.autograd.grad(y, h, retain_graph=True)[0].square().mean()",
        12,
        "retain_graph=True, create_graph=True)",
    ),
    "a parameter made of a result": (
        "",
        "loss = loss + nn.Parameter(side(x)).square().mean()",
        12,
        "loss + side(x).square().mean()",
    ),
    "a leaf made of a detached result": (
        "",
        "y = side(x); leaf = y.detach().requires_grad_(); seen = y.mean()\n"
        "    loss = loss + leaf.square().mean() + 0 * seen.item()",
        12,
        "leaf = y; seen = y.mean()",
    ),
    "rounding": (
        "",
        "y = side(x); loss = loss + (y.round() - x).square().mean()",
        12,
        "((y + (y.round() - y).detach()) - x)",
    ),
    "a decorator": (
        "@torch.no_grad()\ndef score(x):\n    return side(x).square().mean()\n",
        "loss = loss + score(x)",
        6,
        "@torch.enable_grad()",
    ),
    "a sample of a distribution": (
        "from torch.distributions import Normal\n",
        "loss = loss + Normal(side(x), 0.5).sample().square().mean()",
        13,
        "Normal(side(x), 0.5).rsample()",
    ),
    "a sample by torch.normal": (
        "",
        "m = side(x); loss = loss + torch.normal(m, 0.5).square().mean()",
        12,
        "(m + 0.5 * torch.randn_like(m)).square()",
    ),
    "a sample by torch.bernoulli": (
        "",
        "p = side(x).sigmoid(); loss = loss + torch.bernoulli(p).mean()",
        12,
        "(p + (torch.bernoulli(p) - p).detach()).mean()",
    ),
    "the nearest pixel": (
        "image = torch.rand(1, 1, 4, 4)\n",
        "loss = loss + nn.functional.grid_sample("
        "image, side(x)[None, None, :, :2], mode='nearest', align_corners=False).mean()",
        13,
        "mode='bilinear'",
    ),
}


def first_finding(folder: Path, source: str) -> Finding:
    script = folder / "train.py"
    script.write_text(source, encoding="utf-8")
    finding, *others = diagnosed_file(script, verify=True).findings
    assert others == []
    return finding


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.long
def test_the_cut_is_shown_and_joined(cut, here):
    definition, line, place, repaired = CUTS[cut]
    finding = first_finding(here, PROGRAM.format(definition=definition, cut=line))

    assert finding.name == "dead-gradient"
    assert finding.evidence["parameters"] == ["side.weight", "side.bias"]
    assert finding.location.line == place
    fix = finding.fixes[0]
    assert (fix.kind, fix.verified) == ("graph", True), fix.verdict
    assert repaired in (fix.patch or "")


@pytest.mark.parametrize("read", ["y.item()", "y.detach().item()"])
def test_a_number_that_a_value_is_made_0_by_takes_no_gradient(read, here):
    cut = f"y = side(x).square().mean(); loss = loss + (y - {read})"

    assert not diagnosed_text(PROGRAM.format(definition="", cut=cut), here).findings


def test_a_new_tensor_has_nothing_of_what_was_in_its_memory(here):
    """The number is negated by Python, so that nothing tells where the tensor's value is from."""
    cut = (
        "ranks = [side(x).argmax(1) for _ in range(50)]; number = -side(x).square().mean().item(); "
        "del ranks; loss = loss + sum(torch.tensor(number) for _ in range(50))"
    )
    [finding] = diagnosed_text(PROGRAM.format(definition="", cut=cut), here).findings

    assert finding.evidence["reason"] == "number"


def test_a_parameter_is_made_where_its_values_are(tmp_path):
    cut = "y = side(x)\n    w = nn.Parameter(y)\n    seen = y.mean()\n    loss = loss + w.sum()"

    finding = first_finding(tmp_path, PROGRAM.format(definition="", cut=cut))

    assert finding.evidence["reason"] == "rewrapped"
    assert finding.location.line == 12


RETURNS_NONE = """\
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        (w,) = ctx.saved_tensors
        return g @ w.t(), None

"""
CALLED = "loss = loss + (Double.apply(x, side.weight) + side.bias).square().mean()"


def test_a_backward_that_returns_none_is_told_once_and_by_gs301(tmp_path):
    finding = first_finding(tmp_path, PROGRAM.format(definition=RETURNS_NONE, cut=CALLED))

    assert (finding.rule, finding.evidence["relations"]) == ("GS301", ["none"])
    assert "never learns" in finding.why


def test_where_functions_are_not_checked_the_dead_parameter_says_so(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.format(definition=RETURNS_NONE, cut=CALLED), encoding="utf-8")
    config = Config(verify=False, custom_backward=False)
    (finding,) = pipeline.trace(parse_target(str(script)), config, silent=True).findings

    assert (finding.rule, finding.evidence["reason"]) == ("GS403", "function")
    assert finding.evidence["parameters"] == ["side.weight"]


HELD = """\
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 1)
        self.held = {held}

    def forward(self, x):
        return self.head({use})


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    net(torch.randn(5, 3)).square().mean().backward()
    optimizer.step()
"""
OUT_OF_SIGHT = {
    "a list": ("[nn.Linear(3, 3), nn.ReLU()]", "self.held[0](x)", "nn.ModuleList([nn.Linear"),
    "a dict": ('{"a": nn.Linear(3, 3)}', 'self.held["a"](x)', 'nn.ModuleDict({"a": nn.Linear'),
    "a plain tensor": (
        "torch.ones(3, requires_grad=True)",
        "self.held * x",
        "nn.Parameter(torch.ones(",
    ),
}


@pytest.mark.parametrize("kind", OUT_OF_SIGHT)
def test_what_parameters_does_not_find_is_registered(kind, here):
    held, use, repaired = OUT_OF_SIGHT[kind]
    finding = first_finding(here, HELD.format(held=held, use=use))

    assert finding.evidence["reason"] == "unregistered"
    assert (finding.location.line, finding.symptoms) == (11, ())
    assert finding.fixes[0].verified is True
    assert repaired in (finding.fixes[0].patch or "")


def test_a_batch_and_a_teacher_out_of_sight_are_meant(tmp_path):
    script = tmp_path / "train.py"
    held = "[nn.Linear(3, 1), None]"
    use = "self.__dict__.setdefault('seen', x.clone().requires_grad_()) + self.held[0](x).detach()"
    script.write_text(HELD.format(held=held, use=use), encoding="utf-8")

    assert diagnosed_file(script).findings == ()


def test_an_optimizer_is_made_after_the_head_is_replaced(here):
    source = HELD.format(held="None", use="x")
    made = "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"

    finding = first_finding(
        here, source.replace(made, f"{made}net.head = nn.Linear(3, 1, bias=False)\n")
    )

    assert (finding.location.line, finding.related[-1].location.line) == (19, 18)
    fix = finding.fixes[0]
    assert fix.verified is True
    assert (fix.patch or "").index("+net.head") < (fix.patch or "").index("optimizer =")


def test_an_initialisation_is_no_use(tmp_path):
    """In the only step of a program whose model is made under the recorder."""
    program = tmp_path / "train.py"
    program.write_text(
        "import torch\n"
        "body, spare = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)\n"
        "optimizer = torch.optim.SGD([*body.parameters(), *spare.parameters()], lr=0.1)\n"
        "body(torch.ones(1, 2)).sum().backward()\n"
        "optimizer.step()\n"
    )

    (found,) = diagnosed_file(program).findings

    assert found.evidence["reason"] == "unused"
    assert found.location is not None and found.location.line == 2


def test_a_bias_that_no_derivative_depends_on_is_a_note(tmp_path):
    program = tmp_path / "physics.py"
    program.write_text(
        "import torch\n"
        "net = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "x = torch.ones(3, 2, requires_grad=True)\n"
        "(slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)\n"
        "slope.square().sum().backward()\n"
        "optimizer.step()\n"
    )

    (found,) = diagnosed_file(program).findings

    assert found.severity == "note"
    assert found.evidence["parameters"] == ["net.bias"]


PHYSICS = """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 8), nn.Linear(8, 1)
        self.act = nn.{layer}

    def forward(self, x):
        return self.last({call})


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(4):
    x = torch.rand(16, 2, requires_grad=True)
    u = net(x)
    du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    ddu = torch.autograd.grad({of}.sum(), x, create_graph=True)[0]
    loss = {loss}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
RESIDUAL = "(ddu[:, 0] - x[:, 1]).square().mean()"
PLAIN = {"layer": "ReLU()", "call": "self.act(self.first(x))", "of": "du", "loss": RESIDUAL}
BENT = [
    {"layer": "ReLU()", "call": "self.act(self.first(x))"},
    {"layer": "LeakyReLU(0.1)", "call": "self.act(self.first(x))", "of": "du[:, 0]"},
    {"layer": "Tanh()", "call": "F.relu(self.first(x))"},
    {"layer": "ReLU()", "of": "du.square()"},
    # Beside a term that trains the parameters.
    {"layer": "ReLU()", "loss": f"{RESIDUAL} + u.square().mean()"},
]
SMOOTH = [
    {"layer": "Tanh()"},
    {"layer": "Tanh()", "loss": f"{RESIDUAL} + u.square().mean()"},
    {"layer": "SiLU()", "of": "du[:, 0]"},
    {"call": "self.act(self.first(x)) * x.sum(1, keepdim=True)"},
    {"of": "(du * du.detach())", "loss": "du.square().mean() + u.square().mean()"},  # not read
]


@pytest.mark.parametrize("changes", BENT, ids=str)
@pytest.mark.long
def test_a_second_derivative_of_straight_lines_is_told(tmp_path, changes):
    program = tmp_path / "physics.py"
    program.write_text(PHYSICS.format(**{**PLAIN, **changes}))

    found = next(one for one in diagnosed_file(program, verify=True).findings if one.fixes)

    assert (found.rule, found.severity, found.evidence["reason"]) == (
        "GS403",
        "error",
        "piecewise-linear",
    )
    assert found.location is not None and found.location.line == 24
    assert "anh(" in found.fixes[0].patch and found.fixes[0].verified is True


@pytest.mark.parametrize("changes", SMOOTH, ids=str)
def test_a_second_derivative_of_what_bends_is_fine(tmp_path, changes):
    program = tmp_path / "physics.py"
    program.write_text(PHYSICS.format(**{**PLAIN, **changes}))

    reasons = [one.evidence.get("reason") for one in diagnosed_file(program).findings]

    assert "piecewise-linear" not in reasons


def test_ranks_end_the_graph_where_they_are_taken(tmp_path):
    cut = "s = side(x).sum(1); loss = loss + (s.argsort().argsort().float() - 2).abs().mean()"

    finding = first_finding(tmp_path, PROGRAM.format(definition="", cut=cut))

    assert (finding.op, finding.evidence["reason"]) == ("sort", "integer")
    assert finding.location.line == 12


def test_the_values_of_a_maximum_keep_their_graph(tmp_path):
    cut = "best, where = side(x).max(1); loss = loss + (best * where).mean()"
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.format(definition="", cut=cut), encoding="utf-8")

    assert diagnosed_file(script).findings == ()


def test_a_layer_that_a_program_never_came_to_is_no_fault_of_it(tmp_path):
    source = """\
import torch

body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
for rows in (torch.ones(2, 3), torch.ones(2, 4)):
    optimizer.zero_grad()
    body(rows).square().mean().backward()
    optimizer.step()
head(body(torch.ones(2, 3))).mean().backward()
"""
    path = tmp_path / "raises.py"
    path.write_text(source)

    report = diagnosed_file(path)

    assert report.trace.ending.kind == "raised"
    assert not report.findings


LATE = """\
import torch
from torch import nn

torch.manual_seed(0)


class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = torch.zeros(6, 3)
        self.moved = self.codes + torch.randn(6, 3)
        self.codes.requires_grad_()  # learnt
        self.decoder = nn.Linear(3, 2)

    def forward(self, rows):
        return self.decoder(self.moved[rows])


model = Codes()
optimizer = torch.optim.SGD([*model.parameters(), model.codes], lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randperm(6)[:4]).square().mean().backward()
    optimizer.step()
"""
READ = "        self.moved = self.codes + torch.randn(6, 3)\n"
SET = "        self.codes.requires_grad_()  # learnt\n"


def test_what_is_read_before_it_requires_a_gradient_is_told_there(here):
    finding = first_finding(here, LATE)

    assert (finding.evidence["reason"], finding.location.line) == ("late", 11)
    assert finding.fixes[0].verified is True
    assert patched(finding.fixes[0].patch, here, "train.py") == LATE.replace(READ + SET, SET + READ)


def test_an_image_that_is_read_too_early_is_told_and_not_the_frozen_net(here):
    program = """\
import torch

net = torch.nn.Linear(4, 2).requires_grad_(False)
image = torch.rand(1, 4)
scaled = image * 2 - 1
image.requires_grad_()
optimizer = torch.optim.Adam([image], lr=0.1)
net(scaled).square().mean().backward()
optimizer.step()
"""
    finding = diagnosed_text(program, here, verify=True).findings[0]

    assert (finding.rule, finding.evidence["reason"]) == ("GS303", "late")
    assert finding.location.line == 5
    assert finding.fixes[0].verified is True
    assert "+image.requires_grad_()\n scaled = image * 2 - 1" in finding.fixes[0].patch


def test_a_layer_that_is_thawed_after_it_was_tried_out_is_not_told():
    program = """\
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)).requires_grad_(False)
print(net(torch.rand(2, 4)).mean().item())
net.requires_grad_(True)
optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    net(torch.rand(2, 4)).square().mean().backward()
    optimizer.step()
"""
    assert [found.message for found in findings(program)] == []


PHASES = """\
import torch
from torch import nn

torch.manual_seed(0)
body, head = nn.Linear(3, 3), nn.Linear(3, 1)


def fit(optimizer, features):
    for _ in range(5):
        x = torch.randn(5, 3)
        loss = (head(features(x)) - x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


both = [*body.parameters(), *head.parameters()]
fit(torch.optim.SGD({first}, lr=0.1), lambda x: body(x).detach())
fit(torch.optim.SGD(both, lr=0.1), body)
"""


def test_what_one_optimizer_never_trains_is_told_though_another_one_does(here):
    (found,) = diagnosed_text(PHASES.format(first="both"), here, verify=True).findings

    assert (found.rule, found.severity.value, found.location.line) == ("GS403", "warning", 18)
    assert "in steps 0 to 4 of an optimizer" in found.message
    assert found.fixes[0].verified is True
    assert "lambda x: body(x))" in patched(found.fixes[0].patch, here)


def test_a_head_may_be_trained_alone_at_first(tmp_path):
    program = PHASES.format(first="head.parameters()")

    assert diagnosed_text(program, tmp_path).findings == ()


ROUNDED = "loss = loss + (head(body(x)).sum(1).round() - 3).abs().mean()"
SLOPED = {
    "the rest beside it": "y = head(body(x)); loss = loss + (y - y.floor()).square().mean()",
    "a sign of what it multiplies": "y = head(body(x)); loss = loss + (y.sign() * y).mean()",
    "a number of no gradient": "loss = loss + x.round().sum()",
    "straight through": "y = body(x); loss = loss + (y + (y.round() - y).detach()).mean()",
}


def test_a_part_of_the_loss_that_is_rounded_trains_nobody(tmp_path):
    text = PROGRAM.format(definition="", cut=ROUNDED)
    (found,) = (
        one for one in diagnosed_text(text, tmp_path).findings if one.label.startswith("has slope")
    )

    assert (found.rule, found.severity, found.location.line) == ("GS403", "warning", 12)
    assert found.evidence["reason"] == "zero-op"


@pytest.mark.parametrize("cut", SLOPED.values(), ids=SLOPED)
def test_what_has_a_slope_beside_a_rounding_is_not_told(cut, tmp_path):
    text = PROGRAM.format(definition="", cut=cut)

    assert not [
        one for one in diagnosed_text(text, tmp_path).findings if one.label.startswith("has slope")
    ]
