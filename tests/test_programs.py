"""Odd programs: each prints the same with and without `gradscope trace`, and nothing is found.

The programs are in tests/programs/odd. One that takes more than a few seconds says so in its
first line: `# slow: why`.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from apart import in_fork, programs_in, run_plainly, traced
from torch.overrides import get_overridable_functions

ODD = Path(__file__).parent / "programs" / "odd"
NEEDS = {"notebook": "IPython"}


@pytest.mark.parametrize("path", programs_in(ODD))
@pytest.mark.long
def test_runs_as_without_us(path, here, capfd):
    pytest.importorskip(NEEDS.get(path.stem, "torch"))
    status = in_fork(lambda: run_plainly(path))
    bare = capfd.readouterr()
    if status < 0:  # a process that has computed was forked, and the copy computes with threads
        status = subprocess.run([sys.executable, str(path)], check=False).returncode
        bare = capfd.readouterr()
    report = traced(path)
    seen = capfd.readouterr()

    assert status == 0, bare.err
    assert report.trace.ending.kind in ("finished", "exited"), report.trace.ending
    assert seen.out == bare.out
    assert without_profiler(seen.err) == without_profiler(bare.err)
    wrong = (finding for finding in report.findings if finding.severity != "note")
    assert [f"{finding.rule}: {finding.message}" for finding in wrong] == []
    assert report.trace.notes == ()
    assert report.trace.steps


def without_profiler(text: str) -> list[str]:
    """It writes the time and its process to stderr, also where its build for CUDA finds no GPU."""
    told = ("SyncActivityProfilerHandler", "DeviceProperties")
    return [line for line in text.splitlines() if not any(one in line for one in told)]


@pytest.mark.parametrize("words", [("trace", "-q"), ("norms", "-o", "norms.txt")])
@pytest.mark.long
def test_warnings_are_shown_at_the_lines_of_the_program(words, tmp_path):
    """Also where torch warns of what it was asked for through a function of ours."""
    program = tmp_path / "reads.py"
    program.write_text(
        "import torch\n"
        "torch.set_warn_always(True)\n"
        "w = torch.randn(3, requires_grad=True)\n"
        "for step in range(4):\n"
        "    loss = (w * 2).square().sum()\n"
        "    loss.backward()\n"
        "    float(loss)\n"
        "    torch.ones(1).std()\n"
        "optimizer = torch.optim.SGD([w], lr=0.1)\n"
        "torch.optim.lr_scheduler.StepLR(optimizer, 1).step()\n"
    )

    bare, seen = (
        subprocess.run(
            [sys.executable, *run, program], capture_output=True, text=True, cwd=tmp_path
        )
        for run in ((), ("-m", "gradscope", *words))
    )

    assert "reads.py:7: UserWarning" in bare.stderr
    assert without_profiler(seen.stderr) == without_profiler(bare.stderr)


def test_overrides_are_given_the_original_method(tmp_path, capfd):
    """Tables of functions that were made before know no other."""
    get_overridable_functions()
    program = tmp_path / "overrides.py"
    program.write_text(
        "import torch\n"
        "from torch.overrides import TorchFunctionMode, resolve_name\n"
        "class Names(TorchFunctionMode):\n"
        "    def __torch_function__(self, func, types, args=(), kwargs=None):\n"
        "        print(resolve_name(func))\n"
        "        return func(*args, **(kwargs or {}))\n"
        "w = torch.ones(1, requires_grad=True)\n"
        "value = w.detach()\n"
        "with Names():\n"
        "    float(value), value.item(), value.tolist(), value.numpy()\n"
        "w.square().sum().backward()\n"
    )
    traced(program)

    told = [f"torch.Tensor.{name}" for name in ("__float__", "item", "tolist", "numpy")]
    assert capfd.readouterr().out.split() == told
