"""GS303: what is no leaf, or was taken for none, and what else torch refuses by its kind."""

import pytest
from corpus import diagnosed_text

LOOP = """\
for step in range(4):
    x = torch.randn(16, 4)
    loss = ({}).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
HEAD = "import torch\nfrom torch import nn\n\ntorch.manual_seed(0)\n"
LINEAR = "net = nn.Linear(4, 4)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
FITTED = "optimizer = torch.optim.Adam([codes], lr=0.1)\n" + LOOP.format("x - codes")
STACK = """\
class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 4) for _ in range(2)]

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


net = Stack()
optimizer = torch.optim.Adam(net.parameters())
"""
POWER = """\
class Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x, n)
        return x**n

    @staticmethod
    def backward(ctx, grad):
        x, n = ctx.saved_tensors
        return grad * n * x ** (n - 1), None


"""
KEEPER = """\
import copy


class Keeper(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        self.features = torch.tanh(self.body(x))
        return self.head(self.features)


net = Keeper()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""
TRAINED = LOOP.format("net(x) - x")

# Each with the reason that the evidence names, the line, and lines of the patch.
PROGRAMS = {
    "layers in a list": (STACK + TRAINED, "nothing", 8, ["+        self.layers = nn.ModuleList("]),
    "an iterator at its end": (
        "net = nn.Linear(4, 4)\nparams = net.parameters()\nsize = sum(p.numel() for p in params)\n"
        "optimizer = torch.optim.SGD(params, lr=0.1)\n" + TRAINED,
        "nothing",
        8,
        ["+params = list(net.parameters())"],
    ),
    "a scaled start": (
        "codes = torch.randn(4, requires_grad=True) * 0.1\n" + FITTED,
        "computed",
        5,
        ["+codes = (torch.randn(4, requires_grad=True) * 0.1).detach().requires_grad_()"],
    ),
    "a layer in two groups": (
        "net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))\n"
        "optimizer = torch.optim.SGD(\n"
        '    [{"params": net.parameters()}, {"params": net[1].parameters(), "lr": 0.5}],\n'
        "    lr=0.1,\n)\n" + TRAINED,
        "given-twice",
        6,
        ['+    [{"params": [p for p in net.parameters() if all(p is not one for one in net[1]'],
    ),
    "features that a module keeps": (
        KEEPER + LOOP.format("net(x) - x") + "    best = copy.deepcopy(net)\n",
        "copied-with-graph",
        14,
        [
            "+        features = torch.tanh(self.body(x))",
            "+        self.features = features.detach()",
            "+        return self.head(features)",
        ],
    ),
    "a range": (
        "codes = torch.arange(4, requires_grad=True)\n" + FITTED,
        "whole-numbers",
        5,
        ["+codes = torch.arange(4, requires_grad=True, dtype=torch.float32)"],
    ),
    "a parameter of whole numbers": (
        "codes = nn.Parameter(torch.tensor([1, 2, 3, 4]))\n" + FITTED,
        "whole-numbers",
        5,
        ["+codes = nn.Parameter(torch.tensor([1, 2, 3, 4], dtype=torch.float32))"],
    ),
    "counts that are to be learnt": (
        "counts = torch.tensor([1, 2, 3, 4])\ncodes = counts.requires_grad_()\n" + FITTED,
        "whole-numbers",
        6,
        ["+codes = counts.float().requires_grad_()"],
    ),
    "a flag of whole numbers": (
        "codes = torch.tensor([1, 2, 3, 4])\ncodes.requires_grad = True\n" + FITTED,
        "whole-numbers",
        6,
        ["+codes = codes.float()"],
    ),
    "numpy": (
        LINEAR + TRAINED + "    kept = net(x).mean(0).numpy()\n",
        "array",
        13,
        ["+    kept = net(x).mean(0).detach().numpy()"],
    ),
    "a function of NumPy": (
        "import numpy as np\n" + LINEAR + TRAINED + "    kept = np.asarray(loss)\n",
        "array",
        14,
        ["+    kept = np.asarray(loss.detach())"],
    ),
    "a flag of what is computed": (
        LINEAR
        + LOOP.replace(
            "    loss", "    z = net(x)\n    z.requires_grad = False\n    loss", 1
        ).format("net(z) - x"),
        "switched-off",
        10,
        ["+    z = z.detach()"],
    ),
    "an assigned parameter": (
        LINEAR + TRAINED + "    net.weight = net.weight / net.weight.norm()\n",
        "parameter-replaced",
        13,
        ["+    with torch.no_grad():", "+        net.weight.copy_(net.weight / net.weight.norm())"],
    ),
    "a complex loss": (
        LINEAR + LOOP.format("torch.fft.rfft(net(x) - x)"),
        "complex",
        9,
        ["+    loss = (torch.fft.rfft(net(x) - x).abs() ** 2).mean()"],
    ),
    "a saved number": (
        POWER + LINEAR + LOOP.format("Power.apply(net(x), 2)"),
        "saved-no-tensor",
        8,
        ["+        ctx.n = n", "+        (x,) = ctx.saved_tensors", "+        n = ctx.n"],
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_torch_refuses_is_told_where_it_is_made(program, tmp_path):
    text, reason, line, written = PROGRAMS[program]
    (found,) = diagnosed_text(HEAD + text, tmp_path).findings

    assert (found.rule, found.evidence["reason"]) == ("GS303", reason)
    assert found.location.line == line
    patch = found.fixes[0].patch
    assert patch is not None
    for one in written:
        assert f"\n{one}" in patch


def test_no_parameters_for_no_reason_that_is_known_is_told_without_a_patch(tmp_path):
    (found,) = diagnosed_text(HEAD + "torch.optim.SGD([], lr=0.1)\n", tmp_path).findings

    assert (found.rule, found.location.line, found.fixes) == ("GS303", 5, ())
