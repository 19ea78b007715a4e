"""GS406: finite gradients that one op makes huge, and large ones that are as they should be."""

from typing import Any

import pytest
import torch
from corpus import diagnosed_text, findings, loud, patched

from gradscope.facts import Severity

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
"""
LEAF = "x = torch.tensor([0.0, 0.5, 2.0, 1.0], requires_grad=True)\n"
ROWS = "x = torch.randn(6, 4)\nx[2] = 0.0\nx.requires_grad_()\ny = torch.randn(6, 4)\n"
STATS = """\
net = nn.Linear(5, 3)
with torch.no_grad():
    net.weight[1] = 0.0
h = net(torch.randn(16, 5))
scale = h.std(0, unbiased=False).detach()
z = (h - h.mean(0)) / (scale + 1e-8)
loss = (z - torch.randn(16, 3)).square().mean()
loss.backward()
"""
LATE = """\
net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(32, 3)
    y = x.sum(1, keepdim=True)
    if step == 4:
        y[3] = 0.0
    size = y.abs() + 1e-9
    loss = ((net(x) - y).abs() / size).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
PAIRS = """\
apart = points[:, None] - points[None, :]
unit = apart / apart.norm(dim=-1, keepdim=True).clamp(min=1e-8)
loss = (points + 1e-2 * (weigh(apart) * unit).sum(1)).pow(2).sum()
"""
END = "loss.backward()\n"
# The program; what its culprit line holds; the same repaired by hand.
BROKEN = {
    "a root": (
        f"{HEAD}{LEAF}loss = torch.sqrt(x + 1e-12).mean()\n{END}",
        "torch.sqrt",
        ("x + 1e-12", "(x + 1e-12).clamp_min(1e-11)"),
    ),
    "a reciprocal": (
        f"{HEAD}{LEAF}loss = (1 / (x + 1e-8)).mean()\n{END}",
        "1 / (x",
        ("x + 1e-8", "x.clamp_min(1e-3)"),
    ),
    "an angle": (
        f"{HEAD}x = torch.tensor([0.1, 0.9999999, -0.3], requires_grad=True)\n"
        f"loss = torch.acos(x).mean()\n{END}",
        "torch.acos",
        ("acos(x)", "acos(x.clamp(-1 + 1e-5, 1 - 1e-5))"),
    ),
    "a vector of zeros": (
        f"{HEAD}{ROWS}loss = (F.normalize(x, dim=1) - y).square().mean()\n{END}",
        "F.normalize",
        ("F.normalize(x, dim=1)", "torch.where(x.any(1, True), F.normalize(x, dim=1), 0.0)"),
    ),
    "a vector of zeros that is computed": (
        f"{HEAD}{ROWS}loss = (F.normalize(torch.mul(x, 1), dim=1) - y).square().mean()\n{END}",
        "F.normalize",
        (
            "F.normalize(torch.mul(x, 1), dim=1)",
            "torch.where(x.any(1, True), F.normalize(x, dim=1), 0.0)",
        ),
    ),
    "the angle to a vector of zeros": (
        f"{HEAD}{ROWS}loss = -F.cosine_similarity(x, y).mean()\n{END}",
        "F.cosine_similarity",
        ("F.cosine_similarity(x, y)", "torch.where(x.any(1), F.cosine_similarity(x, y), 0.0)"),
    ),
    "a column that is constant": (
        f"{HEAD}{STATS}",
        "scale + 1e-8",
        ("scale + 1e-8", "torch.where(scale < 1e-7, 1.0, scale + 1e-8)"),
    ),
    "a target of 0 in one batch": (
        f"{HEAD}{LATE}",
        "/ size",
        ("/ size", "/ torch.where(size < 1e-8, 1.0, size)"),
    ),
    "a factor": (
        f"{HEAD}{ROWS}length = x.square().sum(1, keepdim=True) + 1e-14\n"
        f"loss = (x * length.rsqrt() - y).square().mean()\n{END}",
        "length.rsqrt()",
        ("length.rsqrt()", "torch.where(length > 1e-7, length, 1.0).rsqrt()"),
    ),
    "a logarithm": (
        f"{HEAD}{LEAF}loss = torch.log(x + 1e-10).square().mean()\n{END}",
        "torch.log",
        ("x + 1e-10", "x.clamp_min(1e-3)"),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.long
def test_the_op_is_told_and_mended(case, here):
    program, line, (old, new) = BROKEN[case]

    (found,) = diagnosed_text(program, here, verify=True).findings

    assert found.rule == "GS406"
    assert line in program.splitlines()[found.location.line - 1]
    fix = found.fixes[0]
    assert fix.verified is True
    mended = patched(fix.patch, here)
    assert same(ran(mended), ran(program.replace(old, new)))
    assert loud(mended) == []


def ran(program: str) -> dict[str, Any]:
    known: dict[str, Any] = {"__name__": "__main__"}
    exec(program, known)
    return known


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Loss and gradient, as far as two epsilons leave them."""
    grads = []
    for known in (one, other):
        leaves = known["net"].parameters() if "net" in known else [known["x"]]
        grads.append(torch.cat([leaf.grad.reshape(-1) for leaf in leaves]))
    return torch.allclose(one["loss"], other["loss"], rtol=1e-2) and torch.allclose(
        *grads, rtol=1e-2, atol=1e-5
    )


def test_what_has_to_be_computed_is_computed_once(tmp_path):
    program, _, _ = BROKEN["a vector of zeros that is computed"]

    (found,) = diagnosed_text(program, tmp_path).findings

    added = [line for line in (found.fixes[0].patch or "").splitlines() if line.startswith("+")]
    assert added[1] == "+vectors = torch.mul(x, 1)"
    assert "F.normalize(vectors, dim=1) * (vectors.norm(" in added[2]


def test_no_element_beside_it_tells_that_a_slope_is_huge():
    lines = "x = torch.zeros(4, requires_grad=True)\nloss = 1 - F.normalize(x, dim=0)[0]\n"

    (found,) = loud(f"{HEAD}{lines}{END}")

    assert (found.rule, found.severity) == ("GS406", Severity.ERROR)
    assert found.evidence["others"] is None
    assert "No element of it has another slope" in found.why


def test_what_is_clipped_is_a_warning():
    clip = "    nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n    opt.step()\n"

    (found,) = loud(f"{HEAD}{LATE}".replace("    opt.step()\n", clip))

    assert (found.rule, found.severity) == ("GS406", Severity.WARNING)


TRAINED = """\
for step in range(9):
    opt.zero_grad()
    loss = loss_of(step)
    loss.backward()
    opt.step()
"""


def trained(body: str, net: str, optimizer: str = "Adam(net.parameters(), lr=1e-3)") -> str:
    """A training loop whose loss is `body`."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    made = f"net = {net}\nopt = torch.optim.{optimizer}\n\n\ndef loss_of(step):\n"
    return f"{HEAD}{made}{lines}\n\n{TRAINED}"


MLP = "nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))"
HEALTHY = {
    "raw house prices": trained(
        "x = torch.randn(64, 3) * torch.tensor([800.0, 1.5, 40.0]) + 2000.0\n"
        "return F.mse_loss(net(x).squeeze(1), 150 * x[:, 0] + 2e5)",
        "nn.Linear(3, 1)",
    ),
    "a sum over all elements": trained(
        "x = torch.randn(512, 8)\nreturn (net(x) - x[:, :4]).square().sum()",
        MLP,
        "SGD(net.parameters(), lr=1e-6)",
    ),
    "policy gradients": trained(
        "s = torch.randn(128, 8)\nd = torch.distributions.Categorical(logits=net(s))\n"
        "a = d.sample()\nr = torch.randn(128) * 500\n"
        "adv = (r - r.mean()) / (r.std() + 1e-8)\nreturn -(d.log_prob(a) * (adv + r)).sum()",
        MLP,
    ),
    "charges in SI units": f"{HEAD}r = (torch.rand(12, 3, dtype=torch.float64) * 3e-9)\n"
    "r.requires_grad_()\nd = torch.pdist(r)\nloss = (8.99e9 * 1.602e-19**2 / d).sum()\n" + END,
    "an atom that meets another": f"{HEAD}r = torch.tensor([0.8, 1.0, 3.5, 9.0])\n"
    f"r.requires_grad_()\nloss = (4 * (r ** -12 - r ** -6)).sum()\n{END}",
    "orbits with softening": f"{HEAD}p = torch.randn(20, 2, requires_grad=True)\n"
    "d = p[:, None] - p\nloss = -(1 / (d.square().sum(-1) + 1e-8).sqrt()).triu(1).sum()\n" + END,
    "log-magnitudes of a spectrum": trained(
        "x = torch.randn(4, 256) * torch.linspace(1, 1e-4, 256)\ny = net(x)\n"
        "w = torch.hann_window(64)\n"
        "a, b = (torch.stft(v, 64, window=w, return_complex=True).abs() for v in (y, x))\n"
        "return ((a + 1e-7).log() - (b + 1e-7).log()).abs().mean()",
        "nn.Sequential(nn.Linear(256, 64), nn.Tanh(), nn.Linear(64, 256))",
    ),
    "decibels of silence": trained(
        "x = torch.randn(4, 256)\nx[1] = 0.0\ny = net[1](net[0](x)) * x\n"
        "p = torch.stft(y, 64, window=torch.ones(64), return_complex=True).abs().square()\n"
        "return (10 * torch.log10(p.clamp(min=1e-10))).mean()",
        "nn.Sequential(nn.Linear(256, 256), nn.Tanh())",
    ),
    "a large vocabulary": trained(
        "t = torch.randint(0, 5000, (16,))\nreturn F.cross_entropy(net(t) @ net.weight.T, t)",
        "nn.Embedding(5000, 16)",
    ),
    "large first steps": trained(
        "x = torch.randn(64, 8)\nreturn (1e4 * net(x) - x[:, :4]).square().mean()", MLP
    ),
    "a clipped recurrence": trained(
        "h, _ = net(torch.randn(4, 30, 8) * 10)\nloss = h[:, -1].square().sum() * 1e3\n"
        "loss.backward()\nnn.utils.clip_grad_norm_(net.parameters(), 1.0)\nopt.step()\n"
        "opt.zero_grad()\nreturn net(torch.randn(4, 5, 8))[0].square().mean()",
        "nn.RNN(8, 8, batch_first=True)",
    ),
    "a loss that is scaled": trained(
        "x = torch.randn(64, 8)\nloss = (net(x) - x[:, :4]).square().mean()\n"
        "(loss * 65536).backward()\nfor p in net.parameters():\n    p.grad /= 65536\n"
        "opt.step()\nopt.zero_grad()\nreturn (net(x) - x[:, :4]).square().mean()",
        MLP,
    ),
    "a smooth absolute value": trained(
        "x = torch.randn(64, 8)\ny = net(x)\nt = x[:, :4].clone()\nt[:8] = y[:8].detach()\n"
        "return ((y - t).square() + 1e-12).sqrt().mean()",
        MLP,
    ),
    "logarithms of small probabilities": trained(
        "x = torch.randn(64, 8) * 20\np = net(x).softmax(-1)\n"
        "return -(p + 1e-12).log()[:, 0].mean() - (p * (p + 1e-12).log()).sum(-1).mean()",
        MLP,
    ),
    "padding that is normalised and left out": trained(
        "x = torch.randn(16, 8)\nx[10:] = 0.0\ny = F.normalize(net(x), dim=1)\n"
        "return (y[:10] - F.normalize(x[:10, :4], dim=1)).square().mean()",
        "nn.Linear(8, 4, bias=False)",
    ),
    "padding behind a layer norm": trained(
        "x = torch.randn(16, 8)\nx[10:] = 0.0\nreturn (net(x)[:10] - x[:10, :4]).square().mean()",
        "nn.Sequential(nn.LayerNorm(8, eps=1e-12), nn.Linear(8, 4))",
    ),
    "a low temperature": trained(
        "x = torch.randn(32, 8)\nz = F.normalize(net(x), dim=1)\n"
        "return F.cross_entropy(z @ z.T / 0.005, torch.arange(32))",
        MLP,
    ),
    "columns in units of their own": trained(
        "x = torch.randn(64, 4) * torch.tensor([1e-3, 1.0, 1e3, 1e6])\n"
        "return F.smooth_l1_loss(net(x / 1e3), x.sum(1, keepdim=True) / 1e6)",
        "nn.Linear(4, 1)",
    ),
    "a likelihood with a small variance": trained(
        "x = torch.randn(64, 8)\nm, s = net(x).chunk(2, 1)\n"
        "return F.gaussian_nll_loss(m, m.detach() + 0.01 * torch.randn(64, 2), s.exp() * 1e-5)",
        MLP,
    ),
    "counts by the exponential": trained(
        "x = torch.randn(64, 8)\nreturn F.poisson_nll_loss(net(x) * 30, torch.full((64, 4), 9.0))",
        MLP,
    ),
    "a penalty on the gradient": trained(
        "x = torch.randn(32, 8, requires_grad=True)\n"
        "g, = torch.autograd.grad(net(x).sum(), x, create_graph=True)\n"
        "return ((g.square().sum(1) + 1e-12).sqrt() - 1).square().mean()",
        MLP,
    ),
    "adapters that start at 0": trained(
        "x = torch.randn(64, 8) * 1e4\nreturn (net[1](net[0](x)) - x[:, :4]).square().mean()",
        "nn.Sequential(nn.Linear(8, 2, bias=False), nn.Linear(2, 4, bias=False))\n"
        "nn.init.zeros_(net[1].weight)",
    ),
    "distances to oneself": f"{HEAD}p = torch.randn(12, 3, requires_grad=True)\n"
    "d = ((p[:, None] - p).square().sum(-1) + 1e-12).sqrt()\nloss = (d - 1).square().mean()\n"
    + END,
    "a rotation that is no rotation": f"{HEAD}a = torch.randn(5, 3, requires_grad=True)\n"
    "b = a.detach().clone()\nc = F.cosine_similarity(a, b).clamp(-1 + 1e-7, 1 - 1e-7)\n"
    f"loss = torch.acos(c).mean() + a.square().mean()\n{END}",
    # The sine makes what comes to the axis as small as the division then makes it large.
    "rotations about no axis": f"{HEAD}r = torch.zeros(5, 3, requires_grad=True)\n"
    "p = torch.randn(5, 3)\nangle = (r + 1e-8).norm(dim=-1, keepdim=True)\n"
    "moved = p + angle.sin() * torch.linalg.cross(r / angle, p)\n"
    f"loss = (moved - p - 0.1).square().mean()\n{END}",
    # What each pair hands to one of its points, the other point takes back.
    **{
        name: f"{HEAD}weigh = nn.Linear(3, 1)\npoints = {points}\n{PAIRS}{END}"
        for name, points in (
            ("pairs of a result with itself", "nn.Linear(3, 3)(torch.randn(6, 3))"),
            ("pairs of a leaf with itself", "torch.randn(6, 3, requires_grad=True)"),
        )
    },
}


@pytest.mark.parametrize("case", HEALTHY)
def test_large_gradients_of_right_programs_are_not_told(case):
    torch.manual_seed(0)

    assert [found.message for found in loud(HEALTHY[case])] == []


def test_a_step_that_is_only_watched_is_looked_at_where_its_gradient_leaps(tmp_path):
    late = LATE.replace("range(6)", "range(60)").replace("step == 4", "step == 41")

    report = diagnosed_text(f"{HEAD}{late}", tmp_path)

    (found,) = report.findings
    assert (found.rule, found.step, report.trace.surged) == ("GS406", 41, 41)
    assert len(report.trace.steps) == 60


def test_a_gradient_that_leaps_with_the_loss_is_that_of_the_data(tmp_path):
    body = "x = torch.randn(64, 8) * (1e5 if step == 7 else 1.0)\nreturn net(x).square().mean()"

    report = diagnosed_text(trained(body, MLP), tmp_path)

    (found,) = report.findings
    assert (report.trace.surged, report.verdict) == (7, "healthy")
    assert (found.rule, found.phase, found.severity) == ("GS406", "data", "warning")


def test_a_matrix_product_is_no_multiple_of_the_gradient_that_comes_in():
    """Of 32 samples of 32 features the two have one shape."""
    program = f"""{HEAD}x, y = torch.randn(32, 6) * 60, torch.randn(32) * 100
net = nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-38)
for step in range(4):
    p = net(x).squeeze(-1)
    opt.zero_grad()
    (p.sign() * (p.abs().exp() - 1) - y).square().mean().backward()
    opt.step()
"""

    assert "addmm" not in {found.op for found in findings(program) if found.rule == "GS406"}


POLE = """\
depth = nn.Parameter(torch.linspace(0.5, 2.0, 8))
opt = torch.optim.SGD([depth], lr=1.0)
for step in range(8):
    with torch.no_grad():
        depth[0] = (0.5, 0.4, 0.3, 0.2, 0.1, {near}, -0.1, -0.2)[step]
        depth[1] = -0.4 if step > 3 else 0.4
    loss = (1.0 / depth).square().mean()
    opt.zero_grad()
    loss.backward()
"""


def test_a_divisor_that_crosses_0_is_told_where_the_loss_leaps(tmp_path):
    report = diagnosed_text(HEAD + POLE.format(near=2e-4), tmp_path)
    found = next(one for one in report.findings if one.rule == "GS406")

    assert found.location.line == 12 and found.step == 5
    assert "lies on both sides of 0" in found.why
    assert found.fixes[0].title == "keep the divisor on one side of 0 by what it is made of"


def test_a_divisor_that_crosses_0_far_enough_from_it_is_left_alone(tmp_path):
    assert not loud(HEAD + POLE.format(near=0.05))


OUTLIER = """\
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(30):
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    if step == 21:
        x[3, 2] = {value}
    loss = (net(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_sample_that_is_far_too_large_is_told_where_it_is_read(tmp_path):
    (found,) = diagnosed_text(OUTLIER.format(value="4e6"), tmp_path).findings

    assert (found.rule, found.severity, found.location.line) == ("GS406", "warning", 9)
    assert (found.phase, found.step) == ("data", 21)


def test_a_sample_that_is_ten_times_as_large_is_data_like_any_other(tmp_path):
    assert diagnosed_text(OUTLIER.format(value="40.0"), tmp_path).findings == ()
