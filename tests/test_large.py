"""Long and large programs end, with the right place named, and time and memory stay in bounds."""

import subprocess
import sys
import time
from pathlib import Path
from types import CodeType

import pytest
from apart import traced
from counting import calls_in

import gradscope
from gradscope.facts import Report

LONG_CHAIN = """
import torch

x = torch.tensor([0.0, 1.0], requires_grad=True)
y = x * 1
for _ in range({ops}):
    y = y + 1e-9
loss = (y - y.detach() + x).sqrt().sum()
loss.backward()
"""

FAR_MASK = """
import torch

x = torch.tensor([0.0, 1.0], requires_grad=True)
y = x.sqrt()
for _ in range(11_000):
    y = y + 0.0
torch.where(x > 0, y, 0.0).sum().backward()
"""

WIDE = """
import torch

x = torch.zeros({size}, requires_grad=True)
x.sqrt().sum().backward()
"""

DEEP = """
import sys

import torch

sys.setrecursionlimit(5_000)
x = torch.tensor([0.0, 1.0], requires_grad=True)


def power(x, left):
    return power(x * 1.0, left - 1) if left else x.sqrt()


power(x, 2_000).sum().backward()
"""

CHAINS = """
import torch

x = torch.ones(2, requires_grad=True)
for step in range(2):
    y = x * 1.0
    for _ in range(6_000):
        y = y + 1e-9
    y.sum().backward()
    y = None
    print("freed", step)
"""

STEPS = """
import gc
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(8, 4)
for step in range({steps}):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if step in ({steps} // 10, {steps} - 1):
        gc.collect()
        with open("/proc/self/statm") as file:
            print(int(file.read().split()[1]) * 4096)
"""


def run(source: str, folder: Path, **options: float) -> Report:
    path = folder / "program.py"
    path.write_text(source, encoding="utf-8")
    return traced(path, **options)


@pytest.mark.slow
@pytest.mark.parametrize("ops", [50_000, 100_000])
def test_a_long_graph_is_walked_without_recursion(ops, tmp_path):
    report = run(LONG_CHAIN.format(ops=ops), tmp_path)

    assert report.trace.ops > ops
    assert report.findings[0].location.line == 8


@pytest.mark.long
def test_a_mask_is_found_however_far_it_is(tmp_path):
    assert run(FAR_MASK, tmp_path).findings[0].name == "masked-branch"


@pytest.mark.parametrize("size", [1_000_000])
def test_a_million_bad_elements_are_a_count(size, tmp_path):
    started = time.monotonic()
    report = run(WIDE.format(size=size), tmp_path)

    (finding,) = report.findings
    assert finding.symptoms[0].bad == size
    assert len(repr(report)) < 100_000
    assert time.monotonic() - started < 30


def test_bad_values_that_pass_through_many_ops_are_followed_once():
    counts = []
    for ops in (60, 600):
        text = "import torch\nx = torch.zeros(2, requires_grad=True)\nh = x.log()\n"
        text += "h = h * h\n" * ops + "h.sum().backward()"
        program = compile(text, "long.py", "exec")

        def watched(program: CodeType = program) -> None:
            with gradscope.watch():
                exec(program, {})

        counts.append(calls_in(watched))

    assert counts[1] < 14 * counts[0]


@pytest.mark.slow
def test_two_gibibytes(tmp_path):
    (finding,) = run(WIDE.format(size=2**29), tmp_path, limit=600).findings

    assert finding.symptoms[0].bad == 2**29


@pytest.mark.slow
@pytest.mark.parametrize("command", ["trace", "norms"])
def test_a_long_graph_is_freed_without_recursion(command, tmp_path):
    """torch frees nodes that Python has seen by recursion, which a small stack has no room for."""
    (tmp_path / "program.py").write_text(CHAINS, encoding="utf-8")
    done = subprocess.run(
        ["sh", "-c", f"ulimit -s 1024 && exec {sys.executable} -m gradscope {command} program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "freed 1" in done.stdout + done.stderr


@pytest.mark.long
def test_deep_recursion(tmp_path):
    (finding,) = run(DEEP, tmp_path).findings

    assert (finding.location.line, finding.op) == (11, "sqrt")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_memory_is_flat_over_10_000_steps(tmp_path, capfd):
    report = run(STEPS.format(steps=10_000), tmp_path, steps=20_000)

    early, late = map(int, capfd.readouterr().out.split())
    assert len(report.trace.steps) == 10_000
    assert late - early < 20 * 2**20
