"""Runs the two tools on one program, each in a process and a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scoring.cases import without_markers

ANOMALY = Path(__file__).with_name("anomaly.py")
VALUES = Path(__file__).with_name("values.py")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tool said. `answer` is its JSON, None where it gave none; then `failure` says why."""

    answer: dict[str, Any] | None
    failure: str = ""
    seconds: float = field(default=0.0, compare=False)


def gradscope(program: Path, limit: float) -> Outcome:
    """`answer` is the report of `gradscope trace --format json`."""
    command = ["-m", "gradscope", "trace", program.name, "--format", "json", "--output"]
    return _run(command, program, limit)


def anomaly_mode(program: Path, limit: float) -> Outcome:
    """`answer` has `node` (None where nothing was raised) and `line`, see `scoring.anomaly`."""
    return _run([str(ANOMALY), program.name], program, limit)


def values(program: Path, step: int, limit: float) -> Outcome:
    """`answer` is as in `scoring.values`."""
    return _run([str(VALUES), program.name, str(step)], program, limit)


def _run(command: list[str], program: Path, limit: float) -> Outcome:
    """Runs python with `command` and the path of a file that is to hold the answer."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    environment.pop("PYTHONPATH", None)  # the programs see what their users would see
    with tempfile.TemporaryDirectory(prefix="score-") as folder, tempfile.TemporaryFile() as said:
        source = program.read_text(encoding="utf-8")
        Path(folder, program.name).write_text(without_markers(source), encoding="utf-8")
        with tempfile.TemporaryDirectory(prefix="score-answer-") as beside:
            answer = Path(beside, "answer.json")
            started = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, *command, str(answer)],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return Outcome(None, f"no answer in {limit:.0f} s", limit)
            seconds = time.perf_counter() - started
            said.seek(0)
            return _outcome(answer, code, said.read().decode(errors="replace"), seconds)


def _outcome(answer: Path, code: int, said: str, seconds: float) -> Outcome:
    try:
        return Outcome(json.loads(answer.read_text(encoding="utf-8")), seconds=seconds)
    except (OSError, ValueError):
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith("help:")] or ["nothing said"]
        return Outcome(None, f"exit {code}: {lines[-1]}", seconds)
