"""The standard streams of the program's process, and the end of Python in it."""

import atexit
import gc
import io
import os
import sys
import threading
import weakref
from contextlib import suppress
from types import ModuleType
from typing import Any, TextIO

from gradscope.record.forking import be_silent
from gradscope.record.held import alive
from gradscope.record.sites import USER, kind_of_file

_MAIN = ("__main__", "__mp_main__")


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
    """Wait for threads, run exit handlers, and let go of all that the program holds: its `__del__`
    are called, and files that were never closed are written."""
    wait_for_threads: Any = threading._shutdown  # type: ignore[attr-defined]
    wait_for_threads()
    atexit._run_exitfuncs()
    flush()
    gc.collect()
    _let_go_of_modules()
    flush()
    # What something of ours still holds would not be written: this process ends at once.
    for file in alive(io.IOBase):
        with suppress(OSError, ValueError):
            file.flush()


def _let_go_of_modules() -> None:
    """Of the program's own. As Python does: first what nobody needs any more, while all that it may
    use is there, then what the modules that are left hold, the last imported one first."""
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)
    left = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""  # torch.ops calls itself "_ops.py"
        is_own = os.path.isabs(file) and kind_of_file(file) == USER
        if isinstance(module, ModuleType) and (name in _MAIN or is_own):
            left.append(weakref.ref(module))
            sys.modules[name] = None  # type: ignore[assignment]
    module = None  # type: ignore[assignment]
    gc.collect()
    for one in reversed(left):
        names = vars(one()) if one() is not None else {}
        private = [name for name in names if name.startswith("_") and name[1:2] != "_"]
        for name in dict.fromkeys((*private, *names)):
            if name != "__builtins__":
                names[name] = None
