"""Which processes are the program's own: itself, and what it or one of those has started."""

import os
from contextlib import suppress
from multiprocessing import process

_DEEPEST = 64  # generations


def is_own(pid: int, program: int) -> bool:
    """Whether a signal to it stays with the program; a negative number is that of a group, as for
    `os.kill`. One that is gone is nobody, and gets none."""
    if pid < -1:
        return -pid == os.getpgrp() or is_own(-pid, program)
    if pid == -1:
        return False  # whoever may be signalled
    if pid in (0, os.getpid(), program):
        return True
    if os.path.isdir("/proc/self"):
        return _descends(pid, program)
    return any(one.pid == pid for one in process._children)  # type: ignore[attr-defined]


def of_descriptor(pidfd: int) -> int | None:
    """The process that it stands for; None of one that is gone."""
    with suppress(OSError), open(f"/proc/self/fdinfo/{pidfd}") as lines:
        for line in lines:
            if line.startswith("Pid:"):
                pid = int(line.split()[1])
                return pid if pid > 0 else None
    return None


def _descends(pid: int, program: int) -> bool:
    for _ in range(_DEEPEST):
        if pid in (0, 1):
            return False
        if pid == program:
            return True
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # Behind its name, which may hold any character: its state, then its parent.
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            return True
    return False
