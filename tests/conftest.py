"""What every test gets: few threads, a clean torch afterwards, and the real command."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from warm import Warm

ROOT = Path(__file__).resolve().parent.parent
THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))

AT_ITS_START = ("PYTHON", "OMP", "TORCH", "LD_")  # what a process reads only then

# A shell starts what it puts into the background with Ctrl-C ignored, and that is inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def same_for_each() -> None:
    """Threads, and the numbers that are drawn, whatever ran before."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(THREADS)
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True)
def nothing_left_hooked() -> Iterator[None]:
    """Most tests never import torch, and those that do not must not pay for it."""
    yield
    if "torch" in sys.modules:
        assert leftovers() == []


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def paths() -> str:
    """Where the command is found: here, whatever else the environment names."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def bare_and_traced(program: Path) -> Iterator["subprocess.CompletedProcess[str]"]:
    """A file by itself, and under `gradscope trace` whose report goes elsewhere, in its folder."""
    for words in ((), ("-m", "gradscope", "trace", "-o", "report.txt")):
        yield subprocess.run(
            [sys.executable, *words, program.name],
            cwd=program.parent,
            env={"PYTHONPATH": paths()},
            capture_output=True,
            text=True,
            timeout=120,
        )


def leftovers() -> list[str]:
    """What a recorder could have left behind in this process, by torch's own account."""
    import torch
    from torch.nn.modules import module
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    left: list[str] = [
        name
        for name in vars(module)
        if name.startswith("_global_") and name.endswith("_hooks") and getattr(module, name)
    ]
    left += [type(mode).__name__ for mode in _get_current_dispatch_mode_stack()]
    left += [type(mode).__name__ for mode in _get_current_function_mode_stack()]
    if torch.is_anomaly_enabled():
        left.append("anomaly mode")
    if not torch.is_grad_enabled():
        left.append("no_grad")
    return left


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm | None]:
    """Where commands start with torch imported, on Linux."""
    made = Warm(paths()) if sys.platform == "linux" else None
    yield made
    if made is not None:
        made.end()


@pytest.fixture
def gradscope(tmp_path: Path, warm: Warm | None) -> Command:
    """Runs `gradscope ...` in an empty folder, as a user would."""

    def run(
        *arguments: str | Path, cwd: Path = tmp_path, timeout: float = 120, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        plain = {"NO_COLOR": "1", "COLUMNS": "100", "PYTHONPATH": paths()}
        words, complete = [*map(str, arguments)], os.environ | plain | environment
        if warm is not None and not any(name.startswith(AT_ITS_START) for name in environment):
            return warm.run(words, cwd, complete, timeout)
        return subprocess.run(
            [sys.executable, "-m", "gradscope", *words],
            cwd=cwd,
            env=complete,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run
