"""Forking a process in which torch has computed with several threads, and running an experiment so
that the program cannot tell: in a forked copy, or with its random states put back, as where CUDA is
in use. What the experiment counts, prints, draws or crashes then happens to a copy."""

import ctypes
import faulthandler
import os
import random
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from gradscope.dataclass import dataclass
from gradscope.signals import leave

_HARD = 2  # omp_pause_hard: the threads end, and are made again when they are next needed
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_GRACE = 1.0  # seconds in which a copy is ended that took too long
_LOOKS = 20  # at threads, until they rest
_TURN = 0.001  # seconds in which they may go on in between
_MADE_BY = 1.0  # seconds, in which no other thread interrupts a fork
_LOOK = 0.05  # seconds between looks at what the copy has used
_PATIENCE = 10.0  # times the limit by the clock on the wall: a copy that is stopped uses nothing
_TICK = 1 / os.sysconf("SC_CLK_TCK")
FORKS = sys.platform == "linux"  # elsewhere system libraries do not survive a fork

T = TypeVar("T")


def can_fork() -> bool:
    """Whether a copy of this process can compute: an initialised CUDA context does not survive."""
    return FORKS and not torch.cuda.is_initialized()


@contextmanager
def about_to_fork() -> Iterator[None]:
    """Around a fork by Python's own means."""
    with warnings.catch_warnings():
        # Python warns of threads. Ours are not used in the copy, and numpy's have fork handlers.
        warnings.simplefilter("ignore", DeprecationWarning)
        pause_openmp()
        yield


def fork_unnoticed() -> int:
    """As `os.fork`, by which neither the program nor Python learns of it: the copy goes on as the
    process that it was, with the same random states, and no handler of the program's runs on
    either side. Linux, and a process in which every other thread of Python's rests: 0 in the copy.

    `os.fork` would seed Python's generator anew, close the program's loaders down, and since Python
    3.12 warn of threads that libraries have.
    """
    pause_openmp()
    pid: int = c_library().fork()
    if pid < 0:
        raise OSError("fork")
    return pid


@contextmanager
def resting(threads: Collection[int]) -> Iterator[bool]:
    """Whether these threads of Python's, by their native ids, rest: each sleeps, though it could
    have the interpreter's lock. Nobody insists on that lock inside, for a while. Linux.

    What asks for it is part of the lock: in a copy, which has no other thread, whoever gives it up
    would wait for that one to take it.
    """
    before = sys.getswitchinterval()
    if threads:
        sys.setswitchinterval(_MADE_BY)
    try:
        for _ in range(_LOOKS):
            if rest := all(map(_sleeps, threads)):
                break
            time.sleep(_TURN)
        yield rest
    finally:
        if threads:
            sys.setswitchinterval(before)


def _sleeps(thread: int) -> bool:
    """Reading gives the lock up, and wakes whoever asks for it."""
    try:
        stat = Path(f"/proc/self/task/{thread}/stat").read_text()
    except OSError:
        return True  # it is over
    return stat.rpartition(")")[2].split()[0] == "S"


def die_with(parent: int) -> None:
    """Linux: a child whose parent was killed must not stay behind, holding its pipes open."""
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):
        c_library().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
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
def c_library() -> ctypes.PyDLL:
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


def has_room(copies: int) -> bool:
    """Whether the machine has memory for so many copies of this process that write all they hold.
    Linux."""
    shown = Path("/proc/meminfo").read_text()
    available = int(shown.partition("MemAvailable:")[2].split()[0]) * 1024
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - shared) * resource.getpagesize() * copies < available


class Asleep:
    """A copy of this process as it is now, which sleeps until it is asked. Each question it hands
    to a copy of its own, and answers with what `work` returns there: the next one finds all as it
    was. It ends with this process at the latest."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._ours, theirs = Pipe()
        parent = os.getpid()
        with about_to_fork():
            self._pid = os.fork()
        if self._pid == 0:
            try:
                self._ours.close()
                die_with(parent)
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # which is meant for the program
                while True:
                    question, seconds = theirs.recv()
                    theirs.send(forked(partial(work, question), seconds))
            finally:
                leave(0)
        theirs.close()

    def ask(self, question: object, seconds: float) -> Any:
        """The answer; None where there was none within the time, and from then on: what comes late
        would be taken for the answer to the next question."""
        is_answered = False
        try:
            if not self._ours.closed:
                self._ours.send((question, seconds))
                is_answered = self._ours.poll(seconds + _GRACE)
            return self._ours.recv() if is_answered else None
        except (OSError, EOFError):
            is_answered = False
            return None
        finally:
            if not is_answered:
                self.end()

    def end(self) -> None:
        if not self._ours.closed:
            self._ours.close()
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)


def forked(work: Callable[[], T], seconds: float) -> T | None:
    """What `work` returns in a copy of this process; None where it died or took too long."""
    with copy_of_this(lambda: iter((work(),))) as (_, ours), suppress(EOFError):
        if ours.poll(seconds):
            _, answer = ours.recv()
            return answer  # type: ignore[no-any-return]
    return None


@contextmanager
def copy_of_this(work: Callable[[], Iterable[object]]) -> Iterator[tuple[int, Any]]:
    """A copy of this process, until the block is left, and the end of a pipe at which come whether
    it is done, and what `work` yields there."""
    ours, theirs = Pipe(duplex=False)
    with about_to_fork():
        pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            faulthandler.disable()
            be_silent()
            torch.set_num_threads(1)  # the pool of threads has stayed with the parent
            for answer in work():
                theirs.send((False, answer))
            theirs.send((True, None))
        finally:
            leave(0)
    theirs.close()
    try:
        yield pid, ours
    finally:
        ours.close()
        # The program may wait for any child itself, and have got this one.
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """The last answer, None where there was none; whether it was the last one to come; and the
    seconds that the copy used."""

    last: T | None
    is_complete: bool
    seconds: float


def answers(work: Callable[[], Iterator[T]], seconds: float) -> Answers[T]:
    """What `work` yields in a copy of this process, which may use so many seconds for each answer:
    how busy the machine is does not decide what is found. An answer stays that of a copy which
    dies, or uses more, on its way to the next one. Linux."""
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


def be_silent() -> None:
    """This process prints nothing from here on, and reads nothing."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


class Randomness:
    """The states of all random generators, to return to before each call of a forward."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._torch = torch.get_rng_state()
        self._numpy = _numpy_random().get_state() if _numpy_random() else None
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None

    def put_back(self) -> None:
        random.setstate(self._python)
        torch.set_rng_state(self._torch)
        if self._numpy is not None:
            _numpy_random().set_state(self._numpy)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)


@contextmanager
def random_state_kept() -> Iterator[None]:
    before = Randomness()
    try:
        yield
    finally:
        before.put_back()


def _numpy_random() -> Any:
    """numpy's generator, where something has loaded it."""
    return sys.modules.get("numpy.random")
