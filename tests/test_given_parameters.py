"""GS407 where an optimizer was given the wrong parameters, and the patch that gives it others."""

import pytest
from corpus import diagnosed_text, findings, loud, patched

NETS = """\
import copy

import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 8), nn.ReLU())
        self.head = nn.Linear(8, outputs)

    def forward(self, x):
        return self.head(self.body(x))


def made_for(net):
    decayed = [p for p in net.parameters() if p.dim() > 1]
    plain = [p for p in net.parameters() if p.dim() == 1]
    return torch.optim.Adam([{{"params": decayed}}, {{"params": plain, "lr": 1e-2}}], lr=1e-3)


{}
"""
GAN = NETS.format("""\
class Trainer:
    def __init__(self):
        self.G, self.D = Net(4, 2), Net(2, 1)
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=1e-3)
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=1e-3)

    def turn(self, real):
        fake = self.G(torch.randn(8, 4))
        self.opt_d.zero_grad()
        (self.D(fake.detach()).mean() - self.D(real).tanh().mean()).backward()
        self.opt_d.step()
        self.opt_g.zero_grad()
        self.D(fake).mean().neg().backward()
        self.opt_g.step()


trainer = Trainer()
for step in range(8):
    trainer.turn(torch.randn(8, 2) + 1)
""")
OF_D, OF_G = "opt_d = torch.optim.Adam(self.D", "opt_g = torch.optim.Adam(self.G"
BY_HELPER = GAN.replace("torch.optim.Adam(self.D.parameters(), lr=1e-3)", "made_for(self.D)")
BY_HELPER = BY_HELPER.replace("torch.optim.Adam(self.G.parameters(), lr=1e-3)", "made_for(self.G)")
TUNED = NETS.format("""\
net = Net(6, 3)
opt = torch.optim.SGD(net.head.parameters(), lr=0.1)
for step in range(8):
    with torch.no_grad():
        features = net.body(torch.randn(8, 6))
    opt.zero_grad()
    nn.functional.cross_entropy(net.head(features), torch.randint(0, 3, (8,))).backward()
    opt.step()
""")
BODY = TUNED.replace("SGD(net.head", "SGD(net.body")
COPIED = NETS.format("""\
class Client:
    def __init__(self, template):
        self.opt = torch.optim.SGD(template.parameters(), lr=0.1)  # of its own
        self.net = copy.deepcopy(template)

    def turn(self, x):
        self.opt.zero_grad()
        nn.functional.cross_entropy(self.net(x), torch.randint(0, 3, (8,))).backward()
        self.opt.step()


template = Net(6, 3)
clients = [Client(template) for _ in range(2)]
for step in range(8):
    for client in clients:
        client.turn(torch.randn(8, 6))
""")
COPY, OPT = "        self.net = copy.deepcopy(template)\n", "        self.opt = torch"
# The program, the line, and what is to be there in its place.
WRONG = {
    "a generator's, of the discriminator": (
        GAN.replace(OF_G, OF_G.replace(".G", ".D")),
        "self.opt_g = torch.optim.Adam(self.D",
        GAN,
    ),
    "a discriminator's, of the generator": (
        GAN.replace(OF_D, OF_D.replace(".D", ".G")),
        "self.opt_d = torch.optim.Adam(self.G",
        GAN,
    ),
    "one for the other": (
        GAN.replace(OF_D, OF_D.replace(".D", ".G")).replace(OF_G, OF_G.replace(".G", ".D")),
        "self.opt_d = torch.optim.Adam(self.G",
        GAN,
    ),
    "by a function for both": (
        BY_HELPER.replace("made_for(self.G)", "made_for(self.D)"),
        "return torch.optim.Adam([",
        BY_HELPER,
    ),
    "a template's, copied later": (
        COPIED,
        "self.opt = torch.optim.SGD(template",
        COPIED.replace(COPY, "").replace(OPT, COPY + OPT).replace("SGD(template", "SGD(self.net"),
    ),
    "the body, under no_grad": (BODY, "opt = torch.optim.SGD(net.body", TUNED),
    "the body, in a list": (
        BODY.replace("opt =", "held = list(net.body.parameters())\nopt =").replace(
            "SGD(net.body.parameters()", "SGD(held"
        ),
        "opt = torch.optim.SGD(held",
        TUNED.replace("opt =", "held = list(net.body.parameters())\nopt ="),
    ),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.long
def test_an_optimizer_is_given_what_its_passes_are_for(case, here):
    program, line, repaired = WRONG[case]

    found, *others = diagnosed_text(program, here, verify=True).findings

    assert others == []
    assert (found.rule, found.severity) == ("GS407", "error")
    assert line in program.splitlines()[found.location.line - 1]
    assert found.fixes[0].verified is True
    assert patched(found.fixes[0].patch, here) == repaired
    assert loud(repaired) == []


PARTS = NETS.format("""\
net, other, weight = Net(6, 4), Net(6, 4), nn.Parameter(torch.ones(2))
opt = torch.optim.Adam(GIVEN, lr=1e-3)
for step in range(8):
    x = torch.randn(8, 6)
    one, two = net(x).square().mean(), other(x).cos().mean()
    opt.zero_grad()
    (LOSS).backward()
    opt.step()
""")
BOTH, WEIGHED = "one + two", "weight.exp()[0] * one + weight.exp()[1] * two"
# What the optimizer is given, the loss, and what it is to be given.
LEFT_OUT = {
    "one of two networks": (
        "net.parameters()",
        BOTH,
        "[*net.parameters(), *other.parameters()]",
    ),
    "a weight of the losses": (
        "[*net.parameters(), *other.parameters()]",
        WEIGHED,
        "[*net.parameters(), *other.parameters(), weight]",
    ),
    "both, from a sum of lists": (
        "list(net.body.parameters()) + list(net.head.parameters())",
        WEIGHED,
        "[*(list(net.body.parameters()) + list(net.head.parameters())),"
        " *other.parameters(), weight]",
    ),
    "one of two networks, beside groups": (
        '[{"params": net.body.parameters(), "lr": 1e-2}, {"params": net.head.parameters()}]',
        BOTH,
        '[{"params": net.body.parameters(), "lr": 1e-2}, {"params": net.head.parameters()},'
        ' {"params": [*other.parameters()]}]',
    ),
}


@pytest.mark.parametrize("case", LEFT_OUT)
@pytest.mark.long
def test_what_is_left_out_is_given_to_the_optimizer_as_well(case, here):
    given, loss, wanted = LEFT_OUT[case]
    program = PARTS.replace("LOSS", loss)
    repaired = program.replace("GIVEN", wanted)

    (found,) = diagnosed_text(program.replace("GIVEN", given), here, verify=True).findings

    assert (found.rule, found.severity) == ("GS407", "note")
    assert found.fixes[0].verified is True
    assert patched(found.fixes[0].patch, here) == repaired
    assert findings(repaired) == []


def test_a_leaf_of_one_number_that_no_optimizer_holds_is_left_out_as_well(here):
    given, loss, wanted = LEFT_OUT["a weight of the losses"]
    leaf = PARTS.replace("nn.Parameter(torch.ones(2))", "torch.ones(2, requires_grad=True)")
    program = leaf.replace("LOSS", loss)

    (found,) = diagnosed_text(program.replace("GIVEN", given), here, verify=True).findings

    assert (found.rule, found.fixes[0].verified) == ("GS407", True)
    assert patched(found.fixes[0].patch, here) == program.replace("GIVEN", wanted)


@pytest.mark.parametrize(
    "point",
    ["torch.zeros(1, 6, requires_grad=True)", "torch.randn(8, 6).requires_grad_()"],
    ids=["whose gradient is asked for", "of data"],
)
def test_a_point_at_which_a_model_is_evaluated_has_nothing_to_learn(point):
    program = PARTS.replace("nn.Parameter(torch.ones(2))", point)
    program = program.replace("GIVEN", "[*net.parameters(), *other.parameters()]")
    slope = "torch.autograd.grad(net(weight).sum(), weight, create_graph=True)[0]"
    inner = f"{slope}.square().mean()" if "zeros" in point else "net(weight).square().mean()"

    assert findings(program.replace("LOSS", f"{BOTH} + {inner}")) == []


THAWED = NETS.format("""\
net = Net(6, 3)
net.body.requires_grad_(False)
opt = torch.optim.SGD(filter(lambda p: p.requires_grad, net.parameters()), lr=0.1)
for step in range(16):
    if step == 4:
        net.body.requires_grad_(True)
    opt.zero_grad()
    nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,))).backward()
    opt.step()
""")


def test_what_is_thawed_later_and_given_to_no_optimizer_is_told(here):
    trained = "filter(lambda p: p.requires_grad, net.parameters())"
    (found,) = diagnosed_text(THAWED, here, verify=True).findings

    assert (found.rule, found.severity) == ("GS407", "note")
    assert found.fixes[0].verified is True
    repaired = THAWED.replace(trained, f"[*{trained}, *net.body.parameters()]")
    assert patched(found.fixes[0].patch, here) == repaired


ONLINE = NETS.format("""\
online = Net(6, 4)
target = copy.deepcopy(online)
opt = torch.optim.Adam(online.parameters(), lr=1e-3)
for step in range(8):
    x = torch.randn(8, 6)
    predicted = online(x).detach()
    loss = (predicted - target(x + 0.1)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""")
WITHOUT_GRAD = ONLINE.replace(
    "    predicted = online(x).detach()\n",
    "    with torch.no_grad():\n        predicted = online(x)\n",
)


@pytest.mark.parametrize("program", [ONLINE, WITHOUT_GRAD], ids=["detach", "no_grad"])
def test_a_copy_that_gets_the_gradient_tells_that_the_model_is_cut_off(program, here):
    (found,) = diagnosed_text(program, here, verify=True).findings[:1]

    assert found.rule == "GS403"
    assert "detach" in (found.fixes[0].patch or "") or "enable_grad" in found.fixes[0].patch
    assert found.fixes[0].verified is True


def test_a_cut_and_a_forgotten_part_are_told_with_a_patch_each(here):
    """Which of them is meant nobody can tell, and that of the one does not do for the other."""
    program = NETS.format("""\
online, predictor = Net(6, 4), nn.Linear(4, 4)
target = copy.deepcopy(online).requires_grad_(False)
opt = torch.optim.Adam(online.parameters(), lr=1e-3)
for step in range(8):
    x = torch.randn(8, 6)
    loss = (predictor(online(x).detach()) - target(x + 0.1)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""")
    cut, lost = diagnosed_text(program, here, verify=True).findings

    assert (cut.rule, lost.rule) == ("GS403", "GS407")
    assert cut.fixes[0].verified is True
    assert "predictor.parameters()" in lost.fixes[0].patch


def test_an_optimizer_of_a_template_that_is_gone_is_made_for_the_copy(here):
    program = COPIED.replace("Client(template) for", "Client(Net(6, 3)) for")
    wanted = WRONG["a template's, copied later"][2]

    (found,) = diagnosed_text(program, here, verify=True).findings

    assert (found.rule, found.evidence["reason"]) == ("GS403", "stale")
    assert found.fixes[0].verified is True
    repaired = wanted.replace("Client(template) for", "Client(Net(6, 3)) for")
    assert patched(found.fixes[0].patch, here) == repaired


MEANT = {
    "a penalty by a network that is there to be used": NETS.format("""\
net, judge = Net(6, 4), Net(4, 1).eval()
fast = torch.optim.SGD(net.parameters(), lr=1e-2)
slow = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(12):
    opt = slow if step % 3 == 0 else fast
    opt.zero_grad()
    judge(net(torch.randn(8, 6))).mean().backward()
    opt.step()
"""),
    "both step after the losses of both": GAN.replace(
        "        self.opt_d.step()\n        self.opt_g.zero_grad()\n", ""
    )
    .replace("self.opt_g.step()", "self.opt_d.step(), self.opt_g.step()")
    .replace("self.opt_d.zero_grad()", "self.opt_d.zero_grad(), self.opt_g.zero_grad()"),
    "the discriminator frozen for the generator": GAN.replace(
        "        self.opt_g.zero_grad()\n",
        "        self.opt_g.zero_grad()\n        self.D.requires_grad_(False)\n",
    )
    + "    trainer.D.requires_grad_(True)\n",
    "the head alone": TUNED,
    "thawed, and added to the optimizer then": THAWED.replace(
        "net.body.requires_grad_(True)",
        "opt.add_param_group({'params': net.body.requires_grad_(True).parameters()})",
    ),
    "thawed for the last passes, which are few": THAWED.replace("step == 4", "step == 14"),
    "cleared before the step": TUNED.replace("    opt.step()", "    opt.zero_grad(), opt.step()"),
}  # fmt: skip


@pytest.mark.parametrize("case", MEANT)
def test_what_is_right_stays_silent(case):
    found = findings(MEANT[case])
    assert [one.message for one in found if one.rule == "GS407"] == []
