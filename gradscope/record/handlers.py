"""Signals, for which the program has handlers of its own: what those raise (a time limit by
`signal.alarm`) must not get lost in what we shield, nor tear our books."""

import _thread
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from types import CodeType, FrameType
from typing import Any

from gradscope.record.sites import OURS, USER, file_in_torch, is_entry, kind_of
from gradscope.record.stand_ins import outward, stand_in, stands_in
from gradscope.record.tracing import unobserved

_AS_EVER = unobserved.except_for.__code__


def let_handlers_wait(stack: ExitStack) -> None:
    """Until `stack` ends, a handler that is due in the midst of our work runs right after it."""
    if threading.current_thread() is not threading.main_thread():
        return  # where no handler runs
    put, get = signal.signal, signal.getsignal

    def signal_(signalnum: Any, handler: Any) -> Any:
        return _own(put(signalnum, _waiting(handler)))

    def getsignal(signalnum: Any) -> Any:
        return _own(get(signalnum))

    stand_in(stack, signal, "signal", signal_)
    stand_in(stack, signal, "getsignal", getsignal)

    def pass_through(change: Callable[[Any], Any]) -> None:
        for number in signal.valid_signals():
            if change(handler := get(number)) is not handler:
                put(number, change(handler))

    stack.callback(pass_through, _own)
    pass_through(_waiting)


class _Waiting:
    def __init__(self, handler: Callable[..., Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        if not _is_ours(frame):
            return self.handler(number, frame)
        again = _raised_when_freed(number)()  # noqa: F841  # as this call returns
        return None


@cache
def _raised_when_freed(number: Any) -> type:
    """Without a line of Python, before which a signal would be heard at once: here, again."""
    return type("again", (), {"__del__": staticmethod(partial(_thread.interrupt_main, number))})


def _waiting(handler: Any) -> Any:
    """But not the one that ends the program: we listen to Ctrl-C as well."""
    waits = callable(handler) and handler is not signal.default_int_handler
    return _Waiting(handler) if waits else handler


def _own(handler: Any) -> Any:
    return handler.handler if isinstance(handler, _Waiting) else handler


def _is_ours(frame: FrameType | None) -> bool:
    """Whether the work that was interrupted is: not what torch does where it would without us,
    which may take long."""
    called: CodeType | None = None
    for code in (one.f_code for one in outward(frame)):
        is_generated = code.co_filename.startswith("<")  # as by `dataclass`: whoever calls it
        if is_entry(code) or code is _AS_EVER or (kind_of(code) == USER and not is_generated):
            return False
        passes_on = called is not None and stands_in(code) and file_in_torch(called)
        if kind_of(code) == OURS and not passes_on:
            return True
        called = code
    return False
