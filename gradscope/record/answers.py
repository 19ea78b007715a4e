"""What an experiment in a copy of the program answers, the first answer first, within a limit on
the time that the copy uses: how busy the machine is does not decide what is found. Linux."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from gradscope.dataclass import dataclass
from gradscope.record.forking import copy_of_this

_LOOK = 0.05  # seconds between looks at what the copy has used
_PATIENCE = 10.0  # times the limit by the clock on the wall: a copy that is stopped uses nothing
_TICK = 1 / os.sysconf("SC_CLK_TCK")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """The last answer, None where there was none; whether it was the last one to come; and the
    seconds that the copy used."""

    last: T | None
    is_complete: bool
    seconds: float


def answers(work: Callable[[], Iterator[T]], seconds: float) -> Answers[T]:
    """What `work` yields in a copy of this process, which may use so many seconds for each answer.
    An answer stays that of a copy which dies, or uses more, on its way to the next one."""
    last: T | None = None
    is_complete = False
    with copy_of_this(work) as (pid, ours):
        clock, most = _Clock(pid), seconds
        until = time.monotonic() + _PATIENCE * seconds
        with suppress(EOFError):
            while not is_complete and clock.read() < most and time.monotonic() < until:
                if ours.poll(_LOOK):
                    is_complete, found = ours.recv()
                    last = last if is_complete else found
                    most = clock.read() + seconds
                    until = time.monotonic() + _PATIENCE * seconds
    return Answers(last, is_complete, clock.used)


class _Clock:
    """The seconds that a process has computed, or slept: not those in which it was ready, and the
    machine at work for others."""

    def __init__(self, pid: int) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self.used, self._computed, self._looked = 0.0, 0.0, time.monotonic()

    def read(self) -> float:
        try:
            state, *fields = self._stat.read_text().rpartition(")")[2].split()
        except OSError:  # it is over, and the program has waited for it
            return self.used
        computed, now = (int(fields[10]) + int(fields[11])) * _TICK, time.monotonic()
        if computed > self._computed:
            self.used += computed - self._computed
        elif state == "S":
            # No more than between two looks: the machine may have been busy for this process too.
            self.used += min(now - self._looked, 2 * _LOOK)
        self._computed, self._looked = computed, now
        return self.used
