"""What is made in one file of a program and breaks in another: the patch edits both."""

import re

import pytest
from corpus import diagnosed_file

from gradscope.repair.write import linked

MODEL = """\
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 1)

    def forward(self, x):
        return torch.sigmoid(self.head(x))
"""
LOSS = """\
import torch


class Loss(torch.nn.Module):
    def forward(self, pred, target):
        first = target * torch.log(pred)
        return -(first + (1 - target) * torch.log(1 - pred)).mean()
"""
MAIN = """\
import torch
from net import Net
from loss import Loss

net = Net()
criterion = Loss()
net.head.weight.data[:] = 400.0
out = net(torch.ones(3, 2))
print((out > 0.5).sum())
criterion(out, torch.tensor([[1.0], [0.0], [1.0]])).backward()
"""
DENSITY = """\
import math
import torch


def density(y, mu):
    return torch.exp(-0.5 * (y - mu) ** 2) / math.sqrt(2 * math.pi)
"""
FIT = """\
import torch
from model.density import density

mu = torch.nn.Parameter(torch.zeros(3))
y = torch.tensor([[0.1], [60.0]])
prob = (density(y, mu) * 0.5).sum(1)
(-torch.log(prob).mean()).backward()
"""
EVALUATE = "from net import Net\nprint(Net()(None) > 0.5)\n"


@pytest.fixture
def program(tmp_path):
    def written(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return diagnosed_file(tmp_path / "main.py", verify=True).findings[0].fixes

    return written


def added(fix) -> set[str]:
    return set(re.findall(r"(?m)^\+(?!\+\+) *(.*)", fix.patch or ""))


# The name of a class where nothing is made of it.
NAMED = """\
def check(net: Net) -> Net:
    assert isinstance(net, Net)
    return net


net = Net()"""


@pytest.mark.parametrize("parent", ["super()", "super(Net, self)"])
@pytest.mark.parametrize("begin", ["net = Net()", NAMED])
@pytest.mark.long
def test_a_model_gives_logits_where_the_loss_of_another_file_takes_logarithms(
    parent, begin, program
):
    net, main = MODEL.replace("super()", parent), MAIN.replace("net = Net()", begin)
    fixes = program({"net.py": net, "loss.py": LOSS, "main.py": main})

    assert fixes[0].verified
    assert added(fixes[0]) == {
        "return self.head(x)",
        "first = target * torch.nn.functional.logsigmoid(pred)",
        "return -(first + (1 - target) * torch.nn.functional.logsigmoid(-pred)).mean()",
        "print((torch.sigmoid(out) > 0.5).sum())",
    }


@pytest.mark.long
def test_an_environment_in_the_folder_is_no_part_of_the_program(program, monkeypatch):
    monkeypatch.setattr(linked, "MOST_FOUND", 5)
    environment = {f"env/package/{number}.py": "" for number in range(6)}
    environment |= {".hidden/one.py": "", "env/pyvenv.cfg": "", "env/of_the_program.py": EVALUATE}
    fixes = program(environment | {"net.py": MODEL, "loss.py": LOSS, "main.py": MAIN})

    assert fixes[0].verified and "return self.head(x)" in added(fixes[0])


@pytest.mark.long
def test_a_layer_that_a_function_of_another_file_builds_is_dropped(program):
    net = (
        "import torch.nn as nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.Linear(2, 1), nn.Sigmoid())\n"
    )
    main = MAIN.replace("import Net", "import build").replace("Net()", "build()")
    main = main.replace("net.head.", "net[0].")

    fixes = program({"net.py": net, "loss.py": LOSS, "main.py": main})

    assert fixes[0].verified
    assert added(fixes[0]) >= {
        "return nn.Sequential(nn.Linear(2, 1))",
        "first = target * torch.nn.functional.logsigmoid(pred)",
    }


def test_another_program_that_reads_the_probabilities_keeps_them(program):
    fixes = program({"net.py": MODEL, "loss.py": LOSS, "main.py": MAIN, "evaluate.py": EVALUATE})

    assert not any("return self.head(x)" in added(fix) for fix in fixes)


@pytest.mark.long
def test_a_softmax_of_a_package_becomes_one_of_logarithms(program):
    net = MODEL.replace("torch.sigmoid(self.head(x))", "torch.softmax(self.head(x), 1)")
    main = (
        "import torch\n"
        "from agent.net import Net\n"
        "from agent.loss import loss\n"
        "net = Net()\n"
        "net.head.weight.data[:] = torch.tensor([[400.0], [-400.0]])\n"
        "loss(net(torch.ones(3, 1)), torch.tensor([1, 0, 1])).backward()\n"
    )
    loss = "def loss(p, a):\n    return -p[range(3), a].log().mean()\n"

    fixes = program(
        {
            "agent/__init__.py": "",
            "agent/net.py": net.replace("Linear(2, 1)", "Linear(1, 2)"),
            "agent/loss.py": loss,
            "main.py": main,
        }
    )

    assert fixes[0].verified
    assert added(fixes[0]) == {
        "return torch.log_softmax(self.head(x), 1)",
        "return -p[range(3), a].mean()",
    }


@pytest.mark.long
def test_a_density_of_another_file_is_given_as_its_logarithm(program):
    fixes = program({"model/density.py": DENSITY, "model/__init__.py": "", "main.py": FIT})

    assert fixes[0].verified
    assert {line.partition(" = ")[0] for line in added(fixes[0])} >= {"prob"}
    assert any("return -0.5 * (y - mu) ** 2" in line for line in added(fixes[0]))


def test_what_makes_a_number_positive_is_spelled_as_its_own_file_names_torch(program):
    encoder = (
        "import torch\nfrom torch import nn\n\nhead = nn.Linear(2, 3)\n\n\n"
        "def spread(x):\n    return torch.relu(head(x))\n"
    )
    kl = (
        "import torch\nimport torch.nn.functional as F\n\n\n"
        "def kl(sigma, x):\n"
        "    return (0.5 * sigma**2 - torch.log(sigma)).mean() + F.mse_loss(x, x)\n"
    )
    main = (
        "import torch\nfrom encoder import head, spread\nfrom losses import kl\n\n"
        "head.weight.data[0] = -1.0\nhead.bias.data.zero_()\n"
        "x = torch.ones(4, 2)\nkl(spread(x), x).backward()\n"
    )

    fixes = program({"encoder.py": encoder, "losses.py": kl, "main.py": main})

    assert fixes[0].verified
    assert added(fixes[0]) == {"return nn.functional.softplus(head(x))"}


def test_faults_of_two_files_are_repaired_together(program):
    pooling = "def pooled(values, kept):\n    return (values * kept).sum(1) / kept.sum(1)\n"
    main = (
        "import torch\n"
        "from pooling import pooled\n"
        "w = torch.ones(2, requires_grad=True)\n"
        "h = torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]]) * w\n"
        "h = h / h.norm(dim=-1, keepdim=True)\n"
        "kept = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])\n"
        "(pooled(h, kept) - 1).square().sum().backward()\n"
    )

    fixes = program({"pooling.py": pooling, "main.py": main})

    assert fixes[0].verified
    assert {edit.file.rpartition("/")[2] for edit in fixes[0].edits} == {"main.py", "pooling.py"}
