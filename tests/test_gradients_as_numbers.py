"""GS403 and GS303 where a loss reads gradients that were asked for without their graph."""

import pytest
from corpus import diagnosed_text, findings, loud, patched

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
"""
LOOP = """\
for step in range(6):
    x, y = torch.randn(8, 4), torch.randn(8, 2)
    {}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def program(*lines: str, before: str = "") -> str:
    return f"{HEAD}{before}{LOOP.format(f'{chr(10)}    '.join(lines))}"


LATER, NOW = "retain_graph=True)", "create_graph=True)"
PHYSICS = program(
    "u = net(x.requires_grad_())",
    f"du = torch.autograd.grad(u.sum(), x, {LATER}[0]",
    "loss = (du.sum(1) + 2 * u.sum(1)).square().mean() + (u - y).square().mean()",
)
FORCES = program(
    "energy, forces = both(x.requires_grad_())",
    "loss = F.mse_loss(energy, y[:, 0]) + F.mse_loss(forces, x.detach())",
    before="def both(x):\n    energy = net(x).sum(1)\n"
    f"    (slope,) = torch.autograd.grad([energy.sum()], [x], {LATER}\n"
    "    return energy, -slope\n\n\n",
)
PENALTY = program(
    "out = net(x.requires_grad_())",
    f"(g,) = torch.autograd.grad(out.sum(), x, {LATER}",
    "loss = out.mean() + 10 * (g.norm(dim=1) - 1).square().mean()",
)
LEARNT_RATE = program(
    "u = net(x.requires_grad_())",
    f"du = torch.autograd.grad(u.sum(), x, {LATER}[0]",
    "loss = (du * rate).square().mean() + (u - y).square().mean()",
    before="rate = nn.Parameter(torch.tensor(0.5))\nopt.add_param_group({'params': [rate]})\n",
)
JACOBIAN = program(
    "jacobian = torch.autograd.functional.jacobian(lambda one: net(one).sum(0), x)",
    "loss = net(x).square().mean() + jacobian.square().mean()",
)
SLOPE_OF_THE_LOSS = program(
    "loss = (net(x) - y).square().mean()",
    f"gs = torch.autograd.grad(loss, net.parameters(), {LATER}",
    "loss = loss + sum(g.square().sum() for g in gs)",
)
NUMBERS = {
    "a residual": (PHYSICS, PHYSICS.replace(LATER, f"retain_graph=True, {NOW}")),
    "forces": (FORCES, FORCES.replace(LATER, f"retain_graph=True, {NOW}")),
    "a penalty": (PENALTY, PENALTY.replace(LATER, f"retain_graph=True, {NOW}")),
    "with a rate that is learnt": (
        LEARNT_RATE,
        LEARNT_RATE.replace(LATER, f"retain_graph=True, {NOW}"),
    ),
    "a Jacobian": (JACOBIAN, JACOBIAN.replace("sum(0), x)", f"sum(0), x, {NOW}")),
    "the slope of a loss": (
        SLOPE_OF_THE_LOSS,
        SLOPE_OF_THE_LOSS.replace(LATER, f"retain_graph=True, {NOW}"),
    ),
}


@pytest.mark.parametrize("case", NUMBERS)
@pytest.mark.long
def test_a_gradient_that_a_loss_reads_as_a_number_is_told_and_gets_its_graph(case, here):
    text, repaired = NUMBERS[case]

    (found,) = diagnosed_text(text, here, verify=True).findings

    assert (found.rule, found.severity) == ("GS403", "error")
    assert found.evidence["reason"] == "constant"
    assert "torch.autograd." in text.splitlines()[found.location.line - 1]
    assert found.fixes[0].verified is True
    assert patched(found.fixes[0].patch, here) == repaired
    assert loud(repaired) == []


def test_where_it_frees_the_graph_as_well_it_gets_one(here):
    """To keep the old graph would do away with the exception, and with nothing else."""
    text = PHYSICS.replace(f", {LATER}", ")")

    found = diagnosed_text(text, here, verify=True).findings[0]

    assert (found.rule, found.evidence["reason"]) == ("GS303", "freed")
    assert "torch.autograd.grad" in text.splitlines()[found.location.line - 1]
    assert patched(found.fixes[0].patch, here) == text.replace("x)[0]", f"x, {NOW}[0]")
    assert found.fixes[0].verified is True


def test_the_second_of_two_derivatives_needs_its_graph_too(here):
    """Refused at the second one: with the graph of the first alone the program would run on."""
    text = program(
        "u = net(x.requires_grad_())",
        "first = torch.autograd.grad(u.sum(), x)[0]",
        "second = torch.autograd.grad(first.square().sum(), x)[0]",
        "loss = (second - x).square().mean() + (net(y.repeat(1, 2)) - y).square().mean()",
    )
    whole = text.replace("x)[0]", f"x, {NOW}[0]")
    half = text.replace("u.sum(), x)", f"u.sum(), x, {NOW}")

    found = diagnosed_text(text, here, verify=True).findings[0]

    assert found.rule == "GS303" and found.fixes[0].verified is True
    assert patched(found.fixes[0].patch, here) == whole
    assert [(one.rule, one.severity) for one in findings(half)] == [("GS403", "error")]
    assert loud(whole) == []


STEP = "g = torch.autograd.grad(net(x.requires_grad_()).square().mean(), x)[0]"
FAST = """\
def fast(x, w):
    return F.linear(F.linear(x, w[0], w[1]).tanh(), w[2], w[3])


"""
MEANT = {
    "adversarial": program(STEP, "loss = (net(x + 0.1 * g.sign()) - y).square().mean()"),
    "adversarial by length": program(
        STEP, "loss = (net(x + g / g.norm(dim=1, keepdim=True)) - y).square().mean()"
    ),
    "samples that walk": program(
        *["x = x - 0.1 * torch.autograd.grad(net(x.requires_grad_()).sum(), x)[0]"] * 2,
        "loss = net(y.repeat(1, 2)).mean() - net(x).mean()",
    ),
    "inner steps of the first order": program(
        "w = list(net.parameters())",
        "for _ in range(2):",
        "    gs = torch.autograd.grad((fast(x, w) - y).square().mean(), w)",
        "    w = [p - 0.1 * g for p, g in zip(w, gs)]",
        "loss = (fast(x + 1, w) - y).square().mean()",
        before=FAST,
    ),
    "inner steps of the head": program(
        "w, features = net[2].weight, net[:2](x)",
        f"(g,) = torch.autograd.grad((F.linear(features, w) - y).square().mean(), w, {LATER}",
        "loss = (F.linear(net[:2](x + 1), w - 0.1 * g, net[2].bias) - y).square().mean()",
    ),
    "a weight of another loss": program(
        "one, other = (net(x) - y).square().mean(), net(x).abs().mean()",
        f"a = torch.autograd.grad(one, net[2].weight, {LATER}[0]",
        f"b = torch.autograd.grad(other, net[2].weight, {LATER}[0]",
        "loss = one + a.norm() / (b.norm() + 1e-4) * other",
    ),
    "a map of classes": program(
        "hidden = net[:2](x)",
        "out = net[2](hidden)",
        f"g = torch.autograd.grad(out[:, 0].sum(), hidden, {LATER}[0]",
        "loss = (out - y).square().mean() + (g.mean(0) * hidden).relu().mean()",
    ),
    "a mask": program(
        STEP, "loss = (net(torch.where(g.abs() > g.abs().mean(), x, 0.0)) - y).square().mean()"
    ),
    "features of another net": program(
        STEP,
        "loss = (net(x) - head(g)).square().mean()",
        before="head = nn.Linear(4, 2)\nopt.add_param_group({'params': head.parameters()})\n",
    ),
    "steps of the second order on a sample": program(
        f"g = torch.autograd.grad(net(x.requires_grad_()).square().mean(), x, {NOW}[0]",
        "h = torch.autograd.grad(g.sum(), x)[0]",
        "loss = (net(x - 0.1 * h.sign()) - y).square().mean()",
    ),
    "a gradient whose size is measured": program(
        f"g = torch.autograd.grad(net(x.requires_grad_()).square().mean(), x, {NOW}[0]",
        "size = g.norm().detach()",
        "loss = (net(x) - y).square().mean() + 1e-2 * (g.norm() / (size + 1)).square()",
    ),
    "detached": PENALTY.replace("square().mean()", "square().mean().detach()"),
    "measured": PENALTY.replace("loss = out.mean() + 10 *", "loss = out.mean()\n    seen ="),
    "of a teacher": program(
        "wanted = torch.autograd.grad(teacher(x.requires_grad_()).sum(), x)[0]",
        f"g = torch.autograd.grad(net(x).sum(), x, {NOW}[0]",
        "loss = (g - wanted).square().mean() + (net(x) - y).square().mean()",
        before="teacher = nn.Linear(4, 2)\n",
    ),
}


@pytest.mark.parametrize("case", MEANT)
def test_a_gradient_that_is_meant_as_a_number_is_not_told(case):
    assert [found.message for found in findings(MEANT[case])] == []


AUTOENCODER = program(
    "q = torch.distributions.Normal(net(x), 0.5)",
    "z = q.sample()",
    "far = torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 1.0)).mean()",
    "loss = (decoder(z) - x).square().mean() + far",
    before="decoder = nn.Linear(2, 4)\nopt.add_param_group({'params': decoder.parameters()})\n",
)
POLICY = program(
    "q = torch.distributions.Normal(net(x), 0.5)",
    "action = q.sample()",
    "reward = -(action - y).square().sum(1)",
    "gain = reward - value(x).squeeze(1)",
    "loss = gain.square().mean() - (q.log_prob(action).sum(1) * gain.detach()).mean()",
    before="value = nn.Linear(4, 1)\nopt.add_param_group({'params': value.parameters()})\n",
)


def test_a_sample_that_the_rest_of_the_loss_hides_is_drawn_with_its_gradient(here):
    (found,) = diagnosed_text(AUTOENCODER, here, verify=True).findings

    assert (found.rule, found.evidence["reason"]) == ("GS403", "sampled")
    assert found.fixes[0].verified is True
    repaired = AUTOENCODER.replace("q.sample()", "q.rsample()")
    assert patched(found.fixes[0].patch, here) == repaired
    assert loud(repaired) == []


def test_a_draw_whose_slopes_are_0_is_told_as_one_without_a_graph_is(here):
    text = AUTOENCODER.replace("q.sample()", "torch.normal(q.mean, 0.5)")

    (found,) = diagnosed_text(text, here, verify=True).findings

    assert (found.rule, found.evidence["reason"]) == ("GS403", "sampled")
    assert found.fixes[0].verified is True
    assert "q.mean + 0.5 * torch.randn_like(q.mean)" in patched(found.fixes[0].patch, here)


CRITIC = """\
critic = nn.Linear(6, 1)
trained = torch.optim.Adam(critic.parameters(), lr=1e-3)
"""
ACTOR = program(
    "q = torch.distributions.Normal(net(x), 1.0)",
    "action = torch.tanh(u := q.sample())",
    "likely = (q.log_prob(u) - torch.log(1.01 - action.square())).sum(-1, keepdim=True)",
    "loss = (0.2 * likely - critic(torch.cat([x, action], -1))).mean()",
    before=CRITIC,
)
JOINT = ACTOR.replace("    opt.zero_grad()", "    trained.zero_grad()\n    opt.zero_grad()")
FROZEN = ACTOR.replace(
    "    q = torch.dist",
    """    critic(torch.cat([x, y], -1)).square().mean().backward()
    trained.step()
    trained.zero_grad()
    critic.requires_grad_(False)
    q = torch.dist""",
)
FROZEN = f"{FROZEN}    critic.requires_grad_(True)\n"
# A critic whose own loss reads the action is trained by the pass; one that only weighs is a number.
LIKELY = {
    "a critic that is trained along": f"{JOINT}    trained.step()\n",
    "a critic that weighs": ACTOR.replace("0.2 * likely - ", "-likely * "),
    "a frozen critic that weighs": FROZEN.replace("0.2 * likely - ", "-likely * "),
    "a frozen critic of an action with its graph": FROZEN.replace("q.sample()", "q.rsample()"),
    "a critic of an action with its graph": ACTOR.replace("q.sample()", "q.rsample()"),
    "a critic of an action that is drawn before": ACTOR.replace(
        "q.sample()", "q.sample().detach()"
    ),
    "the entropy of what was drawn": ACTOR.replace(
        "0.2 * likely - critic(torch.cat([x, action], -1))", "0.2 * likely"
    ),
}


ACTORS = {
    "a critic": ACTOR,
    "one that is frozen meanwhile": FROZEN,
    "one that is never trained": ACTOR.replace(
        CRITIC, "critic = nn.Linear(6, 1).requires_grad_(False)\n"
    ),
}


@pytest.mark.parametrize("text", ACTORS.values(), ids=ACTORS)
def test_a_sample_that_a_critic_is_given_is_told_though_its_likelihood_is_asked_for(text, here):
    (found,) = diagnosed_text(text, here, verify=True).findings

    assert (found.rule, found.evidence["reason"]) == ("GS403", "sampled")
    assert found.fixes[0].verified is True
    assert patched(found.fixes[0].patch, here) == text.replace("q.sample()", "q.rsample()")


@pytest.mark.parametrize("case", LIKELY)
def test_a_sample_of_which_the_value_alone_is_meant_is_not_told(case):
    assert [found.message for found in findings(LIKELY[case])] == []


CODES = """\
codes, decoder = nn.Embedding(4, 2), nn.Linear(2, 2)
opt = torch.optim.Adam([*net.parameters(), *codes.parameters(), *decoder.parameters()], lr=1e-3)
"""
CHOSEN = program(
    "z = net(x)",
    "q = codes(torch.cdist(z, codes.weight).argmin(1))",
    "near = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())",
    "q = (z + (q - z)).detach()",
    "loss = F.mse_loss(decoder(q), y) + near",
    before=CODES,
)
SOFT = program(
    "soft = net(x).softmax(-1)",
    "hard = F.one_hot(soft.argmax(-1), 2).float()",
    "loss = F.mse_loss((hard - soft + soft).detach() * soft, y)",
)
STRAIGHT = {
    "a choice": CHOSEN.replace("(z + (q - z)).detach()", "z + (q - z).detach()"),
    "a soft choice": SOFT.replace("(hard - soft + soft).detach() * ", "hard - soft.detach() + "),
    "a value that is meant to be cut": CHOSEN.replace("(z + (q - z)).detach()", "q.detach()"),
    "a difference that is printed": CHOSEN.replace(
        "q = (z + (q - z)).detach()", "shown = (z + (q - z)).detach().norm()"
    ),
    "a sum that does not cancel": CHOSEN.replace("(z + (q - z))", "(z + (q - 0.5 * z))"),
}


def test_a_detach_of_what_was_to_go_straight_through_is_moved(here):
    (found,) = diagnosed_text(CHOSEN, here, verify=True).findings

    assert (found.rule, found.evidence["reason"]) == ("GS403", "straight-through")
    assert len(found.evidence["parameters"]) == 4  # those of the net, not of the codes
    assert found.fixes[0].verified is True
    assert patched(found.fixes[0].patch, here) == STRAIGHT["a choice"]


def test_a_soft_choice_may_be_written_the_other_way_round(here):
    (found,) = diagnosed_text(SOFT, here, verify=True).findings

    assert found.evidence["reason"] == "straight-through"
    assert "+    loss = F.mse_loss(((hard - soft).detach() + soft) * soft, y)" in str(
        found.fixes[0].patch
    )


@pytest.mark.parametrize("case", STRAIGHT)
def test_what_goes_straight_through_is_not_told(case):
    assert [found.message for found in findings(STRAIGHT[case])] == []


@pytest.mark.parametrize("drawn", ["q.sample()", "torch.normal(q.mean, q.stddev)"])
def test_a_sample_whose_likelihood_is_asked_for_is_meant(drawn):
    assert [found.message for found in findings(POLICY.replace("q.sample()", drawn))] == []


COUNTED = program(
    "out = net(x)",
    "hit = (out.sigmoid() > 0.5).float() * (y > 0)",
    "overlap = 1 - hit.sum() / (y > 0).sum()",
    "loss = F.binary_cross_entropy_with_logits(out, (y > 0).float()) + 0.5 * overlap",
)
# What a comparison of learnt values is for, beside a term of its own.
COMPARED = {
    "a mask": ("far = ((out - y).abs() > 1).float()", "((out - y).square() * far).sum()"),
    "a divisor": ("far = ((out - y).abs() > 1).float()", "(out - y).square().sum() / far.sum()"),
    "a weight": ("far = (out > y).float().mean()", "far * out.mean() + (out - y).square().mean()"),
    "a size": (
        "hard = (out.sigmoid() > 0.5).float()",
        "1 - 2 * (out.sigmoid() * y.abs()).sum() / (out.sigmoid().sum() + hard.sum() + 1)",
    ),
    "straight through": (
        "hard = (out > 0).float() + out - out.detach()",
        "(hard - y).square().mean() + hard.mean()",
    ),
    "printed": ("far = (out > y).float().mean().item()", "(out - y).square().mean() + 0 * far"),
    "detached": ("far = (out.detach() > y).float().mean()", "(out - y).square().mean() + far"),
    "a choice of targets": (
        "best = out.argmax(1)",
        "F.cross_entropy(out, best) + out.square().mean()",
    ),
}


def test_a_term_that_counts_what_a_comparison_finds_is_told():
    (found,) = findings(COUNTED)

    assert (found.rule, found.severity) == ("GS403", "warning")
    assert found.evidence["reason"] == "integer"
    assert "out.sigmoid() > 0.5" in COUNTED.splitlines()[found.location.line - 1]


@pytest.mark.parametrize("case", COMPARED)
def test_a_comparison_that_does_not_make_a_term_is_not_told(case):
    made, loss = COMPARED[case]
    assert findings(program("out = net(x)", made, f"loss = {loss}")) == []


EARLY = CHOSEN.replace(
    """    near = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
    q = (z + (q - z)).detach()
""",
    """    q = z + (q - z).detach()
    near = F.mse_loss(q, z.detach())
    near = near + 0.25 * F.mse_loss(z, q.detach())
""",
)


def test_a_value_is_cut_off_once_the_loss_has_read_it_that_trains_by_it(here):
    found, *_ = diagnosed_text(EARLY, here, verify=True).findings
    text = patched(found.fixes[0].patch, here)

    assert (found.rule, found.evidence["reason"], found.fixes[0].verified) == (
        "GS403",
        "detach",
        True,
    )
    assert text.index("near = F.mse_loss(q, z.detach())") < text.index("q = z + (q - z).detach()")
