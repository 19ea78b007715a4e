"""GS409 and GS405: gradients that are added up over passes, and what is done between these."""

import pytest
from corpus import diagnosed_text, loud, patched
from test_collectives import on_two_ranks

from gradscope.facts import Severity
from gradscope.repair.write.splice import spliced
from gradscope.source import read

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.{opt}
clip = torch.nn.utils.clip_grad_norm_


def loss_of():
    x = torch.randn(64, 16)
    return (net(x) - x.sum(1, keepdim=True)).square().{reduced}()


"""
SGD = HEAD.format(opt="SGD(net.parameters(), lr=1e-4)", reduced="mean")
ADAM = HEAD.format(opt="Adam(net.parameters(), lr=1e-4)", reduced="mean")
SUM = HEAD.format(opt="SGD(net.parameters(), lr=1e-6)", reduced="sum")
STEP = "    if (i + 1) % 4 == 0:\n        opt.step()\n        opt.zero_grad()\n"
ADDED = f"for i in range(16):\n    loss = loss_of(){{}}\n    loss.backward()\n{STEP}"
AMP = (
    "scaler = torch.amp.GradScaler('cpu', init_scale=1024.0)\nfor i in range(16):\n"
    "    loss = loss_of(){}\n    {}.backward()\n    if (i + 1) % 4 == 0:\n"
    "        scaler.step(opt)\n        scaler.update()\n        opt.zero_grad()\n"
)
CLIPS = "clip(net.parameters(), 0.1)"
CLIPPED = (
    f"{SGD}for i in range(16):\n    (loss_of() / 4).backward()\n{{}}    if (i + 1) % 4 == 0:\n"
    "{}        opt.step()\n        opt.zero_grad()\n"
)
EACH = CLIPPED.format(f"    {CLIPS}\n", "")


@pytest.mark.parametrize(
    ("program", "repaired"),
    [
        (SGD + ADDED.format(""), SGD + ADDED.format("").replace("loss.b", "(loss / 4).b")),
        (
            SGD + AMP.format("", "scaler.scale(loss)"),
            SGD + AMP.format("", "(scaler.scale(loss) / 4)"),
        ),
    ],
)
def test_a_sum_of_means_is_told_and_divided(program, repaired, here):
    (found,) = diagnosed_text(program, here, verify=True).findings

    assert (found.rule, found.severity) == ("GS409", Severity.WARNING)
    assert "backward" in program.splitlines()[found.location.line - 1]
    assert found.fixes[0].verified is True
    assert patched(found.fixes[0].patch, here) == repaired
    assert loud(repaired) == []


def under(name, program, kind):
    """The program with an optimizer of its own, which is torch's under another name."""
    own = f"import torch\n\n\nclass {name}(torch.optim.{kind}):\n    pass\n\n\n"
    return own + program.replace(f"torch.optim.{kind}(", f"{name}(")


@pytest.mark.parametrize("program", [ADAM, under("Mine", ADAM, "Adam")], ids=["torch's", "own"])
def test_it_is_a_note_where_the_optimizer_does_not_mind(program, tmp_path):
    (found,) = diagnosed_text(program + ADDED.format(""), tmp_path).findings

    assert (found.rule, found.severity) == ("GS409", Severity.NOTE)
    assert "divides by the size of the gradient" in found.why


def test_what_a_program_calls_its_own_optimizer_says_nothing(tmp_path):
    program = under("Adam", SGD, "SGD") + ADDED.format("")
    (found,) = diagnosed_text(program, tmp_path).findings

    assert (found.rule, found.severity) == ("GS409", Severity.WARNING)


def test_what_a_program_calls_its_own_function_says_nothing():
    """Its node is a `MeanBackward`, torch's a `MeanBackward0`."""
    own = (
        "class Mean(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        ctx.shape = x.shape\n        return x.sum()\n\n    @staticmethod\n"
        "    def backward(ctx, g):\n        return g.expand(ctx.shape)\n\n\ndef loss_of"
    )
    program = SUM.replace("def loss_of", own).replace("return (", "return Mean.apply((")
    assert loud(program.replace(".sum()\n\n\n", ")\n\n\n") + ADDED.format("")) == []


TWO_HEADS = (
    "import torch\nfrom torch import nn\n\nbody = nn.Linear(4, 4)\n"
    "heads = nn.ModuleList(nn.Linear(4, 1) for _ in range(4))\n"
    "opt = torch.optim.SGD([*body.parameters(), *heads.parameters()], lr=1e-3)\n"
    "for step in range(6):\n    x = torch.randn(8, 4)\n    for head in heads:\n"
    "        head(body(x)).square().mean().backward()\n    opt.step()\n    opt.zero_grad()\n"
)


@pytest.mark.parametrize(
    "program",
    [
        SGD + ADDED.format(" / 4"),
        SGD + ADDED.format(" * 0.25"),
        SGD + ADDED.format("").replace("loss.backward()", "loss.backward(torch.tensor(0.25))"),
        SGD + AMP.format(" / 4", "scaler.scale(loss)"),
        SUM + ADDED.format(""),
        SGD
        + ADDED.format("").replace(
            "        opt.step()",
            "        for p in net.parameters():\n            p.grad /= 4\n        opt.step()",
        ),
        TWO_HEADS,
        CLIPPED.format("", f"        {CLIPS}\n"),
        SGD + "for i in range(8):\n    opt.zero_grad()\n    loss_of().backward()\n"
        f"    {CLIPS}\n    opt.step()\n",
        SGD + "for i in range(8):\n    opt.zero_grad()\n    loss_of().backward()\n"
        f"    {CLIPS}\n    (0.1 * loss_of()).backward()\n    {CLIPS}\n    opt.step()\n",
    ],
    ids=[
        "divided", "multiplied", "weighted", "scaled", "summed", "by hand",
        "heads", "clipped once", "clipped each step", "two tasks",
    ],
)  # fmt: skip
def test_what_is_averaged_or_summed_on_purpose_is_silent(program):
    assert loud(program) == []


def test_clipping_after_each_pass_is_told_and_moved(here):
    (found,) = diagnosed_text(EACH, here, verify=True).findings

    assert (found.rule, found.evidence["order"]) == ("GS405", "between-passes")
    assert found.location is not None and CLIPS in EACH.splitlines()[found.location.line - 1]
    assert found.fixes[0].verified is True
    text = patched(found.fixes[0].patch, here)
    assert text == CLIPPED.format("", f"        {CLIPS}\n")
    assert loud(text) == []


RANKS = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
net = DistributedDataParallel(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    opt.zero_grad()
    loss = net(torch.randn(8, 4)).square().mean(){}
    loss.backward()
    for p in net.parameters():
        {}
    opt.step()
"""


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize(
    ("loss", "line", "told"),
    [
        ("", "p.grad /= dist.get_world_size()", "p.grad /= dist.get_world_size()"),
        (" / dist.get_world_size()", "pass", "loss.backward()"),
        ("\n    loss = loss / dist.get_world_size()", "pass", "loss.backward()"),
        (" / 2", "pass", None),
        (" * 0.5", "p.grad /= dist.get_world_size()", "p.grad /= dist.get_world_size()"),
        ("", "dist.all_reduce(p.grad)\n        p.grad /= dist.get_world_size()", None),
        ("", "pass", None),
    ],
    ids=["gradients", "loss", "loss anew", "half a mean", "both", "summed again", "once"],
)
@pytest.mark.long
def test_an_average_over_ranks_is_taken_once(loss, line, told, tmp_path, monkeypatch):
    program = RANKS.format(loss, line)

    report, _ = on_two_ranks(program, tmp_path, monkeypatch)

    if told is None:
        assert report.findings == ()
    else:
        (found,) = report.findings
        assert (found.rule, found.evidence["ranks"]) == ("GS409", 2)
        place = found.location
        assert program.splitlines()[place.line - 1].strip() == told
        right = RANKS.format(loss if "0.5" in loss else "", "pass").partition("    for p in")[0]
        assert spliced(read(place.file), found.fixes[0].edits).startswith(right)
