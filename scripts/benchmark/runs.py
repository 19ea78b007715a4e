"""Whole runs: a healthy program under `gradscope trace`, one that fails late, and snapshots."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmark.startup import COMMAND
from gradscope.record.forking import fork_unnoticed

STEPS = (100, 1_000, 10_000)
FAILS = (100, 10_000)
SIZES = (10, 100, 1_000)  # MB of state
MLP = """
import sys, torch
from torch import nn
torch.manual_seed(0)
blocks = [one for _ in range(20) for one in (nn.Linear(64, 64), nn.ReLU())]
model = nn.Sequential(*blocks)
for one in model[::2]:
    nn.init.kaiming_normal_(one.weight, nonlinearity="relu")
batch, target = torch.randn(32, 64), torch.randint(64, (32,))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(batch), target).backward()
    optimizer.step()
"""
LATE = """
import sys, torch
torch.manual_seed(0)
weight = torch.ones(64, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=1e-4)
def compute(step):
    size = torch.rand(64)
    if step == int(sys.argv[1]):
        size[3] = 0.0
    return ((weight * size).sqrt()).mean()
for step in range(int(sys.argv[1]) + 1):
    optimizer.zero_grad()
    compute(step).backward()
    optimizer.step()
"""


@dataclass(frozen=True, slots=True)
class Whole:
    """CPU seconds of all its processes; the ratio is that of the smallest ones."""

    steps: int
    python: float
    trace: float


@dataclass(frozen=True, slots=True)
class Late:
    """Wall seconds of `gradscope trace` beyond those of `python`; `verified` fixes of all."""

    step: int
    seconds: float
    verified: int
    fixes: int


@dataclass(frozen=True, slots=True)
class Copy:
    """CPU seconds in the process that is copied: of the fork, and of writing all of its state."""

    megabytes: int
    fork: float
    writing: float
    again: float  # the same writing, with nobody else holding the memory


def whole(rounds: int) -> Iterator[Whole]:
    for steps in STEPS:
        with _program(MLP) as folder:
            times = [_both(folder, steps) for _ in range(rounds)]
        bare, traced = (min(one.cpu for one in ways) for ways in zip(*times, strict=True))
        yield Whole(steps, bare, traced)


def late(rounds: int) -> Iterator[Late]:
    for step in FAILS:
        with _program(LATE) as folder:
            times = [_both(folder, step) for _ in range(rounds)]
        beyond = min(traced.wall - bare.wall for bare, traced in times)
        fixes = [fix for one in json.loads(times[0][1].said)["findings"] for fix in one["fixes"]]
        yield Late(step, beyond, sum(fix["verified"] is True for fix in fixes), len(fixes))


def copies() -> Iterator[Copy]:
    for megabytes in SIZES:
        state = torch.zeros(megabytes * 2**18)
        began = time.thread_time()
        pid = fork_unnoticed()
        if pid == 0:
            signal.pause()
        fork, began = time.thread_time() - began, time.thread_time()
        state.add_(1.0)
        writing, began = time.thread_time() - began, time.thread_time()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        state.add_(1.0)
        yield Copy(megabytes, fork, writing, time.thread_time() - began)


def _program(text: str) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="bench-")
    Path(folder.name, "program.py").write_text(text)
    return folder


@dataclass(frozen=True, slots=True)
class _Ran:
    wall: float
    cpu: float
    said: str


def _both(folder: str, steps: int) -> tuple[_Ran, _Ran]:
    bare = [sys.executable, "program.py", str(steps)]
    traced = [str(COMMAND), "trace", "--format", "json", "program.py", "--", str(steps)]
    return _ran(bare, folder), _ran(traced, folder)


def _ran(command: list[str], folder: str) -> _Ran:
    before, began = os.times(), time.perf_counter()
    run = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    after, seconds = os.times(), time.perf_counter() - began
    spent = after.children_user + after.children_system
    return _Ran(seconds, spent - before.children_user - before.children_system, run.stdout)
