"""Forking a process in which torch has computed with several threads."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

_HARD = 2  # omp_pause_hard: the threads end, and are made again when they are next needed


def pause_openmp() -> None:
    """To be called right before a fork: GNU OpenMP keeps a pool of waiting threads, which a copy
    of the process does not have and would wait for without end.

    Results do not depend on it, and neither does the number of threads. Other OpenMP runtimes
    have fork handlers of their own.
    """
    for library in _runtimes():
        library.omp_pause_resource_all(_HARD)


@cache
def _runtimes() -> tuple[ctypes.CDLL, ...]:
    """The copies of GNU OpenMP in this process, of which torch brings one. They stay once loaded,
    and torch has loaded its own by the time that it is imported."""
    try:
        mapped = Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return ()
    paths = {line.split(maxsplit=5)[-1] for line in mapped.splitlines() if "libgomp" in line}
    found = (ctypes.CDLL(path) for path in sorted(paths))
    return tuple(library for library in found if hasattr(library, "omp_pause_resource_all"))
