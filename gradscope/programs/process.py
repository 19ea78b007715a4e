"""The child process as its parent sees it: forked where that is safe, a fresh interpreter else."""

import contextlib
import gc
import importlib
import multiprocessing
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn, Protocol

import torch

from gradscope.programs.child import Job, run_child
from gradscope.record.forking import about_to_fork, can_fork, die_with

_NAP = 0.005  # seconds between two looks at a child that is about to end

# Each run starts from this state; forking reseeds Python's generator, so it is set again.
_RANDOM = random.getstate()
_wanted: set[str] = set()


class Child(Protocol):
    connection: Connection
    control: socket.socket | None  # over which its snapshots are asked
    leads: bool  # a process group of its own: Ctrl-C at a terminal does not reach it

    def poll(self) -> int | None:
        """The exit code, or minus the signal that killed it; None while it runs."""

    def interrupt(self) -> None:
        """As Ctrl-C does."""

    def pass_on(self, number: int) -> None:
        """A signal to the program itself, and not to what it started."""

    def kill(self) -> None:
        """At once, with everything that it started."""


def start(job: Job, *, snapshots: bool = False) -> Child:
    return _Forked(job, snapshots) if can_fork() else _Spawned(job)


def beside(work: Callable[..., None], *args: object) -> tuple[BaseProcess, Connection]:
    """A process that runs `work(*args, connection)`, and our end of its connection to us."""
    context: Any = multiprocessing.get_context("fork" if can_fork() else "spawn")
    import_wanted()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(*args, theirs))
    with about_to_fork():
        process.start()
    theirs.close()
    return process, ours


def preload(modules: tuple[str, ...]) -> None:
    """Have the next fork inherit what the last run had to import for itself."""
    _wanted.update(modules)


def wanted() -> tuple[str, ...]:
    """The modules that earlier runs had to import themselves."""
    return tuple(sorted(_wanted))


def wait(child: Child, seconds: float) -> int | None:
    """The child's status once it is gone; None where it outlives the time."""
    end = time.monotonic() + seconds
    while (status := child.poll()) is None and time.monotonic() < end:
        time.sleep(_NAP)
    return status


class _Forked:
    def __init__(self, job: Job, snapshots: bool) -> None:
        import_wanted()
        # At a terminal the child stays in our group: another one could not read from it. Elsewhere
        # it leads its own, so that its workers die with it.
        self.leads = job.silent or not os.isatty(0)
        self._ends_alone = job.repeat is None  # what it started may go on without it
        self.connection, theirs = Pipe(duplex=False)
        self.control = asked = None
        if snapshots:
            self.control, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        gc.freeze()  # what is here already need not be looked through, or copied, by the child
        with about_to_fork():
            self.pid = os.fork()
        if self.pid == 0:
            self._be_the_child(job, theirs, asked, parent)
        if self.leads:
            with contextlib.suppress(OSError):  # it has done so itself, or is gone
                os.setpgid(self.pid, self.pid)
        theirs.close()
        if asked is not None:
            asked.close()
        self._status: int | None = None

    def _be_the_child(
        self, job: Job, connection: Connection, asked: socket.socket | None, parent: int
    ) -> NoReturn:
        if self.leads:
            os.setpgid(0, 0)
        self.connection.close()
        if self.control is not None:
            self.control.close()
        die_with(parent)
        random.setstate(_RANDOM)
        _make_engine_anew()
        run_child(job, connection, asked)

    def poll(self) -> int | None:
        if self._status is None:
            try:
                if not self._ends_alone:
                    self._end_group()
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._status = 0  # somebody else in this process has reaped it
                return self._status
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def _end_group(self) -> None:
        """Once the child is gone: its workers go as well. Not before it is waited for, which makes
        the group's number free for others."""
        gone = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if os.waitid(os.P_PID, self.pid, gone) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGTERM)

    def interrupt(self) -> None:
        self._signal(signal.SIGINT)

    def pass_on(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        wait(self, 1.0)

    def _signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if self.leads else os.kill)(self.pid, number)


class _Spawned:
    leads = False
    control: socket.socket | None = None

    def __init__(self, job: Job) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe(duplex=False)
        job = replace(job, done=None)  # which only a fork shares
        self._process = context.Process(target=run_child, args=(job, theirs), daemon=False)
        self._process.start()
        theirs.close()

    def poll(self) -> int | None:
        return self._process.exitcode

    def interrupt(self) -> None:
        self.pass_on(signal.SIGINT)

    def pass_on(self, number: int) -> None:
        if self._process.pid is not None and os.name == "posix":
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.join(1.0)


def import_wanted() -> None:
    """Before a fork: what runs so far had to import for themselves, for all that follow."""
    for name in sorted(_wanted):
        importlib.import_module(name)
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random")  # seeds itself once, here, for every child


def _make_engine_anew() -> None:
    """Torch does so itself when autograd is first used after a fork, and without a lock: threads
    of the program that use it first, all at once, would crash (PythonEngine::get_python_engine)."""
    engine: Any = torch.autograd.Variable._execution_engine
    engine.is_checkpoint_valid()
