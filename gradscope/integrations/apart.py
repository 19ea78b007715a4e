"""`gradscope.trace` in an interpreter of its own, as the command would have: the caller keeps its
signals, threads and random streams, and what it did to torch does not reach the program."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gradscope.config import Config
from gradscope.errors import GradscopeError
from gradscope.facts import Report
from gradscope.programs.targets import Target

# -P leaves the current folder out of the path, as for an installed command; where this package lies
# is there for its own import alone.
_PROGRAM = """\
import sys
place, folder = sys.argv.pop(1), sys.argv.pop(1)
sys.path.insert(0, place)
from gradscope.integrations.apart import serve
sys.path.remove(place)
serve(folder)
"""
_ORDER, _ANSWER = "order", "answer"


@dataclass(frozen=True, slots=True)
class Order:
    """The arguments of `pipeline.trace`."""

    target: Target
    config: Config
    remarks: tuple[str, ...]
    silent: bool
    keep: Path | None


def carried_out(order: Order) -> Report:
    """Raises GradscopeError as `pipeline.trace` does. The first Ctrl-C is passed on, and the report
    holds what was known by then; the second ends everything."""
    place = Path(__file__).resolve().parent.parent.parent
    with tempfile.TemporaryDirectory(prefix="gradscope-") as name:
        folder = Path(name)
        (folder / _ORDER).write_bytes(pickle.dumps(order))
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(place), name],
            # A group of its own hears Ctrl-C from us alone, and cannot read from the terminal.
            process_group=0,
            stdin=subprocess.DEVNULL,
        )
        try:
            code = _waited(process)
        finally:
            process.kill()
            process.wait()
        try:
            answer = pickle.loads((folder / _ANSWER).read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            raise GradscopeError(f"the tracing process ended without a report ({code})") from None
    if isinstance(answer, GradscopeError):
        raise answer
    assert isinstance(answer, Report)
    return answer


def _waited(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        return process.wait()


def serve(folder: str) -> None:
    """The interpreter's own part: the order in, a report or a GradscopeError out."""
    from gradscope import pipeline

    order: Order = pickle.loads((Path(folder) / _ORDER).read_bytes())
    try:
        answer: object = pipeline.trace(
            order.target, order.config, remarks=order.remarks, silent=order.silent, keep=order.keep
        )
    except GradscopeError as error:
        answer = error
    (Path(folder) / _ANSWER).write_bytes(pickle.dumps(answer))
