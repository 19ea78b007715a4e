"""Odd programs: each prints the same with and without `gradscope trace`, and nothing is found.

The programs are in tests/programs/odd. One that takes more than a few seconds says so in its
first line: `# slow: why`.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from gradscope.config import Config
from gradscope.facts import Report
from gradscope.pipeline import trace
from gradscope.target import parse_target

ODD = Path(__file__).parent / "programs" / "odd"
NEEDS = {"notebook": "IPython"}
LIMIT = 120.0  # seconds: one that hangs is stopped, and told


def programs() -> list[object]:
    found: list[object] = []
    for path in sorted(ODD.glob("*.py")):
        slow = path.read_text(encoding="utf-8").startswith("# slow")
        found.append(pytest.param(path, id=path.stem, marks=pytest.mark.slow if slow else ()))
    return found


@pytest.mark.parametrize("path", programs())
def test_runs_as_without_us(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(NEEDS.get(path.stem, "torch"))
    monkeypatch.chdir(tmp_path)

    status = in_fork(lambda: run_plainly(path))
    bare = capfd.readouterr()
    report = traced(path)
    seen = capfd.readouterr()

    assert status == 0, bare.err
    assert seen.out == bare.out
    assert seen.err == bare.err
    assert report.trace.ending.kind in ("finished", "exited")
    assert [f"{finding.rule}: {finding.message}" for finding in report.findings] == []
    assert report.trace.notes == ()
    assert report.trace.steps


def traced(path: Path) -> Report:
    importlib.import_module("torch._dynamo")  # else every child does, for its first optimizer
    with forgiving():
        return trace(parse_target(str(path)), Config(verify=False, time_limit=LIMIT))


def run_plainly(path: Path) -> None:
    """As `python path` does, up to the exit handlers."""
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as done:
        assert not done.code


def in_fork(run: Callable[[], None]) -> int:
    """Run in a forked child that leaves as python would; its exit code."""
    with forgiving():
        pid = os.fork()
        if pid == 0:
            _run_and_leave(run)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run_and_leave(run: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        sys.stdout = open(1, "w", buffering=1, closefd=False)
        sys.stderr = open(2, "w", buffering=1, closefd=False)
        run()
        threading._shutdown()
        importlib.import_module("atexit")._run_exitfuncs()
        code = 0
    finally:
        os._exit(code)


@contextmanager
def forgiving() -> Iterator[None]:
    """A child inherits the filters, and a program's own warnings are part of what it prints."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
        yield
