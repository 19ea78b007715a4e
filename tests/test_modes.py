"""GS410: models in the wrong mode are noted, and those in the right one are not."""

from pathlib import Path

import pytest
from corpus import diagnosed_text, patched

from gradscope.facts import Finding

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), {part}, nn.ReLU(), nn.Linear(16, 1))
{setup}
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)


def score():
    {score}


for epoch in range(4):
    {before}
    for batch in range(4):
        x = torch.randn(16, 8)
        loss = (net(x) - x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    score()
"""
SCORED = "with torch.no_grad():\n        return net(torch.randn(32, 8)).mean()"
SEEN = "net(torch.randn(32, 8))"
EVALUATED = f"net.eval()\n    {SCORED}"


def noted(
    score: str, *, part: str = "nn.BatchNorm1d(16)", setup: str = "", before: str = "pass"
) -> str:
    return PROGRAM.format(score=score, part=part, setup=setup, before=before)


def found(program: str, folder: Path) -> list[Finding]:
    return [one for one in diagnosed_text(program, folder).findings if one.rule == "GS410"]


@pytest.mark.parametrize(
    ("program", "severity", "mode", "line"),
    [
        (noted(EVALUATED), "warning", "eval", "net.eval()"),
        (noted(EVALUATED, part="nn.Dropout(0.2)"), "warning", "eval", "net.eval()"),
        (noted(SCORED), "note", "train", "net(torch.randn(32, 8))"),
        (noted(SCORED, part="nn.Dropout(0.2)"), "note", "train", "net(torch.randn(32, 8))"),
        (noted("pass", before="net.eval()"), "warning", "eval", "net.eval()"),
        (noted("pass", before="net.eval()", setup=SEEN), "note", "eval", "net.eval()"),
        (noted("pass", before="net.eval()", part="nn.Dropout(0.2)"), "note", "eval", "net.eval()"),
    ],
)
@pytest.mark.long
def test_a_mode_that_was_left_on_is_told(program, severity, mode, line, tmp_path):
    (one,) = found(program, tmp_path)

    assert (one.severity, one.evidence["mode"]) == (severity, mode)
    place = one.location
    assert program.splitlines()[place.line - 1][place.col : place.end_col] == line


TRAINED = "    net.train()\n    for batch in"


@pytest.mark.parametrize(
    ("score", "repaired"),
    [
        (EVALUATED, noted(EVALUATED).replace("    for batch in", TRAINED)),
        (SCORED, noted(EVALUATED).replace("    for batch in", TRAINED)),
    ],
)
@pytest.mark.long
def test_the_mode_is_set_where_training_goes_on(score, repaired, here):
    (one,) = diagnosed_text(noted(score), here, verify=True).findings

    assert one.fixes[0].verified is True
    assert patched(one.fixes[0].patch, here) == repaired
    assert found(repaired, here) == []


FROZEN = """\
net.eval()
for parameter in net.parameters():
    parameter.requires_grad_(False)
picture = torch.zeros(1, 8, requires_grad=True)
for step in range(4):
    net(picture).square().mean().backward()
"""
FAKES = """\
import torch
from torch import nn

G = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
D = nn.Linear(4, 1)
opts = [torch.optim.SGD(one.parameters(), lr=0.01) for one in (G, D)]
for step in range(6):
    with torch.no_grad():
        fake = G(torch.randn(8, 4))
    losses = lambda: D(fake).mean(), lambda: -D(G(torch.ones(8, 4))).mean()
    for opt, loss in zip(opts[::-1], losses):
        opt.zero_grad()
        loss().backward()
        opt.step()
"""


@pytest.mark.parametrize(
    "program",
    [
        noted(EVALUATED, before="net.train()"),
        noted(EVALUATED, part="nn.LayerNorm(16)"),
        noted(SCORED, part="nn.LayerNorm(16)"),
        noted("pass", setup="net[1].eval()"),
        noted(f"net.train()\n    {SCORED}"),
        noted(f"net.eval()\n    net[1].train()\n    {SCORED}\n", before="net.train()"),
        noted("pass", setup=SCORED.replace("return ", "").replace("\n        ", "\n    ")),
        FAKES,
        noted("pass") + FROZEN,
    ],
    ids=["both", "eval without parts", "train without parts", "statistics kept",
         "statistics taken anew", "samples by Dropout", "before the training", "of a generator",
         "frozen"],
)  # fmt: skip
@pytest.mark.long
def test_the_right_mode_is_not_noted(program, tmp_path):
    assert found(program, tmp_path) == []


TWICE = (
    PROGRAM.format(score="net.eval()", part="nn.BatchNorm1d(16)", setup="", before="net.train()")
    + """

for batch in range(8):
    x = torch.randn(16, 8)
    loss = (net(x) - x[:, 1:2]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
)


def test_what_goes_on_in_another_loop_may_keep_the_statistics(tmp_path):
    (noted_only,) = found(TWICE, tmp_path)

    assert noted_only.severity.value == "note"


TEACHER = """\
import torch
from torch import nn

torch.manual_seed(0)


def network():
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


def fit(net, wanted, steps):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(steps):
        x = torch.randn(16, 8)
        loss = (net(x) - wanted(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


teacher, student = network(), network()
fit(teacher, lambda x: x[:, :2], 5)
teacher.eval()
fit(student, torch.no_grad()(teacher), 8)
"""


def test_a_teacher_whose_training_is_over_may_stay_in_eval_mode(tmp_path):
    assert diagnosed_text(TEACHER, tmp_path).findings == ()


def test_the_mode_was_set_before_the_passes_and_not_by_the_evaluation_at_the_end(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    text = noted(EVALUATED).replace(
        "        x = ", "        if not batch:\n            score()\n        x = "
    )

    (kept,) = diagnosed_text(text, tmp_path, verify=True).findings

    assert (kept.rule, kept.fixes[0].verified) == ("GS410", True)
    assert "        net.train()\n        loss = " in patched(kept.fixes[0].patch, tmp_path)
