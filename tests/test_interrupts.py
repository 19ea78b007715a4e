"""Ctrl-C in every stage: it ends what is being done, and what is known by then is told."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import paths

from gradscope.check import judge
from gradscope.check.cases import Case
from gradscope.config import Config, Input
from gradscope.facts import NotChecked

BROKEN = """
import os, signal, sys, time
import torch

x = torch.tensor([0.0, 4.0], requires_grad=True)
torch.where(x > 0, x.sqrt(), 0.0).sum().backward()
"""
# Ctrl-C comes from the program itself, as soon as it is run a second time. A signal of Python's
# would end that run before.
AGAIN = """
import ctypes, os, signal, time
if os.path.getsize("runs"):
    ctypes.CDLL(None).kill(os.getppid(), signal.SIGINT)
    time.sleep(600)
with open("runs", "a") as file:
    file.write("one")
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
    Double.apply(w).square().sum().backward()
"""
# Stops for ever in a function of ours, and tells when it got there.
STUCK = """
import atexit, sys
import {module}
from gradscope.__main__ import main

def stuck(*args, **kwargs):
    print("here", file=sys.stderr, flush=True)
    while True:
        pass

{module}.{name} = stuck
sys.argv[1:] = {words}
atexit.register(print, "Python's own end", file=sys.stderr)
sys.exit(main())
"""

SECOND_ROUND = """
import os, signal, sys
from gradscope import pipeline
from gradscope.__main__ import main

diagnose, rounds = pipeline.diagnose, []

def diagnosed(trace, limits):
    rounds.append(trace)
    if len(rounds) == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return diagnose(trace, limits)

pipeline.diagnose = diagnosed
sys.argv[1:] = ["fix", "train.py", "--write"]
sys.exit(main())
"""


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": paths(), "NO_COLOR": "1"}


def traced(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command on a program that interrupts it itself."""
    (folder / "train.py").write_text(text)
    (folder / "runs").touch()  # what was there before, and was written to, is so in the second run
    command = [sys.executable, "-m", "gradscope", "trace", "train.py", *words]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300
    )


def stuck(
    folder: Path, place: str, *words: str, text: str = BROKEN
) -> subprocess.CompletedProcess[str]:
    """The command, stuck at a place of ours, where Ctrl-C comes."""
    (folder / "train.py").write_text(text)
    module, _, name = place.rpartition(".")
    code = STUCK.format(module=module, name=name, words=["trace", "train.py", *words])
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while (line := process.stderr.readline()) and line != "here\n":
            pass
        assert line == "here\n"
        came = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert time.monotonic() - came < 60  # a guard: a second on a machine that does nothing else
    assert (process.returncode == 130) is not ("Python's own end\n" in err)  # which takes time
    err = err.replace("Python's own end\n", "")
    return subprocess.CompletedProcess(code, process.returncode, out, err)


def test_while_the_run_is_diagnosed_its_symptoms_are_told(tmp_path):
    done = stuck(tmp_path, "gradscope.pipeline.diagnose", "--format", "json")
    document = json.loads(done.stdout)

    assert (done.returncode, document["verdict"]) == (2, "failed")
    assert [one["tensor"] for one in document["symptoms"]] == ["x"]
    assert document["findings"] == []


def test_while_the_run_is_diagnosed_no_health_is_claimed(tmp_path):
    healthy = "import torch\ntorch.ones(2, requires_grad=True).sum().backward()\n"
    done = stuck(tmp_path, "gradscope.pipeline.diagnose", text=healthy)

    assert done.returncode == 2
    assert "train.py: interrupted before the cause was looked for in its run" in done.stdout


@pytest.mark.parametrize("more", [(), ("--no-verify",)])
@pytest.mark.long
def test_while_a_patch_is_looked_for_the_finding_is_told(more, tmp_path):
    done = stuck(tmp_path, "gradscope.repair.serve.ways", "--format", "json", *more)
    (finding,) = json.loads(done.stdout)["findings"]

    assert (done.returncode, finding["rule"]) == (1, "GS101")
    assert {fix["verdict"] for fix in finding["fixes"]} == {"not tried: interrupted"}


def test_while_a_fix_is_tried_it_keeps_its_patch(tmp_path):
    done = traced(tmp_path, AGAIN + BROKEN, "--format", "json")
    (finding,) = json.loads(done.stdout)["findings"]

    assert (done.returncode, finding["rule"]) == (1, "GS101")
    assert finding["fixes"][0]["patch"]
    assert {fix["verdict"] for fix in finding["fixes"]} == {"not tried: interrupted"}


def test_when_the_program_has_just_ended_nothing_is_tried(tmp_path):
    late = """
import atexit, os, signal, time

@atexit.register
def interrupt():
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(0.1)
"""
    done = traced(tmp_path, late + BROKEN, "--format", "json")
    (finding,) = json.loads(done.stdout)["findings"]

    assert (done.returncode, finding["rule"]) == (1, "GS101")
    assert {fix["verdict"] for fix in finding["fixes"]} == {"not tried: interrupted"}


@pytest.mark.parametrize(("text", "rule"), [(WRONG, "GS301"), (DIVERGES, "GS404")])
@pytest.mark.long
def test_while_what_comes_later_is_sought_the_finding_is_told(text, rule, tmp_path):
    done = traced(tmp_path, AGAIN + text, "--format", "json")
    finding = json.loads(done.stdout)["findings"][0]

    assert (done.returncode, finding["rule"]) == (1, rule)
    assert {fix["verdict"] for fix in finding["fixes"]} == {"not tried: interrupted"}


def test_fix_prints_the_patch_so_far_and_writes_nothing(tmp_path):
    """Ctrl-C comes in the second round, which is to show what the patch of the first led to."""
    text = BROKEN.replace("x.sqrt()", "x ** 0.5")
    (tmp_path / "train.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", SECOND_ROUND],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert (done.returncode, (tmp_path / "train.py").read_text()) == (130, text)
    assert "+torch.where(x > 0, torch.where(x > 0, x, 1.0) ** 0.5, 0.0)" in done.stdout
    assert done.stderr.splitlines()[-2:] == [
        "the patch holds the 1 fix found so far, and no file was written",
        "gradscope: error: interrupted",
    ]


def test_check_keeps_what_a_worker_knows(tmp_path):
    again = AGAIN.replace("os.getppid()", "int(os.environ['GRADSCOPE_PID'])")
    (tmp_path / "train.py").write_text(again + BROKEN)
    (tmp_path / "runs").touch()
    code = (
        "import os, sys\n"
        "from gradscope.__main__ import main\n"
        "from gradscope.check import workers\n"
        "workers.INTERRUPT_GRACE = 60.0\n"  # this machine may be busy
        "os.environ['GRADSCOPE_PID'] = str(os.getpid())\n"
        "sys.argv[1:] = ['check', 'train.py', '--format', 'json']\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    (finding,) = json.loads(done.stdout)["findings"]

    assert (done.returncode, finding["rule"]) == (1, "GS101")
    assert {fix["verdict"] for fix in finding["fixes"]} == {"not tried: interrupted"}


def test_check_keeps_its_judgement_where_edge_inputs_are_sought(monkeypatch, tmp_path):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    file = tmp_path / "loss.py"
    file.write_text("def loss(x):\n    return x.square().sum()\n")
    config = Config(
        target=f"{file}:loss",
        stress=True,
        inputs=(Input("x", "torch.ones(2, requires_grad=True)"),),
        name="loss",
    )
    monkeypatch.setattr(judge, "stress", interrupted)
    report = judge.judge(Case("loss", config))

    assert report.verdict == "healthy"
    assert report.not_checked == (NotChecked("edge inputs", "interrupted"),)


def test_while_the_report_is_written_its_last_line_is_told(tmp_path):
    done = stuck(tmp_path, "gradscope.cli.output.rendered", "--no-verify")

    assert done.returncode == 130
    last, interrupted = done.stderr.splitlines()
    assert last.startswith("train.py: unhealthy (1 error; 0 of ")
    assert interrupted == "gradscope: error: interrupted"


def test_a_second_one_ends_it_at_once(tmp_path):
    """The first comes from the program, the second while its run is diagnosed."""
    text = BROKEN + "os.kill(os.getppid(), signal.SIGINT)\ntime.sleep(600)\n"
    done = stuck(tmp_path, "gradscope.pipeline.diagnose", "--keep-going", text=text)

    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "gradscope: error: interrupted\n"
