"""GS418: tensors that `functional_call` is given by names that the module does not have."""

import pytest
from corpus import diagnosed_text, patched

PROGRAM = """from collections import OrderedDict

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils import stateless

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x))


class Learner:
    def __init__(self, net):
        self.net, self.fast = net, None

    def names(self):
        return dict(self.net.head.named_parameters())

    def adapted(self, x, y):
        {made}
        for _ in range(2):
            loss = ({call} - y).square().mean()
            grads = torch.autograd.grad(loss, list(fast.values()){unused})
            fast = {n: p - 0.1 * (0 if g is None else g)
                    for (n, p), g in zip(fast.items(), grads)}
        return {call}


net = Net()
learner = Learner(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    x = torch.randn(8, 4)
    y = x.sum(1, keepdim=True)
    loss = (learner.adapted(x, y) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
CALL = "functional_call(self.net, fast, (x,))"
ASKED = "self.net.head.named_parameters("
MADE = {  # how the names are made, and how many lines below the first
    "comprehension": ("fast = {n: p for n, p in " + ASKED + ")}", 0),
    "dict": ("fast = dict(" + ASKED + "))", 0),
    "pairs": ("fast = OrderedDict((n, p.clone()) for n, p in " + ASKED + "))", 0),
    "through a name": (
        "own = dict(" + ASKED + "))\n        fast = {n: p.clone() for n, p in own.items()}",
        0,
    ),
    "through a module": (
        "head = self.net.head\n        fast = dict(head.named_parameters())",
        1,
    ),
    "one by one": ("fast = {}\n        for n, p in " + ASKED + "):\n            fast[n] = p", 1),
    "listed": (
        "names = [n for n, _ in " + ASKED + ")]\n"
        "        fast = dict(zip(names, self.net.head.parameters()))",
        0,
    ),
    "in a list of pairs": ("fast = dict([*" + ASKED + ")])", 0),
    "an attribute": ("self.fast = dict(" + ASKED + "))\n        fast = self.fast", 0),
}
LINE = 29  # of what is made


def text(made, call=CALL, unused=""):
    found = PROGRAM.replace("{made}", made).replace("{call}", call)
    return found.replace("{unused}", unused)


def told(program, folder, **options):
    found = diagnosed_text(program, folder, **options).findings
    return [one for one in found if one.severity != "note"]


@pytest.mark.parametrize("case", MADE)
@pytest.mark.long
def test_the_names_are_told_and_get_their_prefix(case, here):
    made, below = MADE[case]

    (found,) = told(text(made), here, verify=True)

    assert (found.rule, found.severity, found.location.line) == ("GS418", "error", LINE + below)
    assert found.fixes[0].verified is True
    assert 'named_parameters(prefix="head")' in patched(found.fixes[0].patch, here)


OTHERWISE = {  # the line that is told, and what the patch writes
    "a state": (
        "fast = {n: p for n, p in self.net.head.state_dict(keep_vars=True).items()}",
        LINE,
        'state_dict(keep_vars=True, prefix="head.")',
    ),
    "written": (
        'fast = {"weight": self.net.head.weight, "bias": self.net.head.bias}',
        LINE,
        '{"head.weight": self.net.head.weight, "head.bias": self.net.head.bias}',
    ),
    "by a method": ("fast = self.names()", 26, 'named_parameters(prefix="head")'),
    "deeper": (
        "fast = dict(self.net.body[0].named_parameters())",
        LINE,
        'named_parameters(prefix="body.0")',
    ),
    "some of them": (
        'fast = {**dict(self.net.body.named_parameters(prefix="body")),\n                **dict('
        + ASKED
        + "))}",
        LINE + 1,
        'self.net.head.named_parameters(prefix="head")',
    ),
}


@pytest.mark.parametrize("case", OTHERWISE)
@pytest.mark.long
def test_other_names_get_it_where_they_are_made(case, here):
    made, line, repaired = OTHERWISE[case]

    (found,) = told(text(made), here, verify=True)

    assert (found.rule, found.location.line, found.fixes[0].verified) == ("GS418", line, True)
    assert repaired in patched(found.fixes[0].patch, here)


CALLS = {
    "the older one": "stateless.functional_call(self.net, fast, (x,))",
    "several dicts": "functional_call(self.net, (fast, dict(self.net.named_buffers())), (x,))",
    "by keywords": "torch.func.functional_call(module=self.net, parameter_and_buffer_dicts=fast,"
    " args=(x,))",
    "each sample": "vmap(lambda one: functional_call(self.net.eval(), fast, (one[None],))[0])(x)",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.long
def test_each_way_to_call_is_told(call, here):
    (found,) = told(text(MADE["dict"][0], call), here, verify=True)

    assert (found.rule, found.location.line, found.fixes[0].verified) == ("GS418", LINE, True)


@pytest.mark.long
def test_what_has_no_effect_and_raises_nothing_is_told(here):
    (found,) = told(text(MADE["dict"][0], unused=", allow_unused=True"), here, verify=True)

    assert (found.rule, found.location.line, found.fixes[0].verified) == ("GS418", LINE, True)
    assert [one.location.line for one in found.related] == [31, 35]


def test_the_names_of_an_argument_are_looked_for_in_its_caller(tmp_path):
    program = """import torch
from torch import nn
from torch.func import functional_call, grad

net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def loss_of(params, x):
    return functional_call(net, params, (x,)).square().mean()


fast = dict(net[2].named_parameters())
for step in range(3):
    grads = grad(loss_of)(fast, torch.randn(8, 4))
    fast = {n: p - 0.1 * grads[n] for n, p in fast.items()}
    net(torch.randn(8, 4)).square().mean().backward()
"""
    found = [one for one in told(program, tmp_path) if one.rule == "GS418"]

    assert [one.location.line for one in found] == [12]
    assert found[0].evidence["prefix"] == "2"


TWINS = """import torch
from torch import nn
from torch.func import functional_call

net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
x = torch.randn(8, 4)
given = {name: p.clone() for name, p in {}.named_parameters()}
functional_call(net, given, x).square().mean().backward()
"""


@pytest.mark.parametrize(
    ("asked", "prefix"), [("net[2]", "2"), ("net._modules['0']", "0"), ("last", "2")]
)
def test_of_two_alike_the_names_are_those_of_the_one_that_is_asked(asked, prefix, tmp_path):
    program = TWINS.replace("{}", asked).replace("x = ", "last = net[2]\nx = ")
    if asked != "last":  # nothing but the tensors tells
        program = program.replace("p.clone()", "p")

    found = [one for one in told(program, tmp_path) if one.rule == "GS418"]

    assert [one.evidence["prefix"] for one in found] == [prefix]


def test_names_of_nothing_are_told_at_the_call(tmp_path):
    made = 'fast = dict([("head.scale", torch.ones(8, requires_grad=True))])'

    found = told(text(made, unused=", allow_unused=True"), tmp_path)

    assert [(one.rule, one.location.line) for one in found] == [("GS418", 31), ("GS418", 35)]
    assert not any(one.fixes[0].request for one in found)


OWN = "dict(self.net.named_parameters())"
RIGHT = {
    "all of them": f"fast = {OWN}",
    "a part of them": "fast = dict(" + ASKED + 'prefix="head"))',
    "a part of them, by their start": "fast = {n: p for n, p in self.net.named_parameters()"
    ' if n.startswith("head.")}',
    "more than all of them": "fast = {**" + OWN + ', "scale": torch.ones(1, requires_grad=True)}',
}


@pytest.mark.parametrize("made", RIGHT.values(), ids=RIGHT)
def test_names_of_its_own_are_not_told(made, tmp_path):
    assert not told(text(made, unused=", allow_unused=True"), tmp_path)


MODULE = """import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 4, bias=False)
        {more}

    def forward(self, x):
        x = self.norm(self.body(x))
        {read}
        return self.head(x)

    {also}


net = Net()
value = torch.ones(4, requires_grad=True)
for step in range(3):
    x = torch.randn(8, 4)
    {call}.square().mean().backward()
"""
MEANT = {  # more of the class, what its forward does, another method, and the call
    "buffers": ("", "", "", "{**dict(net.named_buffers()), 'body.bias': value}"),
    "a bias of a layer without": ("", "", "", "{'head.bias': value}"),
    "tied weights": (
        "self.head.weight = self.body.weight",
        "",
        "",
        "{n: p for n, p in net.named_parameters()}",
    ),
    "a plain tensor": ("self.scale = torch.ones(4)", "x = x * self.scale", "", "{'scale': value}"),
    "read while it is there": (
        "",
        "x = x + self.shift if hasattr(self, 'shift') else x",
        "",
        "{'shift': value}",
    ),
    "read by a hook": (
        "self.head.register_forward_hook(lambda one, x, y: y + vars(one).get('shift', 0))",
        "",
        "",
        "{'head.shift': value}",
    ),
    "asked for by its name": ("", "x = x + getattr(self, 'shift', 0)", "", "{'shift': value}"),
    "read of a part": (
        "",
        "x = x + self.head.shift if vars(self.head).get('shift') is not None else x",
        "",
        "{'head.shift': value}",
    ),
    "a parametrized weight": (
        "nn.utils.parametrizations.weight_norm(self.head)",
        "",
        "",
        "{'head.weight': value.expand(4, 4)}",
    ),
    "names that a class answers": (
        "",
        "",
        "def __getattr__(self, name):\n"
        "        return super().__getattr__('body').bias if name == 'offset' else"
        " super().__getattr__(name)",
        "{'offset': value}",
    ),
}
ENSEMBLE = """vmap(lambda *own: functional_call(nets[0], own, (x,)))(*stack_module_state(nets))"""


@pytest.mark.parametrize("case", MEANT)
def test_what_is_meant_is_not_told(case, tmp_path):
    more, read, also, given = MEANT[case]
    program = MODULE.replace("{more}", more or "pass").replace("{read}", read or "pass")
    program = program.replace("{also}", also or "pass")
    program = program.replace("{call}", f"functional_call(net, {given}, (x,))")

    assert not [one for one in told(program, tmp_path) if one.rule == "GS418"]


def test_an_ensemble_is_not_told(tmp_path):
    program = MODULE.replace("{more}", "pass").replace("{read}", "pass").replace("{also}", "pass")
    program = program.replace("net = Net()", "nets = [Net().eval() for _ in range(3)]")

    found = told(program.replace("{call}", ENSEMBLE), tmp_path)

    assert not [one for one in found if one.rule == "GS418"]


def test_torch_sees_no_difference(tmp_path):
    program = """import inspect

import torch
from torch.func import functional_call
from torch.nn.utils import stateless

net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
for given in ({"0.weight": net[0].weight, "other": net[0].bias}, {"gone.weight": net[0].weight}):
    try:
        functional_call(net, given, (torch.ones(1, 2),), strict="other" in given)
    except (RuntimeError, AttributeError) as error:
        frames = error.__traceback__
        while frames.tb_next:
            frames = frames.tb_next
            assert "gradscope" not in frames.tb_frame.f_code.co_filename
    else:
        raise SystemExit(1)
given = dict(net.named_parameters())
assert list(inspect.signature(stateless._functional_call).parameters)[:2] == [
    "module", "parameters_and_buffers"
]
compiled = torch.compile(
    lambda x, given: functional_call(net, given, (x,)), backend="eager", fullgraph=True
)
compiled(torch.ones(3, 2), given).sum().backward()
"""
    assert not told(program, tmp_path)
