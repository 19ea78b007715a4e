"""What a sleeping copy is asked, and how the question and its answer travel.

With each question goes a pipe of its own for the messages of the run that answers it: a worker that
is killed in the middle of one spoils nothing else.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import NamedTuple

from gradscope.dataclass import dataclass
from gradscope.programs.channel import NoAnswer
from gradscope.programs.run_options import Repeat, RunOptions

_NUMBER = 8  # bytes
_AWHILE, _NAP = 1.0, 0.005  # seconds


class Carried(NamedTuple):
    """The descriptors that go with a question: its own text, and where its answer goes."""

    question: int
    messages: int
    status: int  # the worker's process id and, once it is gone, how it ended
    deaths: int
    control: int  # over which a snapshot of the worker's own is asked


@dataclass(frozen=True, slots=True)
class Question:
    """How to go on from a snapshot: as a repeated run, with texts in the place of files, and with
    what `setup` does before. `scratch` is the folder for what it writes. The run takes a snapshot
    of its own after `ahead` backward passes, where that is not None."""

    options: RunOptions
    repeat: Repeat
    scratch: str
    patches: Mapping[str, str]
    setup: Callable[[], None] | None = None
    ahead: int | None = None


def ask(control: socket.socket, step: int, question: Question, deaths: int) -> Asked:
    """Ask the snapshot of a step. Raises NoAnswer where nobody is there any more."""
    text = os.memfd_create("question")
    with open(text, "wb") as file:
        pickle.dump(question, file)
        file.flush()
        messages, theirs = Pipe(duplex=False)
        status, written = os.pipe()
        ours, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        one = Asked(messages, status, ours)
        with theirs, asked, open(written, "wb"):
            carried = Carried(text, theirs.fileno(), written, deaths, asked.fileno())
            try:
                socket.send_fds(control, [step.to_bytes(_NUMBER, "little")], carried)
            except OSError:  # killed from outside
                one.close()
                raise NoAnswer from None
    return one


def heard(control: socket.socket) -> tuple[int, Carried] | None:
    """The step that is asked for, and what came with it; None once nobody asks any more."""
    received, descriptors, _, _ = socket.recv_fds(control, _NUMBER, len(Carried._fields))
    return (int.from_bytes(received, "little"), Carried(*descriptors)) if descriptors else None


def passed_on(control: socket.socket, step: int, carried: Carried) -> None:
    """To the snapshot itself, which is not there any more where nothing comes back."""
    with suppress(OSError):
        socket.send_fds(control, [step.to_bytes(_NUMBER, "little")], carried)


def tell_status(carried: Carried, value: int) -> None:
    with suppress(OSError):
        os.write(carried.status, value.to_bytes(_NUMBER, "little", signed=True))


class Asked:
    """A worker that answers, as the child process that it is for whoever waits for it."""

    leads = True

    def __init__(self, connection: Connection, status: int, control: socket.socket) -> None:
        self.connection = connection
        self.control: socket.socket | None = control
        os.set_blocking(status, False)
        self._statuses = open(status, "rb", buffering=0)
        self._pid: int | None = None
        self._status: int | None = None

    def poll(self) -> int | None:
        while self._status is None:
            received = self._statuses.read(_NUMBER)
            if received is None:
                break
            if not received:  # the copy that slept is gone, and its worker with it
                self._status = -signal.SIGKILL
            elif self._pid is None:
                self._pid = int.from_bytes(received, "little", signed=True)
            else:
                self._status = int.from_bytes(received, "little", signed=True)
        return self._status

    def interrupt(self) -> None:
        self.kill()

    def pass_on(self, number: int) -> None:
        """Signals are for the program itself, which this one only repeats."""

    def kill(self) -> None:
        until = time.monotonic() + _AWHILE
        while self.poll() is None and self._pid is None and time.monotonic() < until:
            time.sleep(_NAP)  # it is just being made
        if self._status is None and self._pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
            self._status = -signal.SIGKILL
        self._statuses.close()

    def close(self) -> None:
        """Nobody was asked."""
        for one in (self.connection, self.control, self._statuses):
            if one is not None:
                one.close()
