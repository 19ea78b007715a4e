"""A program run by itself, and under `gradscope trace`, both in forks of this process."""

import importlib
import os
import runpy
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gradscope.config import Config
from gradscope.facts import Report, Trace
from gradscope.norms import NormOptions
from gradscope.norms.conclusions import _measure
from gradscope.pipeline import trace
from gradscope.programs import RunOptions, parse_target, run
from gradscope.record.forking import pause_openmp

LIMIT = 120.0  # seconds: one that hangs is stopped, and told


def programs_in(folder: Path) -> list[object]:
    """Parameters of a test: those that begin with `# slow` are marked so."""
    found: list[object] = []
    for path in sorted(folder.glob("*.py")):
        slow = path.read_text(encoding="utf-8").startswith("# slow")
        found.append(pytest.param(path, id=path.stem, marks=pytest.mark.slow if slow else ()))
    return found


def traced(path: Path, limit: float = LIMIT, **options: Any) -> Report:
    importlib.import_module("torch._dynamo")  # else every child does, for its first optimizer
    with forgiving():
        return trace(parse_target(str(path)), Config(verify=False, time_limit=limit, **options))


def watched(path: Path, limit: float = LIMIT) -> Trace:
    """Run with the sizes of gradients measured alone, as `gradscope norms` does."""
    with forgiving():
        options = RunOptions(time_limit=limit)
        measure = partial(_measure, NormOptions())
        return run(parse_target(str(path)), options, measure=measure)


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
        pause_openmp()
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
