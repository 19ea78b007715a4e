"""Runs of a process that has computed with several threads before."""

import subprocess
import sys
import time

import pytest

from gradscope.record import forking

PROGRAM = """
import torch
torch.manual_seed(0)
x = torch.randn(400, 400, requires_grad=True)
(x @ x).square().mean().backward()
print(x.grad.sum().item(), torch.get_num_threads(), flush=True)
"""
CALLER = """
import runpy, sys
import torch
from gradscope.config import Config
from gradscope.pipeline import trace
from gradscope.programs import parse_target
torch.set_num_threads(2)
for _ in range(2):
    runpy.run_path("train.py")
    report = trace(parse_target("train.py"), Config(verify=False))
    assert report.verdict == "healthy", report
"""


def test_a_process_that_used_threads_can_run_programs(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)

    done = subprocess.run(
        [sys.executable, "-c", CALLER],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,  # a child that waits for threads it does not have does so for ever
    )

    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert len(printed) == 4 and len(set(printed)) == 1


@pytest.mark.filterwarnings("ignore:.*fork")
def test_an_answer_that_comes_late_is_not_that_to_another_question(monkeypatch):
    def work(asked: tuple[str, float]) -> str:
        time.sleep(asked[1])
        return asked[0]

    asleep = forking.Asleep(work)
    assert asleep.ask(("first", 0.0), 30) == "first"
    monkeypatch.setattr(forking, "_GRACE", -0.9)
    assert asleep.ask(("slow", 0.5), 1.0) is None

    monkeypatch.setattr(forking, "_GRACE", 1.0)
    assert asleep.ask(("next", 0.0), 30) in (None, "next")
    assert asleep.ask(("last", 0.0), 30) in (None, "last")
    asleep.end()
