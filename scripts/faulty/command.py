"""gradscope as a process of its own, in an empty folder, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

LIMIT = 60.0  # seconds: what takes longer hangs
GONE = 3.0  # seconds in which processes without a parent must be gone

OURS = "import sys; from gradscope.__main__ import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class Ran:
    """How one run ended."""

    code: int | None  # None where it hung
    out: str  # on stdout and then on stderr
    printed: str  # on stdout alone
    seconds: float  # from the signal, where one was sent
    orphans: int
    left: tuple[str, ...]  # temporary files of ours that stayed


class Command:
    """A running `gradscope`, or other code, whose temporary files have a folder of their own."""

    def __init__(self, folder: Path, *words: str, before: str = "", runs: str = OURS) -> None:
        self._temporary = folder / "tmp"
        self._temporary.mkdir(exist_ok=True)
        self._mark = f"faulty-{os.getpid()}-{time.monotonic_ns()}"
        environment = os.environ | {
            "TMPDIR": str(self._temporary),
            "NO_COLOR": "1",
            "GRADSCOPE_FAULTY": self._mark,
        }
        code = f"{before}; {runs}"
        self._out = tempfile.TemporaryFile("w+")
        self._err = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-c", code.lstrip("; "), *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
        )

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def ended(self, limit: float = LIMIT) -> Ran:
        started = time.monotonic()
        try:
            code: int | None = self._process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
            self._process.kill()
        seconds = time.monotonic() - started
        orphans = self._orphans()
        left = tuple(sorted(path.name for path in self._temporary.iterdir()))
        folder = str(self._temporary.parent)  # another in each run
        printed, told = (_all_of(file).replace(folder, "FOLDER") for file in (self._out, self._err))
        return Ran(code, printed + told, printed, seconds, orphans, left)

    def _orphans(self) -> int:
        """How many processes that it started outlive it by more than a moment."""
        ends = time.monotonic() + GONE
        while (alive := len(list(self._alive()))) and time.monotonic() < ends:
            time.sleep(0.05)
        for pid in self._alive():
            os.kill(pid, signal.SIGKILL)
        return alive

    def _alive(self) -> Iterator[int]:
        wanted = f"GRADSCOPE_FAULTY={self._mark}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == self._process.pid:
                continue
            try:
                if wanted in (entry / "environ").read_bytes():
                    yield int(entry.name)
            except OSError:
                continue


def _all_of(file: TextIO) -> str:
    with file:
        file.seek(0)
        return file.read()


@contextmanager
def folder_with(program: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(program, encoding="utf-8")
        yield folder
