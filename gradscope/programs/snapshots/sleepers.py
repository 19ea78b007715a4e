"""Taking snapshots: when, how many, and how each of them serves the questions that come."""

import ctypes
import mmap
import os
import pickle
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from gradscope.dataclass import dataclass
from gradscope.facts import Hurdle
from gradscope.programs.audit import own_work
from gradscope.programs.snapshots import questions
from gradscope.programs.snapshots.files import OpenFile, open_files, streams
from gradscope.programs.snapshots.loaders import Batches, Tape, shared_batches, shares_other_memory
from gradscope.record.forking import die_with, fork_unnoticed, has_room, resting, survives_a_fork
from gradscope.signals import held_back, leave

SHARE = 0.01  # of the time may go into snapshots
_FIRST_GUESS = 0.02  # seconds that one costs: a fork of a process that has torch in it
_PAGE_COPIED = 2.5e-6  # seconds for a page that is written first after a fork: fault and copy
_AND_ITS_END = 2  # times what a fork takes: the copy's memory is given back in its own time
_OLDER = 4  # times as far back as the newer one may the older one be before it is replaced
_READY = 8  # bytes
_READY_BY = 2.0  # seconds, after which the program goes on without that copy
_WITH_A_WORKER = 3  # copies: two snapshots, and one that answers
_CLOCK = 1.0  # seconds that a thread sleeps at least which nobody waits for


@dataclass(frozen=True, slots=True)
class Woken:
    """In a copy that is to go on: the question, and where its messages go."""

    carried: questions.Carried
    files: tuple[OpenFile, ...]

    def question(self) -> questions.Question:
        with open(self.carried.question, "rb") as file:
            file.seek(0)
            asked: questions.Question = pickle.load(file)
        return asked


@dataclass(frozen=True, slots=True)
class _Sleeper:
    step: int
    pid: int
    control: socket.socket
    taken: float  # by time.monotonic
    tape: Tape

    def end(self) -> None:
        """Without waiting: to give the memory back takes longer than the fork."""
        self.control.close()
        os.close(self.tape.descriptor)
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Snapshots:
    """Those of this process, which runs one program; `control` is where its parent asks, `ours` the
    descriptors that are not the program's, `shared` the memory that it shares with its parent."""

    def __init__(
        self, control: socket.socket, ours: Collection[int], shared: mmap.mmap | None = None
    ) -> None:
        self._control = control
        self._mapped = ctypes.addressof(ctypes.c_char.from_buffer(shared)) if shared else None
        self._ours = {control.fileno(), *ours}
        self.given = streams(self._ours)
        self._alive: list[_Sleeper] = []
        self._ended: list[int] = []  # processes that are not waited for yet
        self._due = time.monotonic() + _FIRST_GUESS / SHARE
        self._pages: int | None = None  # that were written until the last one was taken
        self._cost = 0.0
        self._is_over = False
        self.batches = Batches()
        self._only: int | None = None  # step, of a copy that takes one of its own
        self._hurdle: Hurdle | None = None  # why there was none when the last one was due

    @property
    def steps(self) -> tuple[int, ...]:
        """The backward passes that were over at each, newest first."""
        return tuple(one.step for one in reversed(self._alive) if not one.tape.is_full)

    @property
    def hurdle(self) -> Hurdle | None:
        """Why there is none, where one was due."""
        return Hurdle.MEMORY if self._alive and not self.steps else self._hurdle

    def before_fork(self) -> None:
        """The program makes a process, and may wait for whichever ends: it has none but its own. A
        loader looks after its workers alone."""
        if not self.batches.is_starting:
            self.end()

    def end(self) -> None:
        """No snapshot any more, of those that there are and for the rest of the run."""
        self._is_over = True
        for one in self._alive:
            self._let_go(one)
        self._alive, self.batches.tapes = [], []
        self._bury(0)

    def _let_go(self, one: _Sleeper) -> None:
        one.end()
        self._ended.append(one.pid)

    def _bury(self, flags: int) -> None:
        """Wait for those that were ended, or (`os.WNOHANG`) only for what is over."""
        for pid in self._ended[:]:
            with suppress(ChildProcessError):
                if os.waitpid(pid, flags)[0] == 0:
                    continue
            self._ended.remove(pid)

    def go_on(self, carried: questions.Carried, step: int | None) -> None:
        """In a copy, which takes no other one than that after so many backward passes."""
        self._control = socket.socket(fileno=carried.control)
        self._ours |= {carried.control, carried.messages, carried.deaths}
        self._only, self._is_over = step, step is None

    def is_due(self, step: int) -> bool:
        """Whether to take one after so many backward passes, as far as its cost is concerned."""
        if self._only is not None:
            return step == self._only
        if self._pages is not None:
            self._weigh()
        if time.monotonic() < self._due + self.batches.cost / SHARE:
            return False
        if self._is_over:
            self._hurdle = Hurdle.PROCESSES
        return not self._is_over

    def put_off(self, hurdle: Hurdle | None = None) -> None:
        """None can be taken now, and it cost a little to find out. What kept an earlier one from
        being taken stays known where it is not told why."""
        self._hurdle = hurdle or self._hurdle
        self._due = time.monotonic() + _FIRST_GUESS / SHARE

    def taken(self, step: int, ours: Collection[int] = ()) -> Woken | None:
        """Take one after so many backward passes, if that is possible; `ours` is open besides. In
        the copy, which comes back from here once it is asked something, what it was asked."""
        began = time.thread_time()
        self._bury(os.WNOHANG)
        with own_work():
            ours = {*ours, *self._ours, *(one.control.fileno() for one in self._alive)}
            ours |= self.batches.descriptors()
            files = open_files(ours, self.given)
            hurdle = self._obstacle() or (Hurdle.SHARED if files is None else None)
            if files is None or hurdle is not None:
                self.put_off(hurdle)
                return None
            return self._take(step, files, began)

    def serve(self) -> None:
        """Pass questions on to the snapshots, until nobody asks any more."""
        with held_back():
            while self._alive and (asked := questions.heard(self._control)) is not None:
                step, carried = asked
                for one in self._alive:
                    if one.step == step:
                        questions.passed_on(one.control, step, carried)
                for descriptor in carried:
                    os.close(descriptor)
            if self._alive:  # a Ctrl-C that came meanwhile was not for the program
                signal.sigtimedwait([signal.SIGINT], 0)
            self.end()

    def _take(self, step: int, files: tuple[OpenFile, ...], began: float) -> Woken | None:
        others = {one.native_id for one in threading.enumerate()} - {threading.get_native_id()}
        with resting([one for one in others if one is not None]) as rest:
            if rest:
                return self._copy(step, files, began)
        self.put_off(Hurdle.THREADS)
        return None

    def _copy(self, step: int, files: tuple[OpenFile, ...], began: float) -> Woken | None:
        now = time.monotonic()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent, tape, shared = os.getpid(), Tape(), bool(shared_batches())
        with held_back():  # the program's handlers are for the program
            pid = fork_unnoticed()
            if pid == 0:
                self._ours.discard(self._control.fileno())
                for one in (self._control, ours, *(other.control for other in self._alive)):
                    one.close()
                die_with(parent)
                if shared:
                    self.batches.own_memory()
                    theirs.send(b"ready")
                woken = _sleep(theirs, files)
                self._alive, self._ended = [], []
                if self._only is None:
                    self.batches.play(tape)
                return woken
        theirs.close()
        if shared and not _is_ready(ours):  # the program may write there
            self._let_go(_Sleeper(step, pid, ours, now, tape))
            self.put_off(Hurdle.SHARED)
            return None
        if len(self._alive) > 1:
            older, newer = self._alive
            goes = newer if now - older.taken < _OLDER * (now - newer.taken) else older
            self._alive.remove(goes)
            self._let_go(goes)
        self._alive.append(_Sleeper(step, pid, ours, now, tape))
        self.batches.tapes = [one.tape for one in self._alive]
        self._hurdle = None
        self._cost, self.batches.cost = time.thread_time() - began, 0.0
        self._due = float("inf")  # until it is known what has to be copied
        self._pages = _pages_written()
        return None

    def _weigh(self) -> None:
        """The step after a snapshot is over, which has copied what it wrote."""
        copied = _pages_written() - (self._pages or 0)
        cost = self._cost * _AND_ITS_END + copied * _PAGE_COPIED
        self._due = time.monotonic() + cost / SHARE
        self._pages = None

    def _obstacle(self) -> Hurdle | None:
        """Why this process cannot be copied, apart from its open files; None where it can."""
        cuda: Any = torch.cuda
        handler = signal.getsignal(signal.SIGCHLD)
        if handler not in (signal.SIG_DFL, signal.SIG_IGN) and not self.batches.handles(handler):
            return Hurdle.PROCESSES  # it would be told of the end of a copy
        if self._has_other_children():
            return Hurdle.PROCESSES
        threads = sys._current_frames().keys() - {threading.get_ident()}
        if threads - self.batches.threads() - _clocks() or not survives_a_fork():
            return Hurdle.THREADS
        if cuda.is_initialized() or shares_other_memory(self._mapped):
            return Hurdle.SHARED
        if shared_batches() and not self.batches.has_workers:
            return Hurdle.SHARED
        return None if has_room(_WITH_A_WORKER) else Hurdle.MEMORY

    def _has_other_children(self) -> bool:
        """A copy would share them: what they send, and their end."""
        own = {*self._ended, *(one.pid for one in self._alive), *self.batches.workers()}
        try:
            return not own.issuperset(
                map(int, Path("/proc/thread-self/children").read_text().split())
            )
        except OSError:
            return True  # the kernel does not tell


def _is_ready(copy: socket.socket) -> bool:
    copy.settimeout(_READY_BY)
    try:
        return bool(copy.recv(_READY))
    except OSError:
        return False
    finally:
        copy.settimeout(None)


def _clocks() -> set[int]:
    """The daemons that sleep for seconds, as one does that looks after a progress bar: no
    computation waits for what they do, and in a copy they may be missing."""
    frames = sys._current_frames()
    daemons = (one.ident for one in threading.enumerate() if one.daemon and one.ident in frames)
    return {ident for ident in daemons if ident is not None and _sleeps(frames[ident])}


def _sleeps(frame: FrameType) -> bool:
    """Whether that is where a thread waits for an event, for a second at least; not while it holds
    the event's lock, which a copy would wait for."""
    above = frame.f_back.f_code if frame.f_back is not None else None
    if (frame.f_code, above) != (threading.Condition.wait.__code__, threading.Event.wait.__code__):
        return False
    known: dict[str, Any] = frame.f_locals
    return (known["timeout"] or 0.0) >= _CLOCK and not known["self"]._lock.locked()


def _sleep(control: socket.socket, files: tuple[OpenFile, ...]) -> Woken:
    """The life of a copy: each question is answered by a copy of its own, which returns."""
    worker = 0
    while True:
        asked = questions.heard(control)
        if worker:
            os.waitpid(worker, 0)  # only now may its number be another's
        if asked is None:
            leave(0)
        _, carried = asked
        own = os.getpid()
        worker = fork_unnoticed()
        if worker == 0:
            die_with(own)
            os.setpgid(0, 0)
            control.close()
            os.close(carried.status)
            return Woken(carried, files)
        with suppress(OSError):  # it has done so itself, or is gone
            os.setpgid(worker, worker)
        questions.tell_status(carried, worker)
        for descriptor in set(carried) - {carried.status}:
            os.close(descriptor)
        questions.tell_status(carried, _ended(worker))
        os.close(carried.status)


def _ended(worker: int) -> int:
    """The exit code of a worker, or minus the signal; what it started ends with it."""
    end: Any = os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(worker, signal.SIGTERM)
    status: int = end.si_status
    return status if end.si_code == os.CLD_EXITED else -status


def _pages_written() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
