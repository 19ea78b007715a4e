"""Ctrl-C and other signals: before a program runs, while it does, and in its own process."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


def known_signals(names: str) -> tuple[signal.Signals, ...]:
    """Those of these signals that there are on this platform."""
    return tuple(one for one in signal.Signals if one.name in names.split())


ENDING = (signal.SIGINT, signal.SIGTERM)
# Meant for the program, though whoever sends them (Slurm, `timeout`, `kill`) knows only us.
PASSED_ON = known_signals("SIGTERM SIGHUP SIGUSR1 SIGUSR2")
# The process's own faults: blocked, they would end it without a word.
_FATAL = {*known_signals("SIGSEGV SIGBUS SIGFPE SIGILL SIGABRT SIGTRAP SIGSYS")}
# Asks the process of a program where it is, though it be in native code and hears nothing else.
ASKS_PLACE: int | None = getattr(signal, "SIGRTMAX", None)
leave = os._exit  # which a program's own calls of are told of
HURRIED = ("SIGTERM", "SIGHUP")  # whoever sends these waits for the end


def leave_at_once() -> None:
    """Until a program runs there is nothing to lose, and half of an import does not go quietly:
    some packages swallow a KeyboardInterrupt, or turn it into another exception."""
    _take_over(_leave)


def raise_from_now_on() -> None:
    """There is something to tell: Ctrl-C and SIGTERM are a KeyboardInterrupt."""
    _take_over(signal.default_int_handler)


def as_python_starts() -> None:
    """In the process of the program: what `python` would have given it. What we were told to
    ignore it ignores too."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is signal.default_int_handler:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def ignored() -> frozenset[signal.Signals]:
    """Those that we were told to ignore, as `nohup` does. The program may hear them all the same,
    with a handler of its own."""
    numbers = {signal.SIGINT, *PASSED_ON}
    return frozenset(one for one in numbers if signal.getsignal(one) is signal.SIG_IGN)


@contextmanager
def heard(
    numbers: Iterable[signal.Signals], hear: Callable[[int], None], *, though_ignored: bool = False
) -> Iterator[None]:
    """Around what must not be torn by an exception: `hear` is told each signal that comes. Those
    that were ignored stay so, unless `though_ignored`, and outside of the main thread Python hears
    none."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            if though_ignored or signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, lambda number, frame: hear(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held_back() -> Iterator[None]:
    """No handler of the program's runs inside. One that is due runs before or after, and may raise
    there what it likes."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FATAL)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def undisturbed() -> Iterator[None]:
    """`held_back`, at the end of the program: what its handlers raise changes nothing any more."""
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(held_back())
                break
            except BaseException:
                continue
        yield
        with suppress(BaseException):
            stack.close()


def _take_over(handler: Handler) -> None:
    """Only from Python's own ways and from ours: a caller's handler stays."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler, _leave):
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"gradscope: error: interrupted\n")
    leave(128 + number)
