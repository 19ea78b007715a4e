"""GS402: a gradient that fades over the run while the loss rises, and those that fade for good."""

import pytest
import torch
from corpus import diagnosed_text, loud, patched

from gradscope.record import Observation

GAN = """\
import torch
from torch import nn

torch.manual_seed(0)
F = nn.functional
G = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
D = nn.Sequential(nn.Linear(16, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1){end})
opt_g = torch.optim.Adam(G.parameters(), lr=1e-4)
opt_d = torch.optim.Adam(D.parameters(), lr=5e-2)
bce = nn.{loss}()
ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)
for step in range(40):
    real = torch.randn(64, 16) + 4
    fake = G(torch.randn(64, 8))
    d_loss = bce(D(real), ones) + bce(D(fake.detach()), zeros)
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    {lines}
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
"""


def gan(lines: str, *, probability: bool = False) -> str:
    end, loss = (", nn.Sigmoid()", "BCELoss") if probability else ("", "BCEWithLogitsLoss")
    return GAN.format(lines=lines.replace("\n", "\n    "), end=end, loss=loss)


MORE = """    opt_d.step()
    for _ in range(2):
        opt_d.zero_grad()
        (bce(D(real), ones) + bce(D(fake.detach()), zeros)).backward()
        opt_d.step()
"""
# The lines of the generator's loss, what is flat in them, and the loss with the patch.
SATURATED = {
    "log of a sigmoid": (
        gan("g_loss = torch.log(1 - torch.sigmoid(D(fake))).mean()"),
        "torch.sigmoid(D(fake))",
        "g_loss = (-F.logsigmoid(D(fake))).mean()",
    ),
    "by names": (
        gan("p = torch.sigmoid(D(fake))\ng_loss = torch.log(1.0 - p + 1e-8).mean()"),
        "torch.sigmoid(D(fake))",
        "g_loss = (-F.logsigmoid(values)).mean()",
    ),
    "a discriminator that ends in a sigmoid": (
        gan("g_loss = torch.log(1 - D(fake) + 1e-8).mean()", probability=True),
        "D(fake)",
        "g_loss = (-torch.log(D(fake) + 1e-8)).mean()",
    ),
    "a label to move away from": (
        gan("g_loss = -bce(D(fake), zeros)"),
        "bce(D(fake), zeros)",
        "g_loss = bce(D(fake), 1 - zeros)",
    ),
    "after several steps of the discriminator": (
        gan("g_loss = torch.log(1 - torch.sigmoid(D(fake))).mean()").replace(
            "    opt_d.step()\n", MORE
        ),
        "torch.sigmoid(D(fake))",
        "g_loss = (-F.logsigmoid(D(fake))).mean()",
    ),
    "softplus": (
        gan("g_loss = -F.softplus(D(fake)).mean()"),
        "F.softplus(D(fake))",
        "g_loss = -(-F.softplus(-D(fake))).mean()",
    ),
}


ELSEWHERE = """def to_fool(p):
    return torch.log(1 - p + 1e-8).mean()


for step"""


def test_the_loss_is_mended_where_it_is_written(here):
    program = gan("g_loss = to_fool(D(fake))", probability=True).replace("for step", ELSEWHERE)

    (found,) = diagnosed_text(program, here, verify=True).findings

    assert found.fixes[0].verified is True
    text = patched(found.fixes[0].patch, here)
    assert "return (-torch.log(p + 1e-8)).mean()" in text


@pytest.mark.slow
@pytest.mark.parametrize("case", SATURATED)
def test_a_generator_that_has_lost_is_told_what_is_flat(case, here):
    program, flat, repaired = SATURATED[case]

    (found,) = diagnosed_text(program, here, verify=True).findings

    assert (found.rule, found.evidence["axis"]) == ("GS402", "run")
    place = found.location
    assert program.splitlines()[place.line - 1][place.col : place.end_col] == flat
    assert found.fixes[0].verified is True
    text = patched(found.fixes[0].patch, here)
    assert repaired in text
    assert loud(text) == []


HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)
F = nn.functional
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.{opt}
x = torch.randn(32, 8)
y = (x[:, :1] > 0).float()
"""
LOOP = (
    "for step in range({}):\n    loss = {}\n    opt.zero_grad()\n    loss.backward()\n"
    "    opt.step()\n"
)
SGD, ADAM = (HEAD.format(opt=f"{one}(net.parameters(), lr={{lr}})") for one in ("SGD", "Adam"))
HEALTHY = {
    "the usual loss of a generator": gan("g_loss = bce(D(fake), ones)"),
    "a critic": gan("g_loss = -D(fake).mean()"),
    "a problem that is solved": ADAM.format(lr=0.1)
    + LOOP.format(200, "F.binary_cross_entropy(torch.sigmoid(net(x)), y)"),
    "a fit that is exact": ADAM.format(lr=0.05) + LOOP.format(200, "(net(x) - y).square().mean()"),
    "noise that nothing explains": SGD.format(lr=0.1).replace("net = ", "net = nn.Linear(8, 1)  # ")
    + LOOP.format(200, "(net(x) - torch.linspace(0, 1, 32)[:, None]).square().mean()"),
    "margins that are kept": ADAM.format(lr=0.1)
    + LOOP.format(80, "F.softplus(20 * (1 - (2 * y - 1) * net(x))).mean() / 20"),
    "a rate that decays": SGD.format(lr=0.1)
    + "decay = torch.optim.lr_scheduler.ExponentialLR(opt, 0.8)\n"
    + LOOP.format(40, "F.binary_cross_entropy_with_logits(net(x), y)")
    + "    decay.step()\n",
    "a body that is frozen later": SGD.format(lr=0.1)
    + LOOP.format(40, "F.binary_cross_entropy_with_logits(net(x), y)")
    + "    net[0].requires_grad_(step < 10)\n",
    "a penalty that is phased out": SGD.format(lr=0.01)
    + LOOP.format(40, "0.7 ** step * torch.tanh(net(x)).square().mean()"),
    "what is flat from the start": "import torch\n\n"
    "w = torch.nn.Parameter(torch.ones(4))\nopt = torch.optim.SGD([w], lr=1e-4)\n"
    "for step in range(40):\n"
    "    loss = torch.sigmoid(400 * w).sum() + (w * 10.0 ** -step).sum()\n"
    "    opt.zero_grad()\n    loss.backward()\n    opt.step()\n",
    "rare words": "import torch\nfrom torch import nn\n\ntorch.manual_seed(0)\n"
    "words, last = nn.Embedding(50, 4, sparse=True), nn.Linear(4, 1)\n"
    "opt = torch.optim.SGD([*words.parameters(), *last.parameters()], lr=0.1)\n"
    "for step in range(40):\n    x = torch.randint(0, 50, (4,))\n"
    "    loss = (torch.sigmoid(last(words(x))) - 0.5).square().mean()\n"
    "    opt.zero_grad()\n    loss.backward()\n    opt.step()\n",
    "a policy that has made up its mind": "import torch\nfrom torch import nn\n\n"
    "torch.manual_seed(0)\nnet = nn.Linear(4, 2)\n"
    "opt = torch.optim.Adam(net.parameters(), lr=0.1)\nfor step in range(120):\n"
    "    x = torch.rand(64, 4)\n    choices = torch.distributions.Categorical(logits=net(x))\n"
    "    taken = choices.sample()\n    gain = (taken == 0).float()\n"
    "    loss = -(choices.log_prob(taken) * (gain - gain.mean())).mean()\n"
    "    opt.zero_grad()\n    loss.backward()\n    opt.step()\n",
}


@pytest.mark.parametrize("case", HEALTHY)
def test_a_gradient_that_may_fade_is_not_told(case):
    assert [found.message for found in loud(HEALTHY[case])] == []


def test_a_loss_that_is_learnt_is_not_looked_at_in_every_step():
    """Nothing in its graph has a curve: one look tells that no other will find one."""
    torch.manual_seed(0)
    layer, data = torch.nn.Linear(4, 1, bias=False), torch.randn(8, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.3)
    with Observation(full_from=None) as observation:
        for _ in range(200):
            optimizer.zero_grad()
            ((layer(data) - data @ torch.ones(4, 1)) ** 2).sum().div(8).backward()
            optimizer.step()
    assert len(observation.sizes.inspection.steps) < 30
