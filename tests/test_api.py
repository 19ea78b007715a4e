"""The public names: what they are, what they return, and that they cost nothing until asked for."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gradscope

PROGRAM = """\
import torch

x = torch.tensor([0.0, 0.25], requires_grad=True)
(torch.where(x > 0, x ** 0.5, 0.0).sum()).backward()
print("said by the program")
"""


def test_the_public_names_are_these():
    assert sorted(gradscope.__all__) == [
        "Finding",
        "GradscopeError",
        "Report",
        "Severity",
        "Trace",
        "trace",
        "watch",
    ]
    assert set(gradscope.__all__) <= set(dir(gradscope))
    for name in gradscope.__all__:
        assert getattr(gradscope, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'tracer'"):
        gradscope.tracer  # noqa: B018


def test_the_facts_are_there_without_torch():
    program = (
        "import json, sys, gradscope\n"
        "gradscope.Report, gradscope.Finding, gradscope.Severity, gradscope.GradscopeError\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    assert "torch" not in json.loads(run.stdout)


def test_trace_runs_a_target_as_the_command_does(here):
    (here / "loss.py").write_text(PROGRAM)
    report = gradscope.trace("loss.py", silent=True)

    (finding,) = report.findings
    assert isinstance(report, gradscope.Report) and isinstance(report.trace, gradscope.Trace)
    assert isinstance(finding, gradscope.Finding)
    assert finding.severity is gradscope.Severity.ERROR
    assert finding.name == "masked-branch"
    assert (finding.location.file, finding.location.line) == ("loss.py", 4)
    assert finding.fixes[0].verified
    assert report.runs == 2


@pytest.mark.long
def test_trace_takes_the_options_of_the_command(here):
    (here / "loss.py").write_text("def loss(x, scale):\n    return (scale * x.sqrt()).sum()\n")
    inputs = {"x": "torch.zeros(2, requires_grad=True)", "scale": "3.0"}

    found = gradscope.trace(Path("loss.py:loss"), inputs=inputs, verify=False, silent=True)
    unwanted = gradscope.trace("loss.py:loss", inputs=inputs, ignore="GS1", silent=True)

    assert [one.name for one in found.findings] == ["singular-derivative"]
    assert (found.runs, found.findings[0].fixes[0].verified) == (1, None)
    assert (unwanted.findings, unwanted.accepted) == ((), 1)


def test_what_cannot_be_run_is_an_error_with_help(here):
    with pytest.raises(gradscope.GradscopeError, match=r"there is no file missing\.py"):
        gradscope.trace("missing.py")
    with pytest.raises(gradscope.GradscopeError, match="unknown rule GS999"):
        gradscope.trace("gamma_mask", select="GS999")


STATE = """\
import torch

print(torch.get_default_dtype(), torch.initial_seed())
torch.set_default_dtype(torch.float64)
torch.zeros(2, requires_grad=True).sqrt().sum().backward()
"""
CALLER = """\
import signal
import gradscope
{before}
heard = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
report = gradscope.trace("state.py", verify=False)
assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == heard
assert report.findings
{after}
"""


@pytest.mark.long
def test_nothing_passes_between_the_caller_and_the_program(tmp_path):
    (tmp_path / "state.py").write_text(STATE)

    def told(before: str, after: str = "") -> str:
        return subprocess.run(
            [sys.executable, "-c", CALLER.format(before=before, after=after)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    changed = "import torch; torch.set_default_dtype(torch.bfloat16); torch.manual_seed(7)"
    state = "torch.get_rng_state().tolist()"

    def seed_in(line: str) -> int:
        dtype, seed = line.split()
        assert dtype == "torch.float32"
        return int(seed)

    seed_in(told("import sys", "assert 'torch' not in sys.modules"))
    seed = seed_in(
        told(
            f"{changed}; state = {state}",
            f"assert {state} == state and torch.get_default_dtype() is torch.bfloat16",
        )
    )
    assert seed != 7


ENDLESS = """\
import pathlib
import torch

x = torch.zeros(2, requires_grad=True)
while True:
    (x * 2).sum().backward()
    pathlib.Path("here").touch()
"""


def test_ctrl_c_ends_the_program_and_the_report_is_returned(tmp_path):
    (tmp_path / "endless.py").write_text(ENDLESS)
    program = (
        "import gradscope\n"
        "report = gradscope.trace('endless.py', steps=10**9)\n"
        "print(report.trace.ending.kind, report.verdict, len(report.trace.steps) > 0)\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
        stdout=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "here").exists() and caller.poll() is None:
        time.sleep(0.01)
    caller.send_signal(signal.SIGINT)
    told, _ = caller.communicate(timeout=120)

    assert (caller.returncode, told.split()) == (0, ["interrupted", "incomplete", "True"])
