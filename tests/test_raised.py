"""Exceptions of single ops: what of the operands was refused, where, and what is taken instead."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from corpus import diagnosed_text, patched

from gradscope.facts import Finding, Severity
from gradscope.ops.requirements import REFUSES, TAKES_SOME
from gradscope.pipeline import exit_code

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
"""
KERNEL = """\
x = torch.randn(6, 2, requires_grad=True)
opt = torch.optim.Adam([x], lr=0.1)
for step in range(60):
    k = torch.exp(-torch.cdist(x, x).square() / {})
    half = torch.linalg.cholesky(k)
    loss = half.diagonal().log().sum() + x.square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
NOISE = """\
x = torch.randn(6, 2)
noise = torch.tensor(0.05, requires_grad=True)
length = torch.tensor(-0.2, requires_grad=True)
opt = torch.optim.SGD([noise, length], lr=0.1)
for step in range(6):
    k = torch.exp(-torch.cdist(x[:, :1], x[:, :1]).square() * length.exp()) + noise * torch.eye(6)
    half = torch.linalg.cholesky(k)
    loss = half.diagonal().sum() + noise
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
TARGETS = """\
w = torch.randn(4, 3, requires_grad=True)
for step in range(3):
    x = torch.randn(8, 4)
    t = torch.randint(0, 3, (8,))
    if step == 1:
        t[2] = {}
    loss = F.cross_entropy(x @ w, t)
    loss.backward()
"""
WORDS = """\
net = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10))
for step in range(8):
    words = torch.randint(0, 10, (2, 6))
    if step == 5:
        words[1, 3] = 12
    loss = net(words).square().mean()
    loss.backward()
"""
SCORES = """\
x = torch.randn(4, 4, requires_grad=True)
scores = x.half() @ x.half().T
scores = scores.masked_fill(torch.eye(4).bool(), -1e9)
loss = scores.softmax(-1).float()[0, 1]
loss.backward()
"""


def found_in(program: str, folder: Path, *, verify: bool = False) -> Finding:
    report = diagnosed_text(f"{HEAD}{program}", folder, verify=verify)
    assert exit_code(report, Severity.ERROR) == 1
    assert report.trace.ending.kind == "raised"
    (found,) = report.findings
    return found


def line_of(found: Finding, folder: Path) -> str:
    return (folder / "program.py").read_text().splitlines()[found.location.line - 1].strip()


def mended(found: Finding, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    fix = found.fixes[0]
    assert fix.verified is True
    text = patched(fix.patch, folder)
    exec(text, {"__name__": "__main__"})
    return text


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_matrix_that_is_not_definite_is_told_by_its_eigenvalues(tmp_path, monkeypatch):
    found = found_in(KERNEL.format("50.0"), tmp_path, verify=True)

    assert (found.rule, line_of(found, tmp_path)) == ("GS208", "half = torch.linalg.cholesky(k)")
    smallest, largest = found.evidence["smallest"], found.evidence["largest"]
    assert abs(smallest) < 1e-5 < 1.0 < largest  # type: ignore[operator,arg-type]
    assert len(found.evidence["earlier"]) >= 2  # type: ignore[arg-type]
    assert "torch.eye(" in mended(found, tmp_path, monkeypatch)


def test_a_matrix_that_is_no_covariance_gets_no_jitter(tmp_path):
    matrix = "a = torch.tensor([[1.0, 2.0], [2.0, 1.0]], requires_grad=True)\n"

    found = found_in(f"{matrix}torch.linalg.cholesky(a).sum().backward()\n", tmp_path)

    assert found.evidence["smallest"] == pytest.approx(-1.0)
    assert "no covariance" in found.why
    assert [fix.title for fix in found.fixes] == [
        "learn the factor of `a`, with a positive diagonal"
    ]


def test_a_matrix_of_zeros_gets_jitter_of_a_size_of_its_own(tmp_path):
    made = "w = torch.zeros(3, 2, requires_grad=True)\na = w @ w.mT\n"

    found = found_in(f"{made}torch.linalg.cholesky(a).sum().backward()\n", tmp_path)

    assert found.why == "All its elements are 0."
    assert found.fixes[0].title == "add 1e-06 to the diagonal"


@pytest.mark.parametrize("matrices, order", [(100, 2), (1, 400)])
def test_many_matrices_and_large_ones_are_looked_at_too(matrices, order, tmp_path):
    text = f"a = torch.eye({order}).repeat({matrices}, 1, 1)\na[-1, 0, 0] = -1.0\n"

    found = found_in(
        f"{text}torch.linalg.cholesky(a.requires_grad_()).sum().backward()\n", tmp_path
    )

    assert (found.rule, found.evidence["smallest"]) == ("GS208", -1.0)


def test_a_noise_that_became_negative_is_learnt_as_its_logarithm(tmp_path, monkeypatch):
    found = found_in(NOISE, tmp_path, verify=True)

    assert "`noise` as well" in found.why
    assert found.fixes[0].verified
    text = mended(found, tmp_path, monkeypatch)
    assert "log_noise = torch.tensor(0.05).log().requires_grad_()" in text
    assert "+ log_noise.exp() * torch.eye(6)" in text


SCALED = """\
x = torch.randn(6, 2)
base = torch.exp(-torch.cdist(x, x).square()) + 0.1 * torch.eye(6)
scale = torch.tensor({start}, requires_grad=True)
opt = torch.optim.SGD([scale], lr=0.1)
for step in range(6):
    half = torch.linalg.cholesky({matrix})
    loss = half.diagonal().sum() + scale
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_a_scale_that_makes_the_whole_matrix_and_became_negative_is_one(tmp_path, monkeypatch):
    found = found_in(SCALED.format(start=0.1, matrix="base * scale"), tmp_path, verify=True)

    assert "`scale` as well" in found.why
    assert "cholesky(base * log_scale.exp())" in mended(found, tmp_path, monkeypatch)


def test_the_logarithm_of_a_scale_may_be_negative(tmp_path):
    matrix = "(2 * scale).exp() * (base - torch.eye(6) * 1.2)"

    found = found_in(SCALED.format(start=-0.1, matrix=matrix), tmp_path)

    assert "as well" not in found.why
    assert not any("logarithm" in fix.title for fix in found.fixes)


def test_two_parameters_that_have_become_negative_are_learnt_together(tmp_path, monkeypatch):
    text = NOISE.replace("noise = ", "scale = torch.tensor(0.05, requires_grad=True)\nnoise = ", 1)
    text = text.replace("length]", "length, scale]").replace("sum() +", "sum() + scale +")
    text = text.replace("    k = ", "    torch.distributions.Normal(0.0, scale)\n    k = ")

    found = found_in(text, tmp_path, verify=True)

    text = mended(found, tmp_path, monkeypatch)
    assert "log_noise.exp()" in text
    assert "Normal(0.0, scale)" not in text


def test_a_covariance_that_a_distribution_refuses(tmp_path):
    matrix = "b = torch.tensor([[1.0, 2.0], [2.0, 1.0]], requires_grad=True)\n"
    made = "d = torch.distributions.MultivariateNormal(torch.zeros(2), b)\n"

    found = found_in(f"{matrix}{made}d.log_prob(torch.ones(2)).backward()\n", tmp_path)

    assert (found.rule, found.evidence["smallest"]) == ("GS208", pytest.approx(-1.0))


@pytest.mark.parametrize("op", ["torch.linalg.inv(a)", "torch.linalg.solve(a, b)"])
def test_a_singular_matrix_is_told_by_its_singular_values(op, tmp_path, monkeypatch):
    made = "a = torch.tensor([[1.0, 2.0], [2.0, 4.0]], requires_grad=True)\nb = torch.ones(2)\n"

    found = found_in(f"{made}{op}.sum().backward()\n", tmp_path, verify=True)

    assert (found.rule, found.evidence["largest"]) == ("GS208", pytest.approx(5.0))
    assert "torch.eye(" in mended(found, tmp_path, monkeypatch)


def test_a_program_that_tries_again_with_jitter_is_right(tmp_path):
    again = """\
a = torch.ones(3, 3, requires_grad=True)
for jitter in (0.0, 1e-3):
    try:
        half = torch.linalg.cholesky(a + jitter * torch.eye(3))
    except torch.linalg.LinAlgError:
        pass
half.diagonal().sum().backward()
"""

    assert diagnosed_text(f"{HEAD}{again}", tmp_path).verdict == "healthy"


def test_another_exception_is_not_put_down_to_what_was_caught(tmp_path):
    other = """\
a = torch.ones(3, 3, requires_grad=True)
try:
    torch.linalg.cholesky(a)
except torch.linalg.LinAlgError:
    pass
a.sum().backward()
raise KeyError("other")
"""

    report = diagnosed_text(f"{HEAD}{other}", tmp_path)

    assert (report.findings, report.verdict) == ((), "failed")


def test_an_index_is_told_with_its_place_and_the_size(tmp_path):
    found = found_in(WORDS, tmp_path)

    assert (found.rule, found.step) == ("GS505", 5)
    assert line_of(found, tmp_path) == "loss = net(words).square().mean()"
    told = {key: found.evidence[key] for key in ("index", "value", "size", "bad", "numel")}
    assert told == {"index": [1, 3], "value": 12, "size": 10, "bad": 1, "numel": 12}


@pytest.mark.parametrize(
    ("op", "value", "size"),
    [
        ("x.gather(1, torch.tensor([[0], [7]]))", 7, 3),
        ("x.index_select(0, torch.tensor([1, 2]))", 2, 2),
        ("x[torch.tensor([-3])]", -3, 2),
        ("x[:, torch.tensor([3])]", 3, 3),
        ("x.scatter(1, torch.tensor([[5]]), 1.0)", 5, 3),
        ("F.embedding(torch.tensor([2]), x)", 2, 2),
        ("F.cross_entropy(x, torch.tensor([1, 3]))", 3, 3),
        ("F.nll_loss(x, torch.tensor([1, -1]))", -1, 3),
        ("F.cross_entropy(x.T[None], torch.tensor([[0, 9]]))", 9, 3),
    ],
)
def test_indices_of_many_ops(op, value, size, tmp_path):
    made = "x = torch.randn(2, 3, requires_grad=True)\n"

    found = found_in(f"{made}loss = {op}.sum()\nloss.backward()\n", tmp_path)

    assert (found.rule, found.evidence["value"], found.evidence["size"]) == ("GS505", value, size)


def test_targets_that_mean_no_class_are_left_out(tmp_path, monkeypatch):
    found = found_in(TARGETS.format(-1), tmp_path, verify=True)

    assert (found.rule, found.evidence["value"]) == ("GS505", -1)
    assert "F.cross_entropy(x @ w, t, ignore_index=-1)" in mended(found, tmp_path, monkeypatch)


def test_a_target_that_is_a_class_too_many_is_not_left_out(tmp_path):
    found = found_in(TARGETS.format(3), tmp_path)

    assert [fix.safety for fix in found.fixes] == ["display-only"]


def test_a_number_beyond_half_precision_is_replaced_by_its_largest(tmp_path, monkeypatch):
    found = found_in(SCORES, tmp_path, verify=True)

    assert (found.rule, found.evidence["value"]) == ("GS204", -1e9)
    assert line_of(found, tmp_path).startswith("scores = scores.masked_fill(")
    assert "torch.finfo(scores.dtype).min" in mended(found, tmp_path, monkeypatch)


@pytest.mark.parametrize("made", ["x.new_full((2, 1), -1e6)", "torch.full_like(x, -1e6)"])
@pytest.mark.long
def test_a_fill_beyond_half_precision_is_replaced_as_well(made, tmp_path, monkeypatch):
    text = f"x = torch.randn(2, 3).half().requires_grad_()\nworst = {made}\n"
    text += "torch.maximum(x, worst).sum(dtype=torch.float32).backward()\n"

    found = found_in(text, tmp_path, verify=True)

    mend = made.replace("-1e6", "torch.finfo(x.dtype).min")
    assert mend in mended(found, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "line",
    [
        "torch.distributions.Normal(h, torch.ones(4)).log_prob(torch.zeros(4)).sum().backward()",
        "torch.linalg.eigvalsh(h.diag()).sum().backward()",
    ],
)
def test_what_refuses_nan_is_traced_to_where_it_was_born(line, tmp_path):
    born = "x = torch.tensor([1.0, 0.0, 2.0, 3.0], requires_grad=True)\nh = x.log() * x.sign()\n"

    report = diagnosed_text(f"{HEAD}{born}{line}\n", tmp_path)

    assert report.findings[0].op == "log"


needs_its_error = pytest.mark.skipif(
    not hasattr(torch, "AcceleratorError"), reason="needs a later torch"
)


@needs_its_error
def test_an_assertion_on_a_gpu_asks_for_a_run_on_the_cpu(tmp_path):
    lines = """\
error = torch.AcceleratorError("CUDA error: device-side assert triggered")
error.error_code = 710
raise error
"""

    found = found_in(lines, tmp_path)

    assert (found.rule, line_of(found, tmp_path)) == ("GS505", "raise error")
    assert found.fixes[0].title == "run it on the CPU"


@needs_its_error
def test_what_a_gpu_refuses_later_is_looked_at_before(monkeypatch, tmp_path):
    monkeypatch.setattr("gradscope.record.mode.runs_later", torch.is_tensor)
    lines = """\
table = nn.Embedding(10, 4)
optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
for step in range(9):
    words = torch.tensor([[3, 4], [5, 12 if step == 6 else 1]])
    try:
        loss = table(words).square().sum()
    except IndexError:
        error = torch.AcceleratorError("CUDA error: device-side assert triggered")
        error.error_code = 710
        raise error
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

    found = found_in(lines, tmp_path)

    assert found.rule == "GS505" and "table(words)" in line_of(found, tmp_path)
    assert "`words[1, 1]` is 12" in found.message


PLAYED = """\
net = nn.Linear(4, 3)
for step in range(3):
    legal = torch.rand(6, 3) > 0.2
    legal[1] = step < 2
    logits = net(torch.randn(6, 4)).masked_fill(~legal, float("-inf"))
    {}
    loss = -logits.masked_fill(~legal, 0.0).mean()
    net.zero_grad()
    loss.backward()
"""
CHECKED = """\
scores = logits.softmax(-1)
    if scores.isnan().any():
        raise ValueError("no legal move")"""


@pytest.mark.parametrize(
    ("line", "patch"),
    [
        (
            "move = torch.distributions.Categorical(logits=logits).sample()",
            "logits=torch.where(logits.isfinite().any(-1, keepdim=True), logits, 0.0))",
        ),
        (CHECKED, ""),
    ],
    ids=["by a library", "by the program"],
)
@pytest.mark.long
def test_an_exception_over_a_nan_tells_where_that_was_born(line, patch, tmp_path):
    (finding,) = diagnosed_text(HEAD + PLAYED.format(line), tmp_path, verify=True).findings

    assert finding.location.line == 11
    assert finding.fixes[0].verified is True
    assert patch in (finding.fixes[0].patch or "")


def test_a_guard_that_leaves_what_is_refused_is_none(tmp_path):
    odds = "h = torch.full((4,), 3.0, requires_grad=True)\np = h / torch.zeros(4)\n"
    line = "torch.distributions.Bernoulli(p).log_prob(torch.ones(4)).sum().backward()\n"

    (finding,) = diagnosed_text(HEAD + odds + line, tmp_path, verify=True).findings

    assert finding.rule == "GS201" and finding.location is not None
    assert finding.location.line == 7
    assert all(fix.verified is not True for fix in finding.fixes)


def test_an_exception_beside_a_nan_that_is_data_is_told_alone(tmp_path):
    program = HEAD + "pad = torch.full((2,), float('nan')) * 2\nraise KeyError('missing')\n"

    report = diagnosed_text(program, tmp_path)

    assert report.findings == () and exit_code(report, Severity.ERROR) == 2


POLICY = """\
from torch.distributions import Normal, kl_divergence

body, head = nn.Linear(3, 8), nn.Linear(8, 4)
def scale_of(raw):
    {}
for step in range(3):
    mean, raw = head(torch.tanh(body(torch.randn(6, 3)))).chunk(2, -1)
    scale = scale_of(raw)
    d = Normal(mean, scale)
    loss = d.rsample().square().mean() + kl_divergence(d, Normal(0.0, 1.0)).mean()
    loss.backward()
"""


@pytest.mark.parametrize(
    ("scale", "patched"),
    [
        ("return torch.relu(raw)", "return F.softplus(raw)"),
        ("return raw * 2", "d = Normal(mean, F.softplus(scale))"),
        ("return nn.Linear(2, 2)(raw)", "return F.softplus(nn.Linear(2, 2)(raw))"),
        ("return torch.exp(raw - 200)", "d = Normal(mean, F.softplus(scale))"),
    ],
)
@pytest.mark.long
def test_a_scale_that_a_distribution_refuses_is_led_back_to_what_gave_it(scale, patched, tmp_path):
    found = found_in(POLICY.format(scale), tmp_path, verify=True)

    assert found.rule == "GS203"
    assert line_of(found, tmp_path) == scale
    fix = found.fixes[0]
    assert fix.verified
    assert patched in str(fix.patch)


def test_a_concentration_that_another_distribution_refuses_is_led_back_too(tmp_path):
    program = (
        "from torch.distributions import Beta\n\nbody = nn.Linear(3, 8)\n"
        "one, other = nn.Linear(8, 1), nn.Linear(8, 1)\nh = torch.tanh(body(torch.randn(6, 3)))\n"
        "a = F.softplus(one(h))\nb = torch.relu(other(h))\nd = Beta(a, b)\n"
        "loss = -d.log_prob(torch.rand(6, 1)).mean()\nloss.backward()\n"
    )

    found = found_in(program, tmp_path, verify=True)

    assert line_of(found, tmp_path) == "b = torch.relu(other(h))"
    assert found.fixes[0].verified


@pytest.mark.parametrize("op", sorted(REFUSES))
def test_an_op_refuses_what_lies_outside_of_its_domain(op: str) -> None:
    """And nothing that lies inside, ends included."""
    good = torch.tensor([0.25, 1.0])
    for domain in REFUSES[op]:
        given = [good] * (1 + max(one.position for one in REFUSES[op]))
        more = [1] if op == "multinomial" else []
        called = getattr(F, op, None) or getattr(torch, op)
        called(*given, *more)
        for outside in (domain.low - 1, domain.high + 1):
            if math.isfinite(outside):
                given[domain.position] = torch.tensor([0.5, outside])
                with pytest.raises(RuntimeError):
                    called(*given, *more)


@pytest.mark.parametrize("op", sorted(TAKES_SOME))
def test_an_op_that_takes_some_of_what_is_there_refuses_nothing(op: str) -> None:
    some, none = torch.tensor([0.25, 1.0]), torch.tensor([])
    joins = TAKES_SOME[op] == "tensors"
    given, more = ([some], []) if joins else (some, none)
    called = getattr(torch, op)
    called(given)
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        called(more)


OF_NOTHING = """\
for step in range(3):
    h = net(x)
    terms = []
    for row in h:
        near = row[row.abs() < (2.0 if step < 2 else 0.0)]
        {choose}
    {loss}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("choose", "loss", "line", "patch"),
    [
        (
            "terms.append(near.amax())",
            "loss = sum(terms, h.sum())",
            "near.amax()",
            "if not near.numel():\n            continue\n        terms.append(near.amax())",
        ),
        (
            "terms += [near.sum()] if len(near) else []",
            "loss = torch.stack(terms).mean()",
            "torch.stack(terms)",
            "loss = torch.stack(terms).mean() if terms else h.sum() * 0",
        ),
    ],
)
def test_what_refuses_nothing_is_left_out_where_there_is_nothing(
    choose: str, loss: str, line: str, patch: str, tmp_path: Path
) -> None:
    head = "net, x = nn.Linear(4, 3), 0.1 * torch.randn(6, 4)\n"
    head += "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"

    found = found_in(head + OF_NOTHING.format(choose=choose, loss=loss), tmp_path, verify=True)

    assert found.rule == "GS207"
    assert line in line_of(found, tmp_path)
    assert found.fixes[0].verified
    assert patch in patched(found.fixes[0].patch, tmp_path)


NET = "net = nn.Linear(4, 1)\nx, y = torch.randn(16, 4), torch.randint(0, 2, (16, 1)).float()\n"


@pytest.mark.parametrize(
    ("program", "line", "patched"),
    [
        (NET + "F.binary_cross_entropy(net(x), y).backward()\n",
         "F.binary_cross_entropy(net(x), y).backward()",
         "F.binary_cross_entropy_with_logits(net(x), y)"),
        (NET + "criterion = nn.BCELoss()\nout = net(x)\ncriterion(out, y).backward()\n",
         "out = net(x)", "criterion = nn.BCEWithLogitsLoss()"),
        ("w = torch.tensor([0.2, -0.1, 1.3], requires_grad=True)\np = w * 2\n"
         "(torch.bernoulli(p) * w).sum().backward()\n", "p = w * 2",
         "torch.bernoulli(p.clamp(0, 1))"),
        ("w = torch.tensor([0.2, -0.1], requires_grad=True)\nscale = w * 2\n"
         "((torch.normal(w, scale) - w) ** 2).sum().backward()\n", "scale = w * 2",
         "torch.normal(w, F.softplus(scale))"),
        ("from torch.distributions import Bernoulli\nw = torch.tensor([0.2, 1.3])\n"
         "w.requires_grad_()\np = w * 2\nd = Bernoulli(p)\n(d.probs * w).sum().backward()\n",
         "p = w * 2", "Bernoulli(p.clamp(0, 1))"),
    ],
)  # fmt: skip
@pytest.mark.long
def test_numbers_that_an_op_refuses_are_led_back_to_what_gave_them(
    program: str, line: str, patched: str, tmp_path: Path
) -> None:
    found = found_in(program, tmp_path, verify=True)

    assert found.rule == "GS203"
    assert line_of(found, tmp_path) == line
    assert found.fixes[0].verified
    assert patched in str(found.fixes[0].patch)


def test_targets_beyond_a_probability_are_data(tmp_path: Path) -> None:
    program = NET + "F.binary_cross_entropy(net(x).sigmoid(), y * 2).backward()\n"

    found = found_in(program, tmp_path)

    assert found.rule == "GS203" and "as its `target`" in found.message
    assert [fix.kind for fix in found.fixes] == ["data"]


@pytest.mark.parametrize("called", ["eigvalsh", "svdvals"])
def test_a_matrix_without_eigenvalues_is_led_back_to_where_it_broke(
    called: str, tmp_path: Path
) -> None:
    program = (
        "x = torch.randn(5, 5, requires_grad=True)\nc = x @ x.T\nscale = (x - x).sum()\n"
        f"c = c / scale\ntorch.linalg.{called}(c).sum().backward()\n"
    )

    found = found_in(program, tmp_path)

    assert found.rule == "GS201" and line_of(found, tmp_path) == "c = c / scale"
    assert [(one.tensor, one.trouble) for one in found.symptoms] == [("c", "inf")]


def test_what_is_added_to_a_matrix_of_zeros_is_nobodys_noise(tmp_path):
    """It is all that the loss is made of."""
    program = """\
import torch

noise = torch.zeros((), requires_grad=True)
error = torch.tensor([1.0, -2.0])
covariance = noise * torch.eye(2)
loss = error @ torch.linalg.solve(covariance, error)
loss.backward()
"""

    (found,) = diagnosed_text(program, tmp_path, verify=True).findings

    assert found.rule == "GS208"
    assert not any(fix.verified for fix in found.fixes)


def test_an_index_of_the_data_is_not_bound(tmp_path):
    table = (
        "table = torch.randn(3, 10, requires_grad=True)\nwords = torch.tensor([[1], [10], [2]])\n"
    )
    report = diagnosed_text(f"{HEAD}{table}table.gather(1, words).sum()\n", tmp_path, verify=True)
    first, *others = report.findings[0].fixes

    assert first.title == "make room for 11 or more, or map the indices"
    assert not any(fix.patch for fix in others)


FILTERED = """\
from torch.distributions import MultivariateNormal
torch.manual_seed(0)
f = (torch.eye(4) + 0.1 * torch.randn(4, 4)).requires_grad_()
mean, cov, loss = torch.zeros(4), 100 * torch.eye(4), 0.0
for y in torch.randn(4, 4):
    cov = f @ cov @ f.T + torch.eye(4)
    loss = loss - MultivariateNormal({mean}cov).log_prob(y)
    cov = torch.linalg.inv(cov + torch.tril(torch.full((4, 4), 1e-3)))
loss.backward()
"""


@pytest.mark.parametrize("mean", ["mean, ", "loc=mean, covariance_matrix="])
def test_a_covariance_that_has_lost_its_symmetry(mean, tmp_path, monkeypatch):
    found = found_in(FILTERED.format(mean=mean), tmp_path, verify=True)

    assert (found.rule, found.evidence["role"]) == ("GS203", "covariance_matrix")
    assert "    cov = 0.5 * (cov + cov.mT)\n" in mended(found, tmp_path, monkeypatch)
