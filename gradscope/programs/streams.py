"""The standard streams of the program's process, and the end of Python in it."""

import atexit
import gc
import os
import sys
import threading
from typing import Any, TextIO

from gradscope.record.forking import be_silent


def silence() -> None:
    """Nothing that the program prints is shown, and it reads nothing."""
    be_silent()
    sys.stdin = open(0, closefd=False)
    sys.stdout, sys.stderr = _writer(1), _writer(2)


def join_stdout_to_stderr() -> None:
    """The report itself is to have stdout."""
    os.dup2(2, 1)
    sys.stdout = _writer(1)


def _writer(stream: int) -> TextIO:
    """Text to a stream of the process, whatever a caller (pytest, a notebook) had put there."""
    return open(stream, "w", buffering=1, errors="backslashreplace", closefd=False)


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # closed by the program, or its reader has gone


def finish_as_python_does() -> None:
    """Wait for threads, run exit handlers, and let files that were never closed be written."""
    wait_for_threads: Any = threading._shutdown  # type: ignore[attr-defined]
    wait_for_threads()
    atexit._run_exitfuncs()
    main = sys.modules.get("__main__")
    if main is not None:
        main.__dict__.clear()
    gc.collect()
    flush()
