"""GS403: parameters that start at 0 where the slope of what reads them is 0."""

from pathlib import Path

import pytest
from corpus import diagnosed_text

from gradscope.facts import LossMove

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


POOLED = """\
import torch
from torch import nn

torch.manual_seed(0)
conv, norm, head = nn.Conv2d(3, 8, 1, bias=False), nn.GroupNorm({groups}, 8), nn.Linear(8, 1)
optimizer = torch.optim.SGD([*conv.parameters(), *norm.parameters(), *head.parameters()], lr=0.1)
for step in range(4):
    x = torch.randn(4, 3, 5, 5)
    pooled = conv(x.mean((2, 3), keepdim=True))
    loss = (head(torch.relu(norm(pooled)).flatten(1)) - x.mean((1, 2, 3))[:, None]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_normalisation_of_single_values_is_told(tmp_path):
    found = diagnosed_text(POOLED.format(groups=8), tmp_path).findings[0]

    assert (found.rule, found.op, found.location.line) == ("GS207", "native_group_norm", 10)
    assert found.evidence["shape"] == [4, 8, 1, 1]


def test_a_normalisation_of_several_values_has_a_slope(tmp_path):
    assert diagnosed_text(POOLED.format(groups=2), tmp_path).findings == ()


UNFILLED = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 8)
project = nn.Parameter(torch.empty(8, 3))
optimizer = torch.optim.SGD([*net.parameters(), project], lr=0.1)
for step in range(3):
    scores = nn.functional.normalize(net(torch.randn(6, 4)) @ project, dim=-1)
    loss = nn.functional.cross_entropy(scores, torch.arange(6) % 3)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_weight_that_nobody_filled_is_drawn_at_random(tmp_path):
    (found,) = diagnosed_text(UNFILLED, tmp_path, verify=True).findings
    fix = found.fixes[0]

    assert found.rule == "GS503" and fix.verified
    new = "project = nn.Parameter(nn.init.xavier_uniform_(torch.empty(8, 3)))"
    assert f"+{new}\n" in fix.patch


FADING = """\
import torch
from torch import nn

torch.manual_seed(0)
decay, first, last = nn.Parameter(torch.zeros(8)), nn.Linear(3, 8), nn.Linear(8, 1)
optimizer = torch.optim.SGD([decay, *first.parameters(), *last.parameters()], lr=0.1)
for step in range(3):
    cue, stream = torch.randn(5, 3), torch.randn(60, 5, 8)
    keep, h = torch.sigmoid(decay), first(cue)
    for x in stream:
        h = keep * h + (1 - keep) * x
    loss = (last(h) - cue[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_what_fades_by_its_slopes_is_not_carried_along_as_logarithms(tmp_path):
    (found,) = diagnosed_text(FADING, tmp_path).findings

    assert found.rule == "GS402"
    assert not any("logarithms" in fix.title for fix in found.fixes)


ONE_SCORE = """\
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(64, 3)
y = (x[:, :1] > 0).float()
{model}
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(6):
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LINEAR = "model = nn.Linear(3, 1)"
ENDED = "model = nn.Sequential(nn.Linear(3, 1), nn.Softmax(dim=1))"
OF_ONE = {
    "method": (LINEAR, "nn.functional.binary_cross_entropy(model(x).softmax(1), y)"),
    "layer": (ENDED, "nn.functional.binary_cross_entropy(model(x), y)"),
    "inside a loss": (LINEAR, "nn.functional.cross_entropy(model(x), y)"),
    "inside a layer": (f"{LINEAR}\ncriterion = nn.CrossEntropyLoss()", "criterion(model(x), y)"),
    "by hand": (LINEAR, "-(y * torch.log_softmax(model(x), dim=1)).mean()"),
}
SIGMOIDS = {
    "method": "torch.sigmoid(model(x))",
    "layer": "nn.Sigmoid()",
    "inside a loss": "nn.functional.binary_cross_entropy_with_logits(model(x), y)",
    "inside a layer": "nn.BCEWithLogitsLoss()",
    "by hand": "nn.functional.logsigmoid(model(x))",
}


@pytest.mark.parametrize("kind", OF_ONE)
@pytest.mark.long
def test_a_softmax_over_one_score_becomes_a_sigmoid(kind, tmp_path):
    model, loss = OF_ONE[kind]
    report = diagnosed_text(ONE_SCORE.format(model=model, loss=loss), tmp_path, verify=True)
    (found,) = report.findings

    assert (found.rule, found.evidence["reason"]) == ("GS403", "single")
    fix = found.fixes[0]
    assert fix.verified
    added = [line for line in fix.patch.splitlines() if line.startswith("+")]
    assert SIGMOIDS[kind] in added[-1]


POOLING = """\
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(32, 10, 6)
y = x[:, 0, :1]
score, head = nn.Linear(6, 1), nn.Linear(6, 1)
optimizer = torch.optim.Adam([*score.parameters(), *head.parameters()], lr=1e-2)
for step in range(6):
    weights = torch.softmax(score(x), dim={dim})
    loss = (head((weights * x).sum(1)) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_scores_of_a_sequence_are_normalised_along_it(tmp_path):
    report = diagnosed_text(POOLING.format(dim=-1), tmp_path, verify=True)
    (found,) = report.findings

    assert (found.rule, found.evidence["parameters"]) == ("GS403", ["score.weight", "score.bias"])
    fix = found.fixes[0]
    assert fix.verified
    assert "+    weights = torch.softmax(score(x), dim=1)\n" in fix.patch


def test_scores_that_are_normalised_along_a_sequence_are_right(tmp_path):
    assert diagnosed_text(POOLING.format(dim=1), tmp_path).findings == ()


def test_a_sum_over_several_dimensions_is_looked_at_as_any_other(tmp_path):
    text = POOLING.format(dim=1).replace("score(x)", "score(x) - score(x).logsumexp((0, 1))")

    assert diagnosed_text(text, tmp_path).findings == ()


ADAPTED = """\
import torch
from torch import nn


class Adapted(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        {start}

    def forward(self, x):
        return self.base(x) + {product}


torch.manual_seed(0)
x = torch.randn(32, 4)
model = Adapted(nn.Linear(4, 1))
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
for step in range(8):
    loss = (model(x) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LAYERS = "self.down, self.up = nn.Linear(4, 2, bias=False), nn.Linear(2, 1, bias=False)\n        "
IN_TWO_LINES = "nn.init.zeros_(self.down.weight)\n        nn.init.zeros_(self.up.weight)"
FOR_BOTH = "for one in (self.down, self.up):"
FOR_EACH = f"{FOR_BOTH}\n            "
OWN = "self.down = nn.Parameter(torch.{0}(4, 2))\n        self.up = nn.Parameter(torch.{0}(2, 1))"


def with_layers(start: str) -> str:
    return ADAPTED.format(start=LAYERS + start, product="self.up(self.down(x))")


def first_of(text: str, folder: Path) -> tuple[int, list[str]]:
    """Where the factor is told that is to start from other numbers, and what the patch changes."""
    (found,) = diagnosed_text(text, folder).findings
    (product,) = found.related
    lines = text.splitlines()

    assert (found.rule, found.evidence["reason"]) == ("GS403", "zero-weight")
    assert "self.base(x)" in lines[product.location.line - 1]
    changed = found.fixes[0].patch.splitlines()[2:]
    return found.location.line, [one[0] + one[1:].strip() for one in changed if one[0] in "+-"]


@pytest.mark.parametrize(
    ("start", "line", "patch"),
    [
        (IN_TWO_LINES, 10, ["-nn.init.zeros_(self.down.weight)"]),
        (
            IN_TWO_LINES.replace("zeros_(self.down.weight)", "constant_(self.down.weight, 0.0)"),
            10,
            ["-nn.init.constant_(self.down.weight, 0.0)"],
        ),
        (
            "self.up.weight.data.zero_()\n        self.down.weight.data.fill_(0)",
            11,
            ["-self.down.weight.data.fill_(0)"],
        ),
        (
            "with torch.no_grad():\n            self.down.weight.zero_()\n"
            "        self.up.weight.data.zero_()",
            11,
            ["-self.down.weight.zero_()", "+pass"],
        ),
        (
            "self.fill(self.down)\n        self.fill(self.up)\n\n    def fill(self, one):\n"
            "        nn.init.zeros_(one.weight)",
            10,
            ["-self.fill(self.down)"],
        ),
        (
            f"{FOR_EACH}nn.init.zeros_(one.weight)",
            11,
            [f"-{FOR_BOTH}", "-nn.init.zeros_(one.weight)", "+nn.init.zeros_(self.up.weight)"],
        ),
        (
            "for one in (self.up.weight, self.down.weight):\n            nn.init.zeros_(one)",
            11,
            [
                "-for one in (self.up.weight, self.down.weight):",
                "-nn.init.zeros_(one)",
                "+nn.init.zeros_(self.up.weight)",
            ],
        ),
        (
            f"{FOR_EACH}one.weight.data.zero_()\n            one.requires_grad_(True)",
            11,
            ['+nn.init.kaiming_normal_(self.down.weight, nonlinearity="relu")'],
        ),
    ],
)
def test_of_two_factors_at_0_the_first_keeps_the_numbers_of_its_layer(start, line, patch, tmp_path):
    assert first_of(with_layers(start), tmp_path) == (line, patch)


@pytest.mark.parametrize(
    ("start", "line", "patch"),
    [
        (
            f"{OWN.format('empty')}\n        {FOR_EACH}nn.init.zeros_(one)",
            12,
            [
                f"-{FOR_BOTH}",
                "-nn.init.zeros_(one)",
                '+nn.init.kaiming_normal_(self.down, nonlinearity="relu")',
                "+nn.init.zeros_(self.up)",
            ],
        ),
        (
            "self.down, self.up = (nn.Parameter(torch.zeros(*n)) for n in ((4, 2), (2, 1)))",
            9,
            ['+nn.init.kaiming_normal_(self.down, nonlinearity="relu")'],
        ),
    ],
)
def test_of_two_factors_at_0_the_first_is_drawn(start, line, patch, tmp_path):
    text = ADAPTED.format(start=start, product="x @ self.down @ self.up")

    assert first_of(text, tmp_path) == (line, patch)


@pytest.mark.parametrize(
    "product",
    [
        "x @ self.down @ self.up",
        "x @ (self.down @ self.up)",
        "nn.functional.linear(x, self.up.T @ self.down.T)",
        "(self.up.T @ self.down.T @ x.T).T",
    ],
)
def test_the_first_factor_is_the_one_that_meets_the_input(product, tmp_path):
    text = ADAPTED.format(start=OWN.format("zeros"), product=product)
    old = "self.down = nn.Parameter(torch.zeros(4, 2))"
    new = "self.down = nn.Parameter(0.01 * torch.randn(4, 2))"

    assert first_of(text, tmp_path) == (9, [f"-{old}", f"+{new}"])


def test_two_factors_at_0_are_told_beside_what_learns(tmp_path):
    start = f"{OWN.format('zeros')}\n        self.offset = nn.Parameter(torch.zeros(1))"
    text = ADAPTED.format(start=start, product="x @ self.down @ self.up + self.offset")
    (found,) = diagnosed_text(text, tmp_path).findings

    assert (found.location.line, found.evidence["parameters"]) == (9, ["model.up", "model.down"])


def test_the_patch_of_two_factors_leaves_the_first_loss_as_it_was(tmp_path):
    (found,) = diagnosed_text(with_layers(IN_TWO_LINES), tmp_path, verify=True).findings
    fix = found.fixes[0]

    assert (found.step, fix.verified) == (0, True)
    assert [one.step for one in fix.verdict.effects.moves if isinstance(one, LossMove)] == [1]


@pytest.mark.parametrize(
    "start",
    [
        "nn.init.zeros_(self.up.weight)",
        "nn.init.zeros_(self.down.weight)",
        f"{IN_TWO_LINES}\n        nn.init.normal_(self.down.weight)",
    ],
)
def test_one_factor_at_0_is_right(start, tmp_path):
    assert diagnosed_text(with_layers(start), tmp_path).findings == ()
