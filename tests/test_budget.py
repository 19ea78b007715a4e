"""One budget for all further runs of a command: nothing shares it unseen, nothing outlives it."""

import time

import pytest

from gradscope.config import Config
from gradscope.facts import Ending, NotTried, Reason, Trace
from gradscope.pipeline import trace
from gradscope.programs import parse_target
from gradscope.repair import Budget
from gradscope.repair.budget import Purpose
from gradscope.report import closing, trials

WRONG = """
import torch

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return -2 * grad

w = torch.ones(3, requires_grad=True)
for _ in range(5):
    loss = Double.apply(w).square().sum()
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
    w.grad = None
"""

DIVERGES = """
import torch
w = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([w], lr=3.0)
for _ in range(60):
    optimizer.zero_grad()
    w.square().sum().backward()
    optimizer.step()
"""


FINISHED = Ending("finished")


def lasting(seconds: float, ending: Ending = FINISHED):
    def again(limit: float) -> Trace:
        time.sleep(seconds)
        return Trace("t", ending=ending)

    return again


def test_what_ran_is_subtracted_and_what_it_was_for_is_known():
    budget = Budget(100.0)

    budget.run(Purpose.RATE, lasting(0.01))

    assert set(budget.spent) == {Purpose.RATE}
    assert budget.left == 100.0 - budget.spent[Purpose.RATE] <= 100.0 - 0.01


def test_a_share_leaves_the_rest_to_the_fixes():
    budget = Budget(6.0, spent={Purpose.RATE: 6.0 * Purpose.RATE.share})

    with pytest.raises(TimeoutError):
        budget.run(Purpose.RATE, lasting(0.0))
    assert budget.left_for(Purpose.FIX) == pytest.approx(5.0)


def test_a_run_that_its_limit_ended_tells_nothing():
    ended = Ending("interrupted", "the time limit of 1 s")

    with pytest.raises(TimeoutError):
        Budget().run(Purpose.FIX, lasting(0.0, ended))


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        (WRONG, ["what comes of the wrong gradient"]),
        (DIVERGES, ["at which learning rate training stops diverging"]),
    ],
)
def test_what_the_time_did_not_allow_is_said(text, left_out, tmp_path):
    """A run takes longer than a hundred microseconds on every machine."""
    file = tmp_path / "program.py"
    file.write_text(text)
    report = trace(parse_target(str(file)), Config(verify_time=1e-4), silent=True)

    assert [one.what for one in report.not_checked] == left_out
    patched = [fix for finding in report.findings for fix in finding.fixes if fix.patch]
    assert patched
    assert {fix.verdict for fix in patched} <= {
        NotTried(Reason.TIME, "0.0001"),
        NotTried(Reason.TIME, f"{1e-4 / 6:g}"),
    }
    assert "--verify-time" in trials.verdict(patched[0])
    told = f"not checked: {left_out[0]} (out of time; --verify-time is 0.0001 s)"
    assert told in closing.notes(report)
