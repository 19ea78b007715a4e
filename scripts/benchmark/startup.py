"""How long a user waits: the help, and a whole trace against the program alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gradscope.examples import EXAMPLES

COMMAND = Path(sys.executable).with_name("gradscope")
REFERENCE = "gamma_mask"


@dataclass(frozen=True, slots=True)
class Startup:
    """Medians in seconds of wall time; `ratio` is the median of the rounds' ratios."""

    help: float
    python: float
    trace: float
    ratio: float


def measure(rounds: int) -> Startup:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        program = Path(folder, EXAMPLES[REFERENCE].path.name)
        program.write_text(EXAMPLES[REFERENCE].path.read_text())
        python = [sys.executable, program.name]
        trace = [str(COMMAND), "trace", program.name]
        wall(python, folder)
        wall(trace, folder)
        pairs = [(wall(python, folder), wall(trace, folder)) for _ in range(rounds)]
        helps = [wall([str(COMMAND), "--help"], folder) for _ in range(rounds)]
    return Startup(
        help=median(helps),
        python=median(alone for alone, _ in pairs),
        trace=median(traced for _, traced in pairs),
        ratio=median(traced / alone for alone, traced in pairs),
    )


def wall(command: list[str], folder: str) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    started = time.perf_counter()
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if run.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)} failed:\n{run.stderr}")
    return seconds
