"""Run an experiment so that the program cannot tell: in a forked copy, or with its state put back.

A Function's forward may count its calls, print, draw random numbers or crash. In a fork all of
that happens to a copy. Where CUDA is in use a fork is impossible, and the random states are saved
and restored instead.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import random
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import torch

from gradscope.record.forking import pause_openmp
from gradscope.signals import leave

T = TypeVar("T")

FORKS = sys.platform == "linux"  # elsewhere system libraries do not survive a fork


def forked(work: Callable[[], T], seconds: float) -> T | None:
    """What `work` returns in a copy of this process; None where it died or took too long."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python warns of threads at a fork. The copy uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        pause_openmp()
        pid = os.fork()
    if pid == 0:
        _work_and_leave(work, reader, writer)
    os.close(writer)
    try:
        answer = _read(reader, time.monotonic() + seconds)
    finally:
        os.close(reader)
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass  # the program waits for any child itself, and has got this one
    return pickle.loads(answer) if answer else None


def _work_and_leave(work: Callable[[], Any], reader: int, writer: int) -> NoReturn:
    try:
        os.close(reader)
        faulthandler.disable()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        torch.set_num_threads(1)  # the pool of threads has stayed with the parent
        answer = pickle.dumps(work())
        while answer:
            answer = answer[os.write(writer, answer) :]
    finally:
        leave(0)


def _read(reader: int, until: float) -> bytes:
    """All that comes before the end of file; nothing if that is not in time."""
    chunks: list[bytes] = []
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return b""
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)


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
