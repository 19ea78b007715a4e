"""Programs that use `torch.compile`: they run compiled, and where one goes wrong it runs again
without."""

import subprocess
import sys
from pathlib import Path

import pytest
from apart import traced

from gradscope.facts import Report

PROGRAM = """
import torch

torch.manual_seed(0)

def breaks(graph, inputs):
    def run(*args):
        return [one * float("nan") for one in graph(*args)]
    return run

def wrong(x):
    if (x * w).sum() > 0:  # which cannot be a part of one graph
        return x * w
    return -x * w

w = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
f = torch.compile({compiled})
for step in range(3):
    optimizer.zero_grad()
    f(torch.ones(3)).sum().backward()
    optimizer.step()
"""
LINE = 1 + PROGRAM[: PROGRAM.index("f = torch")].count("\n")


def report_of(compiled: str, folder: Path) -> Report:
    path = folder / "program.py"
    path.write_text(PROGRAM.format(compiled=compiled), encoding="utf-8")
    return traced(path)


@pytest.mark.long
def test_a_healthy_one_is_watched_alone_and_that_is_said(tmp_path):
    report = report_of('lambda x: x * w, backend="aot_eager"', tmp_path)
    (note,) = report.findings

    assert (report.verdict, report.runs, report.trace.inspected) == ("healthy", 1, 0)
    assert (note.rule, note.severity) == ("GS902", "note")
    assert note.location.line == LINE


def test_what_compiled_code_alone_breaks_is_told_as_that(tmp_path):
    report = report_of("lambda x: x * w, backend=breaks", tmp_path)
    (finding,) = report.findings

    assert (finding.rule, finding.severity) == ("GS902", "error")
    assert "finite when run eagerly" in finding.message
    assert report.runs == 2


@pytest.mark.long
def test_what_breaks_uncompiled_too_is_named_at_its_op(tmp_path):
    report = report_of('lambda x: (x - w).sqrt(), backend="aot_eager"', tmp_path)
    culprit, note = report.findings

    assert (culprit.rule, culprit.op, note.rule) == ("GS102", "sqrt", "GS902")
    assert culprit.location.line == LINE


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.long
def test_what_cannot_be_compiled_is_refused_as_ever(full, tmp_path):
    report = report_of(f'wrong, backend="eager", fullgraph={full}', tmp_path)

    assert (report.trace.ending.kind == "raised") is full
    assert ("torch._dynamo.exc." in report.trace.ending.detail) is full


WHOLE_STEP = """
import torch
from torch._dynamo.utils import counters

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

@torch.compile(backend="eager")
def step(x):
    net.train()
    loss = net(x).square().mean()
    loss = loss + loss.item() + sum(x.tolist()[0])
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    schedule.step()
    net.zero_grad()
    optimizer.zero_grad()
    return loss

for number in range(5):
    print(float(step(torch.ones(4, 3))))
    torch.ones(1) + 1
print(sum(counters["graph_break"].values()), dict(counters["stats"]))
"""


@pytest.mark.slow
def test_a_step_that_is_compiled_as_a_whole_runs_as_ever(tmp_path, capfd):
    path = tmp_path / "program.py"
    path.write_text(WHOLE_STEP, encoding="utf-8")
    subprocess.run([sys.executable, path], check=True)
    bare = capfd.readouterr().out
    report = traced(path)

    assert (report.verdict, [one.rule for one in report.findings]) == ("healthy", ["GS902"])
    assert capfd.readouterr().out == bare
