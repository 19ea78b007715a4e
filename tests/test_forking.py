"""Runs of a process that has computed with several threads before, or has some now."""

import subprocess
import sys
import threading
import time

import pytest

from gradscope.record import forking
from gradscope.record.forking import FORKS, resting

linux = pytest.mark.skipif(not FORKS, reason="only on Linux are there copies")

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


@linux
def test_a_thread_that_waits_for_an_event_rests():
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    before = sys.getswitchinterval()

    assert thread.native_id is not None
    with resting([thread.native_id]) as rest:
        assert rest
        assert sys.getswitchinterval() > before
    over.set()
    thread.join()

    assert sys.getswitchinterval() == before


@linux
def test_a_thread_that_asks_for_the_interpreter_does_not_rest(monkeypatch):
    monkeypatch.setattr(forking, "_MADE_BY", 0.005)  # else it has its turn for a second
    is_over = False

    def spin() -> None:
        while not is_over:
            sum(range(1000))

    thread = threading.Thread(target=spin)
    thread.start()
    assert thread.native_id is not None
    with resting([thread.native_id]) as rest:
        pass
    is_over = True
    thread.join()

    assert not rest
