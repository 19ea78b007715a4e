"""GS504: NaN that is computed without a gradient counts where the program reads or keeps it."""

import pytest
from corpus import diagnosed_text

from gradscope.facts import Severity
from gradscope.report import closing

PROGRAM = """\
import collections
import io
import math
import numpy
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
placeholder = torch.full((), float("nan"))
padded = torch.tensor([1.0, float("nan")])
best = torch.tensor(float("inf"))
IGNORED = torch.tensor([-100, -100])
model.register_buffer("score", torch.zeros(()))
recent = collections.deque(maxlen=2)
history = []


class Meter:
    sum = 0.0

    def update(self, value):
        self.sum += value


meter, total = Meter(), 0.0


def evaluate(x):
    with torch.no_grad():
        return model(x).square().mean()


for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 3)).square().mean()
    loss.backward()
    optimizer.step()
    {read}
"""
# What is wrong, and the op that gives the NaN.
WRONG = [
    ("print('val', (evaluate(torch.ones(2, 3)) - 99).sqrt().item())", "sqrt"),
    ("text = f'{(evaluate(torch.ones(2, 3)) - 99).sqrt():.4f}'", "sqrt"),
    ("value = float((best - best) * 2)", "sub"),
    ("value = (evaluate(torch.ones(2, 3)) - 99).sqrt().tolist()", "sqrt"),
    ("value = (evaluate(torch.ones(2, 3)) - 99).sqrt().numpy()", "sqrt"),
    ("value = numpy.asarray((evaluate(torch.ones(2, 3)) - 99).sqrt())", "sqrt"),
    ("torch.save([(evaluate(torch.ones(2, 3)) - 99).sqrt()], io.BytesIO())", "sqrt"),
    ("print((evaluate(torch.ones(2, 3)) - 99).sqrt())", "sqrt"),
    ("text = f'{(evaluate(torch.ones(2, 3)) - 99).sqrt().expand(2)}'", "sqrt"),
    ("better = (evaluate(torch.ones(2, 3)) - 99).sqrt() < best and 1", "sqrt"),
    ("best = min(best, (evaluate(torch.ones(2, 3)) - 99).sqrt())", "sqrt"),
    ("print(evaluate(torch.ones(0, 3)).item())", "mean"),
    ("text = f'{torch.zeros(0).mean():.4f}'", "mean"),
    ("value = (torch.ones(3).sum() - 4).log().exp().item()", "log"),
    (
        "value = torch.nn.functional.cross_entropy(torch.ones(2, 3), IGNORED).item()",
        "nll_loss_forward",
    ),
]
SILENT = [
    "(evaluate(torch.ones(2, 3)) - 99).sqrt()",  # nobody reads it
    "assert torch.isnan((evaluate(torch.ones(2, 3)) - 99).sqrt()).item()",
    "value = torch.nan_to_num((evaluate(torch.ones(2, 3)) - 99).sqrt()).item()",
    "value = placeholder.item()",
    "value = torch.tensor([4.0, -1.0]).sqrt().numpy()",  # as numpy's own functions for NaN expect
    "torch.save(placeholder, io.BytesIO())",
    "value = padded.nanmean().item()",
    "value = [one.item() for one in padded]",  # the program knows of its padding
    "value = best.item(); best = torch.minimum(best, loss.detach())",
    "scores = [torch.tensor(n).sqrt().item() for n in (2.0, -1.0, 1.0, -1.0)]",
    "value = torch.tensor(step - 1.5).sqrt().item()",  # not yet
    "value = [torch.ones(n).mean().item() for n in (2, 0)]",  # none of this class
    "text = str(torch.stack([torch.ones(n).mean() for n in (2, 0)]))",
    "value = torch.stack([torch.ones(n).mean() for n in (2, 0)]).tolist()",
    "missing = bool((evaluate(torch.ones(2, 3)) - 99).sqrt().isnan())",
    "value = [bool(torch.tensor(n).sqrt() < 1) for n in (2.0, -1.0)]",
]
# A NaN that is kept, or a sum of numbers that has become NaN, and what holds it.
_ROOT = "(evaluate(torch.ones(2, 3)) - 99).sqrt()"
_NUMBER = "torch.tensor(sign * 2.0).sqrt().item()"
KEPT = [
    (f"history.append({_ROOT})", "history[0]"),
    (f"history.append({_ROOT} if step else loss.detach())", "history[1]"),
    (f"meter.last = {_ROOT}", "meter.last"),
    (f"recent.append({_ROOT})", "recent[0]"),
    (f"recent.append({{'score': {_ROOT}}})", "recent[0]['score']"),
    (f"model.score.copy_({_ROOT})", "model.score"),
    (f"best = best + {_ROOT}", "best"),
    (f"for sign in (1, -1, 1): total += {_NUMBER}", "total"),
    (f"for sign in (1, 1, -1): total += {_NUMBER}", "total"),
    (f"for sign in (1, -1, 1): meter.update({_NUMBER})", "meter.sum"),
]
KNOWN = [  # to the program
    f"history = [{_ROOT}, loss.detach()]",  # one of several has no value
    f"value = {_ROOT}; other = torch.where(value.isnan(), 0.0, value)",
    f"value = {_ROOT}; other = value.nan_to_num()",
    "value = placeholder * 2",
    "value = padded * 2; mean = value.nanmean()",
    "value = torch.full((2,), math.nan); value[step % 2] = 1.0; twice = value * 2",
    f"for sign in (1, -1, 1):\n        value = {_NUMBER}\n        if value > 0: total += value",
    f"for sign in (1, 1, -1):\n        value = {_NUMBER}\n        if value > 0: total += value",
]


@pytest.mark.parametrize(("read", "op"), WRONG)
@pytest.mark.long
def test_a_nan_that_is_read_is_a_warning_with_its_place(read, op, tmp_path):
    report = diagnosed_text(PROGRAM.format(read=read), tmp_path)
    [finding] = report.findings

    assert (finding.name, finding.severity, finding.op) == ("nan-metric", Severity.WARNING, op)
    assert finding.location is not None and finding.related[0].location.line == 39
    assert "every loss and gradient was finite" not in closing.summary(report)


@pytest.mark.parametrize(("keep", "held_as"), KEPT)
@pytest.mark.long
def test_a_nan_that_is_kept_is_a_warning(keep, held_as, tmp_path):
    report = diagnosed_text(PROGRAM.format(read=keep), tmp_path)
    [finding] = report.findings

    assert (finding.name, finding.op) == ("nan-metric", "sqrt")
    assert f"`{held_as}`" in finding.message
    assert "every loss and gradient was finite" not in closing.summary(report)


def test_an_inf_that_becomes_the_nan_is_told_as_inf(tmp_path):
    read = "value = (torch.zeros(3).log() * 0).mean().item()"
    [finding] = diagnosed_text(PROGRAM.format(read=read), tmp_path).findings

    assert (finding.op, finding.label) == ("log", "-inf here")
    assert "the NaN that comes of the -inf that `log` gives at 3 of 3 elements" in finding.message


def test_what_is_kept_at_the_end_counts(tmp_path):
    report = diagnosed_text(PROGRAM.format(read=f"pass\nfinal = {_ROOT}"), tmp_path)

    assert [one.name for one in report.findings] == ["nan-metric"]


def test_what_is_kept_after_the_last_step_that_was_seen_counts(tmp_path):
    program = PROGRAM.replace("range(3)", "range(8)")

    report = diagnosed_text(program.format(read=f"pass\nfinal = {_ROOT}"), tmp_path)
    meant = diagnosed_text(program.format(read="pass\nfinal = torch.tensor(math.nan)"), tmp_path)

    assert [(one.name, one.op) for one in report.findings] == [("nan-metric", "sqrt")]
    assert meant.findings == () and "every loss and gradient" in closing.summary(meant)


SPARSE = """\
import torch

weight = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.01)
for step in range(6):
    optimizer.zero_grad()
    weight.sum().backward()
    optimizer.step()
kept = torch.eye(3).to_sparse()
"""


def test_what_is_kept_may_be_sparse(tmp_path):
    report = diagnosed_text(SPARSE, tmp_path)

    assert report.findings == () and report.trace.notes == ()


LONG = PROGRAM.replace("range(3)", "range(8)").replace("{read}", "if step == 5: {read}")


@pytest.mark.parametrize(
    "read",
    [
        f"value = {_ROOT}.item()",
        f"value = float({_ROOT})",
        f"text = f'{{{_ROOT}:.4f}}'",
        f"text = str({_ROOT})",
        f"value = {_ROOT}.numpy()",
        f"pass\nvalue = {_ROOT}.item()",  # when training is over
    ],
)
@pytest.mark.long
def test_one_that_is_read_in_a_step_that_is_only_watched_is_looked_for(read, tmp_path):
    report = diagnosed_text(LONG.replace("{read}", read), tmp_path)
    [finding] = report.findings

    assert (finding.name, finding.op) == ("nan-metric", "sqrt")
    assert report.trace.inspected < 8


@pytest.mark.long
def test_one_that_is_kept_and_then_read_is_told_once(tmp_path):
    program = PROGRAM.replace("range(3)", "range(6)").format(read=f"history.append({_ROOT})")
    report = diagnosed_text(f"{program}\ntexts = [str(one) for one in history]\n", tmp_path)
    [finding] = report.findings

    assert (finding.name, finding.op) == ("nan-metric", "sqrt")
    assert "is read out" in finding.message


def test_where_the_program_may_not_run_again_that_is_said(tmp_path):
    told = f"import subprocess; subprocess.run(['true']); value = {_ROOT}.item()"
    report = diagnosed_text(LONG.replace("{read}", told), tmp_path)

    assert report.findings == () and len(report.not_checked) == 1
    assert "every loss and gradient was finite" not in closing.summary(report)


@pytest.mark.parametrize(
    "read", [f"value = [x.item() for x in ({_ROOT}, loss)]", "value = placeholder.item()"]
)
def test_what_is_no_result_there_is_silent(read, tmp_path):
    assert diagnosed_text(LONG.replace("{read}", read), tmp_path).findings == ()


@pytest.mark.parametrize("read", [*SILENT, *KNOWN])
def test_what_is_no_result_is_silent(read, tmp_path):
    report = diagnosed_text(PROGRAM.format(read=read), tmp_path)

    assert report.findings == ()
    assert "every loss and gradient was finite" in closing.summary(report)


@pytest.mark.parametrize(
    "read",
    [
        "torch.ones(1).std().item()",
        "value = torch.ones(1).std()",
        "(evaluate(torch.ones(2, 3)) * 0 / torch.zeros(())).item()",
        "torch.ones(4)[:2 - step].mean().item()",  # none in the last step
    ],
)
def test_nan_for_want_of_data_is_no_finding_and_no_finite_run(read, tmp_path):
    report = diagnosed_text(PROGRAM.format(read=read), tmp_path)

    assert report.findings == ()
    assert "every loss and gradient was finite" not in closing.summary(report)


def test_a_loss_that_a_guard_skips_is_no_metric(tmp_path):
    skipped = """\
    bad = model(torch.randn(4, 3)).mean().sub(9).sqrt()
    if math.isfinite(bad.item()):
        bad.backward()
"""
    report = diagnosed_text(PROGRAM.format(read="pass") + skipped, tmp_path)

    assert [one.name for one in report.findings if one.name == "nan-metric"] == []
