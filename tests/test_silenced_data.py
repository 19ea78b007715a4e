"""GS204: an overflow in ops without a graph, of half-precision data, that becomes a factor of 0."""

import pytest
from corpus import diagnosed_text, findings, patched

from gradscope.diagnose import diagnose
from gradscope.programs import RunOptions, parse_target, run

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain, self.last = nn.Parameter(torch.ones(8)), nn.Linear(8, 1)

    def forward(self, x):
        {body}
        return self.last(x.float() * self.gain)


net, data, target = Net(), {data}, torch.randn(16, 1)
{before}
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(5):
    loss = (net(data) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
COUNTS = "(3000 * torch.randn(16, 8)).half()"
NORM = "power = x.pow(2).mean(-1, keepdim=True)"
SCALED = f"{NORM}\n        x = x.float() * torch.rsqrt(power.float() + 1e-5)"
ROOT = "x = x / {}.sum(-1, keepdim=True).sqrt()"
KERNEL = "x = torch.exp(-{}x.square().sum(-1, keepdim=True){}).expand(-1, 8)"
WITHOUT_GRAPH = """h = x.float() * self.gain
        with torch.no_grad():
            scale = h.half().square().mean(-1, keepdim=True).rsqrt()
        x = h * scale"""
DETACHED = """h = (x.float() * self.gain).half()
        x = h * h.square().mean(-1, keepdim=True).detach().rsqrt()"""
OVERFLOWS = {  # what is computed, and the op that overflows
    "of data": (SCALED, "pow"),
    "by a division": (ROOT.format("(x * x)"), "mul"),
    "as a weight": ("x = (1 / x.square().mean(-1, keepdim=True)).expand(-1, 8)", "pow"),
    "without a graph": (WITHOUT_GRAPH, "pow"),
    "detached": (DETACHED, "pow"),
    "as a kernel": (KERNEL.format("", " / 3e6"), "pow"),
    "as a kernel of a mean": (KERNEL.format("3e-4 * ", " / 1e3"), "pow"),
}
FILL = 'x = x.float().masked_fill(x.isfinite(), float("inf"))'
RIGHT = {  # and why there is no gradient, if there is none
    "in range": (SCALED, "torch.randn(16, 8).half()", None),
    "in float32": (SCALED, COUNTS.replace(".half()", ""), None),
    "far from the kernel": (KERNEL.format("0.5 * ", ""), COUNTS, "zero-weight"),
    "a sigmoid by hand": (
        "x = 1 / (1 + x.float().abs().exp())",
        COUNTS.replace("randn", "ones"),
        "zero-weight",
    ),
    "a mask": (f"{FILL}\n        x = 1 / x", COUNTS, "zero-weight"),
    "minus inf": (f"{FILL}\n        x = (-x / 1e9).exp()", COUNTS, "zero-weight"),
    "the logarithm of a mask": ("x = (x.log() / 1e9).exp()", "torch.zeros(16, 8)", "zero-weight"),
    "a distance of 0": ("x = 1 / (1 / x.float())", "torch.zeros(16, 8)", "zero-weight"),
    "what nothing is made of": (f"{SCALED}\n        x = torch.ones(16, 8)", COUNTS, None),
    "what a choice is made by": (
        f"{SCALED}\n        x = torch.where(x == 0, torch.ones(8), torch.zeros(8))",
        COUNTS,
        None,
    ),
}


def written(body: str, data: str = COUNTS, before: str = "") -> str:
    return PROGRAM.format(body=body, data=data, before=before)


@pytest.mark.parametrize(("body", "op"), OVERFLOWS.values(), ids=OVERFLOWS)
def test_the_overflow_is_told(body, op):
    (found,) = findings(written(body))

    assert (found.rule, found.op) == ("GS204", op)
    assert any(one.tensor.endswith("gain") for one in found.symptoms)


def test_so_is_one_before_the_first_step():
    before = f"x = data\n{NORM}\ndata = x * power.rsqrt()"
    (found,) = findings(written("pass", before=before))

    assert (found.rule, found.op) == ("GS204", "pow")
    assert "get a gradient of exactly 0 for it" in found.message


@pytest.mark.parametrize(("body", "data", "reason"), RIGHT.values(), ids=RIGHT)
def test_where_nothing_was_lost_there_is_nothing_of_it_to_tell(body, data, reason):
    found = findings(written(body, data))

    assert {one.rule for one in found} == ({"GS403"} if reason else set())
    assert not reason or reason in [one.evidence["reason"] for one in found]


@pytest.mark.long
def test_the_patch_computes_it_in_float32(here):
    (found,) = diagnosed_text(written(SCALED), here, verify=True).findings

    assert found.fixes[0].verified
    assert "        x = x.float()\n        power" in patched(found.fixes[0].patch, here)


@pytest.mark.long
def test_a_check_does_not_say_that_backward_visits_it(tmp_path):
    (tmp_path / "program.py").write_text(written(SCALED))
    target = parse_target(str(tmp_path / "program.py"))
    seen = run(target, RunOptions(hazards=True), silent=True)

    assert seen.hidden and not [one for one in diagnose(seen) if one.rule == "GS601"]
