"""GS407: gradients that no step uses, and steps that change nothing."""

import pytest
from corpus import diagnosed_file, diagnosed_text, findings, loud, patched

from gradscope.facts import Severity

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.{}


def loss_of():
    x = torch.randn(64, 16)
    return (net(x) - x.sum(1, keepdim=True)).square().mean()


"""
SGD = HEAD.format("SGD(net.parameters(), lr=1e-2)")
ADAM = HEAD.format("Adam(net.parameters(), lr=1e-3)")
DATE = """\
import torch
from torch import nn

torch.manual_seed(0)
begin = nn.Parameter(torch.tensor(2459321.75))
days = 2459321.0 + torch.linspace(0, 2, 64, dtype=torch.float64)
flux = torch.exp(-10 * (days - 2459321.9) ** 2)
opt = torch.optim.Adam([begin], lr=1e-2)
for step in range(20):
    opt.zero_grad()
    (torch.exp(-10 * (days - begin) ** 2) - flux).square().mean().backward()
    opt.step()
"""
BFLOAT = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)).to(torch.bfloat16)
opt = torch.optim.AdamW(net.parameters(), lr=1e-5)
for step in range(20):
    x = torch.randn(64, 16).bfloat16()
    opt.zero_grad()
    (net(x) - x.sum(1, keepdim=True)).square().mean().backward()
    opt.step()
"""
EPOCHS = f"""{SGD}schedule = torch.optim.lr_scheduler.{{}}
for epoch in range(5):
    for batch in range(8):
        opt.zero_grad()
        loss_of().backward()
        opt.step()
"""
ASIDE = f"""{SGD}for i in range(12):
    x = torch.randn(64, 16){{}}
    delta = torch.full_like(x, 0.01, requires_grad=True)
    probe = net(x + delta).std()
{{}}
    (net(x + delta.detach()) - x.sum(1, keepdim=True)).square().mean().backward()
    opt.step()
    opt.zero_grad()
"""
FIRST = "\n    (net(x) - x.sum(1, keepdim=True)).square().mean().backward()"
BACKWARD = "    probe.backward()\n    delta = delta + 0.1 * {}.sign()\n    net.zero_grad()"
SQUARED = f"""{SGD}rate = 1e-2


def factor(step):
    return rate * min((step + 1) / 4, 0.9 ** (step - 3))


schedule = torch.optim.lr_scheduler.LambdaLR(opt, factor)
for step in range(20):
    opt.zero_grad()
    loss_of().backward()
    opt.step()
    schedule.step()
"""
CYCLE = f"""{SGD}for epoch in range(3):
    opt.zero_grad()
    for i in range({{}}):
        loss = loss_of() / 4
        loss.backward()
        if (i + 1) % 4 == 0:
            opt.step()
            opt.zero_grad()
"""
MADE = 'scaler = torch.amp.GradScaler("cpu")'
TEN = "for step in range(10):\n"
SCALED = f"""{SGD}{MADE}
{TEN}    x = torch.randn(64, 16)
    with torch.autocast("cpu", torch.float16):
        loss = (net(x) - x.sum(1, keepdim=True)).square().sum()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
"""
LINEAR = "LinearLR(opt, 1.0, 0.0, total_iters=5)"
IN_THE_MIDST = f"""{SGD}for i in range(24):
    (loss_of() / 4).backward()
    if (i + 1) % 4 == 0:
        opt.step()
{{}}"""
TOO_SELDOM = f"""{SGD}for i in range(24):
    (loss_of() / 4).backward()
{{}}    if (i + 1) % 4 == 0:
{{}}        opt.zero_grad()
"""
# The program; why the update is lost; the line that is told; the program with the patch.
BROKEN = {
    "no step": (
        f"{SGD}for step in range(12):\n    opt.zero_grad()\n    loss_of().backward()\n",
        "never-steps",
        "loss_of().backward()",
        f"{SGD}for step in range(12):\n    opt.zero_grad()\n    loss_of().backward()\n"
        "    opt.step()\n",
    ),
    "a schedule at every batch": (
        f"{EPOCHS.format(LINEAR)}        schedule.step()\n",
        "idle",
        "schedule.step()",
        f"{EPOCHS.format(LINEAR)}    schedule.step()\n",
    ),
    "a rate that decays to nothing": (
        f"{EPOCHS.format('StepLR(opt, 2, 0.1)')}        schedule.step()  # decay\n",
        "idle",
        "schedule.step()",
        f"{EPOCHS.format('StepLR(opt, 2, 0.1)')}    schedule.step()  # decay\n",
    ),
    "a schedule that is too short": (
        f"{SGD}schedule = torch.optim.lr_scheduler.{LINEAR}\nfor step in range(20):\n"
        "    opt.zero_grad()\n    loss_of().backward()\n    opt.step()\n    schedule.step()\n",
        "idle",
        "schedule.step()",
        f"{SGD}schedule = torch.optim.lr_scheduler.{LINEAR.replace('5', '20')}\n"
        "for step in range(20):\n"
        "    opt.zero_grad()\n    loss_of().backward()\n    opt.step()\n    schedule.step()\n",
    ),
    "a rate in the place of a factor": (
        SQUARED,
        "squared",
        "LambdaLR(opt",
        SQUARED.replace("lr=1e-2)", "lr=1.0)"),
    ),
    "a scaler in the loop": (
        SCALED.replace(f"{MADE}\n{TEN}", f"{TEN}    {MADE}\n"),
        "skipped",
        "scaler.step(opt)",
        SCALED,
    ),
    "a scale that is set": (
        SCALED.replace("update()", "update(2.0**16)"),
        "skipped",
        "scaler.step(opt)",
        SCALED,
    ),
    "rounded": (
        BFLOAT,
        "rounded",
        "opt.step()",
        BFLOAT.replace("torch.bfloat16", "torch.float32").replace(".bfloat16()", ".float()"),
    ),
    "a date in float32": (
        DATE,
        "rounded",
        "opt.step()",
        DATE.replace("75)", "75, dtype=torch.float64)"),
    ),
    "cleared before each pass": (
        f"{SGD}for i in range(24):\n    opt.zero_grad()\n    (loss_of() / 4).backward()\n"
        "    if (i + 1) % 4 == 0:\n        opt.step()\n",
        "thrown-away",
        "opt.zero_grad()",
        f"{SGD}for i in range(24):\n    (loss_of() / 4).backward()\n"
        "    if (i + 1) % 4 == 0:\n        opt.step()\n        opt.zero_grad()\n",
    ),
    "cleared in the midst of a cycle": (
        IN_THE_MIDST.format("    if i % 4 == 0:\n        opt.zero_grad()\n"),
        "thrown-away",
        "opt.zero_grad()",
        IN_THE_MIDST.format("        opt.zero_grad()\n"),
    ),
    "cleared with what was for something else": (
        ASIDE.format(FIRST, BACKWARD.format("delta.grad")),
        "swept",
        "net.zero_grad()",
        ASIDE.format(
            FIRST, "    delta = delta + 0.1 * torch.autograd.grad(probe, delta)[0].sign()"
        ),
    ),
    "stepped more often than cleared": (
        TOO_SELDOM.format("    opt.step()\n", ""),
        "used-again",
        "opt.step()",
        TOO_SELDOM.format("", "        opt.step()\n"),
    ),
    "the tail of an epoch": (
        CYCLE.format(10),
        "left-over",
        "opt.step()",
        CYCLE.format(10).replace("% 4 == 0:", "% 4 == 0 or i + 1 == 10:"),
    ),
    "a tail that the next epoch gets": (
        CYCLE.format(10).replace("    opt.zero_grad()\n    for", "    for"),
        "left-over",
        "opt.step()",
        CYCLE.format(10)
        .replace("    opt.zero_grad()\n    for", "    for")
        .replace("% 4 == 0:", "% 4 == 0 or i + 1 == 10:"),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.long
def test_a_lost_update_is_told_where_it_is_lost_and_mended(case, here):
    program, reason, line, repaired = BROKEN[case]

    (found,) = diagnosed_text(program, here, verify=True).findings

    assert (found.rule, found.evidence["reason"]) == ("GS407", reason)
    assert line in program.splitlines()[found.location.line - 1]
    fix = found.fixes[0]
    assert fix.verified is True
    assert patched(fix.patch, here) == repaired
    assert loud(repaired) == []


WRONG = HEAD.format("SGD(other.parameters(), lr=1e-2)").replace(
    "opt =", "other = nn.Linear(16, 1)\nopt ="
)
OWN = """\
class Own(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def step(self):
        for group in self.param_groups:
            new = [p - group["lr"] * p.grad for p in group["params"]]
        return len(new)


"""
WITHOUT_A_PATCH = {
    "a rate of 0": (HEAD.format("SGD(net.parameters(), lr=0.0)"), "no-rate", "opt = "),
    "a schedule that is 0 throughout": (
        f"{SGD}opt = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 0 * step).optimizer\n",
        "no-rate",
        "LambdaLR(",
    ),
    "an optimizer that computes in vain": (
        SGD.replace("torch.optim.SGD", "Own").replace(
            "torch.manual_seed", f"{OWN}torch.manual_seed"
        ),
        "unmoved",
        "opt.step()",
    ),
}


@pytest.mark.parametrize("case", WITHOUT_A_PATCH)
def test_what_never_moves_is_told_at_the_optimizer(case):
    program, reason, line = WITHOUT_A_PATCH[case]

    (found,) = loud(program + LOOP)

    assert (found.rule, found.evidence["reason"]) == ("GS407", reason)
    assert line in (program + LOOP).splitlines()[found.location.line - 1]
    assert all(fix.patch is None for fix in found.fixes)


CLIPPED = """{}for step in range(12):
    opt.zero_grad()
    loss_of().backward()
    nn.utils.clip_grad_norm_(net.parameters(), {})
    opt.step()
"""
DECAYED = HEAD.format("SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)")


@pytest.mark.parametrize("made", [SGD, ADAM, DECAYED], ids=["SGD", "Adam", "decayed"])
@pytest.mark.long
def test_a_bound_that_leaves_nothing_of_the_gradient_is_raised(made, here):
    program = CLIPPED.format(made, "max_norm=1e-9" if made is SGD else "1e-9")

    (found,) = diagnosed_text(program, here, verify=True).findings

    assert (found.rule, found.severity) == ("GS407", "warning")
    assert found.evidence["reason"] == "overclipped"
    assert "clip_grad_norm_" in program.splitlines()[found.location.line - 1]
    assert found.fixes[0].verified is True
    assert loud(patched(found.fixes[0].patch, here)) == []


LEAF = """\
import torch

torch.manual_seed(0)
w = torch.randn(16, 1, requires_grad=True)
opt = torch.optim.Adam([w], lr=0.1)


def loss_of(w):
    x = torch.randn(64, 16)
    return (x @ w - x.sum(1, keepdim=True)).square().mean()


"""
LOOP = "for step in range(16):\n    opt.zero_grad()\n    loss_of().backward()\n    opt.step()\n"
STOCHASTIC = """\
class Rounding(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            new = p.float() - self.param_groups[0]["lr"] * p.grad.float()
            bits = new.view(torch.int32) + torch.randint_like(new, 2**16, dtype=torch.int32)
            p.copy_((bits & -(2**16)).view(torch.float32))
"""
HEALTHY = {
    "a factor": SQUARED.replace("rate *", "1.0 *"),
    "a factor of a rate of 1": SQUARED.replace("lr=1e-2)", "lr=1.0)"),
    "a small factor": SQUARED.replace("rate *", "0.1 *"),
    "a warm-up that is at its rate": SQUARED.replace(
        "rate * min((step + 1) / 4, 0.9 ** (step - 3))", "(step + 1) / 2000"
    ),
    "a schedule that ends at 0": f"{EPOCHS.format('LinearLR(opt, 1.0, 0.0, total_iters=39)')}"
    "        schedule.step()\n",
    "a cosine an epoch": f"{EPOCHS.format('CosineAnnealingLR(opt, 5)')}    schedule.step()\n",
    "a cosine whose last epoch is at 0": f"{EPOCHS.format('CosineAnnealingLR(opt, 4)')}"
    "    schedule.step()\n",
    "a warm-up from 0": f"{SGD}schedule = torch.optim.lr_scheduler.LambdaLR("
    f"opt, lambda step: step / 100)\n{LOOP}    schedule.step()\n",
    "a group that stands still": HEAD.format(
        "SGD([{'params': net[0].parameters(), 'lr': 0.0}, {'params': net[2].parameters()}], lr=.01)"
    )
    + LOOP,
    "cleared after what was for something else": ASIDE.format("", BACKWARD.format("delta.grad")),
    "cleared before what is added up": ASIDE.format("", f"{BACKWARD.format('delta.grad')}{FIRST}"),
    "a probe that is cleared": ASIDE.format(
        FIRST.replace("square", "abs") + "\n    opt.zero_grad()", ""
    ),
    "accumulated": CYCLE.format(8),
    "accumulated with an odd end": CYCLE.format(10).replace("range(3)", "range(1)"),
    "the last batches dropped by hand": f"{SGD}for i in range(22):\n"
    "    (loss_of() / 4).backward()\n    if (i + 1) % 4 == 0:\n        opt.step()\n"
    "        opt.zero_grad()\n",
    "a batch skipped now and then": f"{SGD}for i in range(20):\n    opt.zero_grad()\n"
    "    loss_of().backward()\n    if i % 7 != 3:\n        opt.step()\n",
    "closures": HEAD.format("LBFGS(net.parameters())") + "def closure():\n    opt.zero_grad()\n"
    "    loss = loss_of()\n    loss.backward()\n    return loss\n\n\n"
    "for step in range(4):\n    opt.step(closure)\n",
    "two tasks one after the other": f"{SGD}for i in range(8):\n    opt.zero_grad()\n"
    "    loss_of().backward()\n    (0.5 * loss_of()).backward()\n    opt.step()\n",
    "never cleared on purpose": f"{SGD}opt.zero_grad()\nfor i in range(8):\n"
    "    loss_of().backward()\n    opt.step()\n    for p in net.parameters():\n"
    "        p.grad = None\n",
    "attacked first": f"{SGD}for step in range(8):\n    x = torch.randn(8, 16)\n"
    "    x.requires_grad_()\n    net(x).square().mean().backward()\n"
    "    worse = (x + 0.1 * x.grad.sign()).detach()\n    opt.zero_grad()\n"
    "    net(worse).square().mean().backward()\n    opt.step()\n",
    "gradients of tasks projected": f"{SGD}for step in range(8):\n    kept = []\n"
    "    for task in range(3):\n        opt.zero_grad()\n        loss_of().backward()\n"
    "        kept.append([p.grad.clone() for p in net.parameters()])\n"
    "    for p, *grads in zip(net.parameters(), *kept):\n        p.grad = sum(grads)\n"
    "    opt.step()\n",
    "gradients of the samples clipped": f"{SGD}def loss_one(parameters, x):\n"
    "    return torch.func.functional_call(net, parameters, x).square().mean()\n\n\n"
    "each = torch.func.vmap(torch.func.grad(loss_one), (None, 0))\nfor step in range(8):\n"
    "    held = {key: p.detach() for key, p in net.named_parameters()}\n"
    "    grads = each(held, torch.randn(8, 16))\n    for key, p in net.named_parameters():\n"
    "        p.grad = grads[key].clamp(-1, 1).mean(0)\n    opt.step()\n",
    "inner steps on copies": f"{LEAF}for step in range(8):\n    fast = w\n"
    "    for _ in range(2):\n        g = torch.autograd.grad(loss_of(fast), fast)[0]\n"
    "        fast = (fast - 0.1 * g).detach().requires_grad_()\n    opt.zero_grad()\n"
    "    loss_of(fast).backward()\n    w.grad = fast.grad\n    opt.step()\n",
    "a leaf and its optimizer for each batch": f"{LEAF}for batch in range(4):\n"
    "    w = (w - w.mean()).detach().requires_grad_()\n    opt = torch.optim.Adam([w], lr=0.1)\n"
    "    for step in range(5):\n        opt.zero_grad()\n        loss_of(w).backward()\n"
    "        opt.step()\n",
    "importance of weights": f"{SGD}{LOOP}fisher = [0.0 for p in net.parameters()]\n"
    "for step in range(8):\n    opt.zero_grad()\n    loss_of().backward()\n"
    "    fisher = [f + p.grad.square() for f, p in zip(fisher, net.parameters())]\n",
    "gradients looked at alone": f"{SGD}for step in range(8):\n    opt.zero_grad()\n"
    "    loss_of().backward()\n    print([p.grad.abs() for p in net.parameters()][0].shape)\n",
    "a warm-up of the head": HEAD.format("SGD(net[2].parameters(), lr=1e-2)")
    + f"later = torch.optim.SGD(net.parameters(), lr=1e-3)\n{LOOP}",
    "bfloat16 with float32 masters": BFLOAT.replace(
        "opt = torch.optim.AdamW(net.parameters(), lr=1e-5)",
        "masters = [p.detach().float().requires_grad_() for p in net.parameters()]\n"
        "opt = torch.optim.AdamW(masters, lr=1e-5)",
    ).replace(
        "    opt.step()\n",
        "    for m, p in zip(masters, net.parameters()):\n        m.grad = p.grad.float()\n"
        "    opt.step()\n    with torch.no_grad():\n"
        "        for m, p in zip(masters, net.parameters()):\n            p.copy_(m)\n"
        "            p.grad = None\n",
    ),
    "bfloat16 with stochastic rounding": BFLOAT.replace(
        "opt = torch.optim.AdamW(net.parameters(), lr=1e-5)",
        f"\n\n{STOCHASTIC}\n\nopt = Rounding(net.parameters(), lr=1e-4)",
    ),
    "bfloat16 with long steps": BFLOAT.replace("lr=1e-5", "lr=1e-2"),
    "bfloat16 in a warm-up": BFLOAT.replace(
        "for step", "warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: s / 1000)\nfor step"
    )
    + "    warm.step()\n",
    "a scaler that finds its scale": SCALED,
    "gradients of a sum clipped": CLIPPED.format(SGD, "1.0").replace(
        "    loss_of()", "    (1e6 * loss_of())"
    ),
    "gradients made short for a high rate": CLIPPED.format(SGD.replace("1e-2", "1e4"), "1e-6"),
    "short gradients, whose length Adam ignores": CLIPPED.format(ADAM, "1e-5"),
    "a small rate and no bound that acts": CLIPPED.format(SGD.replace("1e-2", "1e-9"), "1e3"),
    "a rate of 0 at first": f"{HEAD.format('SGD(net.parameters(), lr=0.0)')}"
    f"{LOOP}opt.param_groups[0]['lr'] = 1e-2\n{LOOP}",
    "parameters of a later loss": WRONG.replace(
        "SGD(", "SGD([*net.parameters()], lr=1e-2), torch.optim.SGD("
    ).replace("opt =", "opt, spare =")
    + LOOP,
}


@pytest.mark.parametrize("case", HEALTHY)
def test_what_is_right_is_not_told(case, capsys):
    assert [found.message for found in loud(HEALTHY[case])] == []


APART = f"""{HEAD.format("Adam(net[2].parameters(), lr=1e-3)")}{LOOP}"""
MEANT = {
    "frozen": APART.replace("\n\ndef loss_of", "\nnet[0].requires_grad_(False)\n\ndef loss_of"),
    "evaluated": APART.replace("\n\ndef loss_of", "\nnet[0].eval()\n\ndef loss_of"),
    "of a second optimizer": APART.replace(
        "\n\ndef loss_of", "\nlate = torch.optim.SGD(net[0].parameters(), lr=0.1)\n\ndef loss_of"
    )
    + "late.step()\n",
    "by hand": APART
    + "    with torch.no_grad():\n        for p in net[0].parameters():\n            p -= p.grad\n",
}


def test_an_optimizer_that_holds_a_leaf_which_is_replaced_moves_nothing():
    program = (
        f"{LEAF}for step in range(12):\n    opt.zero_grad()\n    loss_of(w).backward()\n"
        "    opt.step()\n    w = (w - 0.1 * w.sign()).detach().requires_grad_()\n"
    )

    (found,) = loud(program)

    assert (found.rule, found.evidence["reason"]) == ("GS403", "replaced")
    assert found.location.line == 5


def test_what_is_left_out_of_the_optimizer_is_noted():
    (found,) = findings(APART)

    assert (found.rule, found.severity) == ("GS407", Severity.NOTE)
    assert "2 parameters get a gradient in each pass, and no optimizer holds them" in found.message
    assert found.location.line == 6


GROUPS = {
    "a group": ('{"params": [], "lr": 0.5}', 'rest["params"] += list(net[0].parameters())', "rest"),
    "a list": ("[]", "rest += list(net[0].parameters())", '{"params": rest}'),
}


@pytest.mark.parametrize("case", GROUPS)
@pytest.mark.long
def test_what_was_collected_and_is_given_to_none_is_told_and_repaired(case, tmp_path):
    made, filled, written = GROUPS[case]
    program = tmp_path / "collected.py"
    given = f"rest = {made}\n{filled}\ngroups = [{{'params': list(net[2].parameters())}}]\n"
    old = next(line for line in APART.splitlines() if line.startswith("opt = "))
    program.write_text(APART.replace(old, f"{given}opt = torch.optim.SGD(groups, lr=0.1)"))
    (found,) = diagnosed_file(program, verify=True).findings

    assert (found.rule, found.severity) == ("GS407", Severity.WARNING)
    assert found.fixes[0].verified
    assert found.fixes[0].code == f"opt = torch.optim.SGD([*groups, {written}], lr=0.1)"


@pytest.mark.parametrize("case", MEANT)
def test_what_is_meant_to_stay_is_not_noted(case):
    assert [found.message for found in findings(MEANT[case])] == []


def test_a_sample_that_cuts_the_graph_is_told_and_not_the_optimizer():
    program = """\
import torch
from torch import nn

torch.manual_seed(0)
policy, value = nn.Linear(4, 2), nn.Linear(2, 1)
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
for step in range(6):
    mean, spread = policy(torch.randn(8, 4)).chunk(2, 1)
    action = torch.distributions.Normal(mean, spread.exp()).sample()
    opt.zero_grad()
    value(torch.cat([action, action.square()], 1)).mean().neg().backward()
    opt.step()
"""
    (found,) = loud(program)

    assert (found.rule, found.evidence["reason"]) == ("GS403", "sampled")
    assert found.location.line == 9


@pytest.mark.long
def test_what_a_scaler_skips_at_a_scale_of_1_is_led_back_to_its_op(here):
    program = f"""\
{SGD}scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for step in range(8):
    x = torch.randn(8, 16)
    far = (net(x)[:, None] - net(x)[None]).square().sum(2)
    opt.zero_grad()
    scaler.scale(far.sqrt().mean()).backward()
    scaler.step(opt)
    scaler.update()
"""
    found = diagnosed_text(program, here, verify=True).findings[0]

    assert (found.rule, found.op) == ("GS102", "sqrt")
    assert "far.sqrt()" in program.splitlines()[found.location.line - 1]
    assert found.fixes[0].verified is True


REBOUND = """import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
x = torch.randn(16, 3)
for step in range(6):
    loss = (model(x) - 1).square().mean()
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p = p - 0.1 * p.grad
            {after}
"""


def test_an_update_that_a_name_alone_gets(tmp_path):
    (found,) = diagnosed_text(REBOUND.format(after=""), tmp_path, verify=True).findings

    assert (found.rule, found.location.line) == ("GS407", 12)
    assert {symptom.tensor for symptom in found.symptoms} == {"model.weight", "model.bias"}
    leading = found.fixes[0]
    assert leading.verified
    assert leading.patch.count("\n+") == 2 and "+            p -= 0.1 * p.grad" in leading.patch


@pytest.mark.parametrize(
    "right",
    [
        REBOUND.replace("p = p -", "p -=").format(after=""),
        REBOUND.replace("p = p - 0.1 * p.grad", "p.data = p - 0.1 * p.grad").format(after=""),
        REBOUND.format(after="print(p.norm())"),
        REBOUND.replace("p = p - 0.1 * p.grad", "print((p - 0.1 * p.grad).norm())").format(
            after=""
        ),
    ],
)
def test_an_update_that_arrives_or_is_looked_at_is_none_lost(right, tmp_path):
    assert not diagnosed_text(right, tmp_path).findings


LARGE = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 1)
opt = torch.optim.{optimizer}(net.parameters(), lr=1e-2)
x, y = torch.randn(32, 8), torch.randn(32, 1)
for step in range(12):
    opt.zero_grad()
    {loss}.backward()
    {clip}
    opt.step()
"""
SCALED = "(net(x * 1e11) - y).square().mean()"
GROWN = "((net(x) * 25).abs().exp() - y).square().mean()"


@pytest.mark.parametrize(
    ("filled", "reason", "told"),
    [
        (("Adam", SCALED, "pass"), "overflown", "net(x * 1e11)"),
        (("Adam", GROWN, "pass"), "overflown", ".exp()"),
        (("SGD", SCALED, "nn.utils.clip_grad_norm_(net.parameters(), 1.0)"), "norm-overflown", "x"),
    ],
    ids=["squares", "squares of what grew", "norm"],
)
def test_a_step_that_is_divided_by_inf_moves_nothing(filled, reason, told, tmp_path):
    program = LARGE.format(**dict(zip(("optimizer", "loss", "clip"), filled, strict=True)))

    (found,) = diagnosed_text(program, tmp_path).findings

    assert (found.rule, found.evidence["reason"]) == ("GS407", reason)
    at = found.location
    assert told in program.splitlines()[at.line - 1][at.col : at.end_col]
