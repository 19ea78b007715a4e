"""Forking a process in which torch has computed with several threads."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from gradscope.signals import leave

_HARD = 2  # omp_pause_hard: the threads end, and are made again when they are next needed
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def fork_unnoticed() -> int:
    """As `os.fork`, by which neither the program nor Python learns of it: the copy goes on as the
    process that it was, with the same random states, and no handler of the program's runs on
    either side. Linux, and a process with no other thread of Python's: 0 in the copy.

    `os.fork` would seed Python's generator anew, close the program's loaders down, and since Python
    3.12 warn of threads that libraries have.
    """
    pause_openmp()
    pid: int = _python().fork()
    if pid < 0:
        raise OSError("fork")
    return pid


def die_with(parent: int) -> None:
    """Linux: a child whose parent was killed must not stay behind, holding its pipes open."""
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):
        _python().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        leave(1)


def pause_openmp() -> None:
    """To be called right before a fork: GNU OpenMP keeps a pool of waiting threads, which a copy
    of the process does not have and would wait for without end.

    Results do not depend on it, and neither does the number of threads. Other OpenMP runtimes
    have fork handlers of their own.
    """
    for library in _runtimes():
        if _can_pause(library):
            library.omp_pause_resource_all(_HARD)


def survives_a_fork() -> bool:
    """Whether a copy of this process can compute. That of torch 2.6 cannot where there are several
    threads: its GNU OpenMP is older than the function that pauses it, which came with GCC 9."""
    return all(_can_pause(one) or one.omp_get_max_threads() == 1 for one in _runtimes())


def _can_pause(library: ctypes.CDLL) -> bool:
    return hasattr(library, "omp_pause_resource_all")


@cache
def _python() -> ctypes.PyDLL:
    """The C library, called without giving up the interpreter's lock."""
    return ctypes.PyDLL(None)


@cache
def _runtimes() -> tuple[ctypes.CDLL, ...]:
    """The copies of GNU OpenMP in this process, of which torch brings one. They stay once loaded,
    and torch has loaded its own by the time that it is imported."""
    try:
        mapped = Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return ()
    paths = {line.split(maxsplit=5)[-1] for line in mapped.splitlines() if "libgomp" in line}
    return tuple(ctypes.CDLL(path) for path in sorted(paths))
