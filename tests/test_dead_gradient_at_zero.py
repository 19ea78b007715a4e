"""GS403: parameters that start at 0 where the slope of what reads them is 0."""

from corpus import diagnosed_text

FACTORS = """\
import torch
from torch import nn


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Parameter(torch.zeros(12))
        self.factors = nn.Parameter({start})

    def forward(self, x):
        v = self.factors[x]
        return self.linear[x].sum(1) + (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(-1) / 2


torch.manual_seed(0)
x = torch.randint(12, (64, 3))
y = (x[:, 0] % 3 == x[:, 1] % 3).float()
model = Pairs()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
for step in range(6):
    loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_factors_that_start_at_0_and_are_squared_start_from_small_numbers(tmp_path):
    report = diagnosed_text(FACTORS.format(start="torch.zeros(12, 4)"), tmp_path, verify=True)
    (found,) = report.findings

    assert (found.rule, found.op) == ("GS403", "pow")
    assert found.evidence["parameters"] == ["model.factors"]
    fix = found.fixes[0]
    assert fix.verified
    assert (
        "+        self.factors = nn.Parameter(nn.init.normal_(torch.empty(12, 4), std=0.01))\n"
        in fix.patch
    )


def test_factors_that_start_from_small_numbers_are_right(tmp_path):
    text = FACTORS.format(start="0.01 * torch.randn(12, 4)")

    assert diagnosed_text(text, tmp_path).findings == ()


FROZEN = """\
import torch
from torch import nn

torch.manual_seed(0)
body, head = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)), nn.Linear(8, 1)
state = {{name: value.{cast} for name, value in body.state_dict().items()}}
state["1.running_var"] = (state["1.running_var"] * 300).square().{cast}
body.load_state_dict(state)
body[1].eval()
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=1e-3)
for step in range(4):
    x = torch.randn(16, 4)
    loss = (head(body(x)) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_variance_of_inf_is_told_as_what_leaves_no_slope(tmp_path):
    found = diagnosed_text(FROZEN.format(cast="half()"), tmp_path).findings
    (dead,) = (one for one in found if one.rule == "GS403")

    assert dead.evidence["reason"] == "by-inf"
    assert "body.0.weight" in dead.evidence["parameters"]
    assert (dead.location.line, dead.op) == (13, "native_batch_norm")


def test_a_large_variance_leaves_a_slope(tmp_path):
    found = diagnosed_text(FROZEN.format(cast="float()"), tmp_path).findings

    assert all(one.rule != "GS403" for one in found)
