"""How a program ended, told in its own frames: exceptions, exits, and deaths in native code."""

import importlib.machinery
import linecache
import re
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import CodeType, TracebackType
from typing import Any

from gradscope.errors import CTRL_C, GradscopeError
from gradscope.facts import Ending, Location
from gradscope.record.sites import (
    OURS,
    USER,
    file_in_torch,
    kind_of,
    kind_of_file,
    resolve,
    shown_path,
)
from gradscope.record.stand_ins import links, stands_in
from gradscope.record.tracing import is_device_assert

_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)  # faulthandler's
# Of torch: who is in there may wait for other processes. The hooks of DDP and FSDP run in backward.
_WAITING = ("distributed/", "autograd/graph.py")

_importer: Any = sys.modules[importlib.machinery.SourceFileLoader.__module__]
_WITHOUT_A_WORD = "by native code or with all files closed, ours included"


def not_importable(target: str, error: BaseException) -> GradscopeError | None:
    """Of a program that did not come to its first step: what kept it from being loaded, if that is
    what the error tells of."""
    damaged = _damaged_copy(error)
    if damaged is not None:
        reason = str(error).partition(" in ")[0]  # one of them names the file as well
        return GradscopeError(
            f"{target} could not be imported: {shown_path(damaged)} is damaged ({reason})",
            help="it is Python's own copy of a compiled module, made anew once you delete it",
        )
    if isinstance(error, SyntaxError):
        place = f"{shown_path(error.filename or '?')}:{error.lineno}:{error.offset or 1}"
        return GradscopeError(
            f"{place}: {error.msg}", help="it is not valid Python", detail=trimmed(error)
        )
    if not isinstance(error, ImportError):
        return None
    help = (
        "gradscope runs in the Python of its own environment: install the program's packages there"
    )
    if "no known parent package" in str(error):
        help = "a file of a package is named as for python -m: gradscope trace package.module"
    return GradscopeError(
        f"{target} could not be imported: {error}",
        help=help,
        detail=trimmed(error) if _innermost(error.__traceback__) else "",
    )


def _damaged_copy(error: BaseException) -> str | None:
    """The `.pyc` that Python could not load. Of an ImportError it leaves its own frames out."""
    if isinstance(error, ImportError):
        return error.path if error.msg.startswith("Non-code object") else None
    *_, last = (None, *traceback.walk_tb(error.__traceback__))
    if last is None or last[0].f_code is not _importer._compile_bytecode.__code__:
        return None
    path = last[0].f_locals.get("bytecode_path")
    return path if isinstance(path, str) else None


def ending_of(error: BaseException) -> Ending:
    """The ending of a program that let an exception out."""
    place, waits = _innermost(error.__traceback__), _waits(_codes(error.__traceback__))
    match error:
        case SystemExit(code=code):
            if isinstance(code, int) or code is None:
                number = code or 0
                return Ending("exited", f"sys.exit({number})", number, location=place)
            print(code, file=sys.stderr)
            return Ending("exited", f"sys.exit({str(code)!r})", 1, location=place)
        case KeyboardInterrupt():
            return Ending("interrupted", "Ctrl-C", CTRL_C, trimmed(error), place, waits=waits)
    return Ending(
        "raised",
        traceback.format_exception_only(error)[-1].strip().splitlines()[0],
        1,
        trimmed(error),
        place,
        out_of_memory=_ran_out_of_memory(error),
        device_assert=is_device_assert(error),
        waits=waits,
    )


def _ran_out_of_memory(error: BaseException) -> bool:
    kinds = getattr(sys.modules.get("torch"), "OutOfMemoryError", MemoryError)
    if isinstance(error, MemoryError | kinds):
        return True
    # What torch's allocator for the CPU raises is a plain RuntimeError: its text alone tells.
    texts = ("can't allocate memory", "bad_alloc")
    return type(error) is RuntimeError and any(text in str(error) for text in texts)


def ending_of_status(status: int, deaths: str) -> Ending:
    """The ending of a child that sent no last word: killed by a signal, ended by native code, or by
    a program that had closed all its files.

    `status` is the exit code, or minus the signal; `deaths` is what faulthandler wrote.
    """
    if status >= 0:
        return Ending("died", f"exit code {status}, {_WITHOUT_A_WORD}", status)
    name = signal.Signals(-status).name
    cause = re.search(r"^Fatal Python error: (.+)$", deaths, re.MULTILINE)
    detail = f"{cause[1]} ({name})" if cause else name
    if -status == signal.SIGKILL:
        detail = f"{name}, sent from outside, often because memory ran out"
    found = _FRAME.findall(deaths)[::-1]  # innermost last, as in a traceback
    frames = [(file, int(line), name) for file, line, name in found if kind_of_file(file) == USER]
    lines = traceback.format_list([(*frame, None) for frame in frames])
    trace = "".join(["Traceback (most recent call last):\n", *lines]) if frames else ""
    place = _whole_line(*frames[-1]) if frames else None
    waits = _waits(compile("", file, "exec") for file, *_ in found)
    return Ending("died", detail, status, trace, place, waits=waits)


def trimmed(error: BaseException) -> str:
    """The traceback as Python prints it, with the user's own frames alone where there are any."""
    formatted = traceback.TracebackException(type(error), error, error.__traceback__)
    for part in _chain(formatted):
        own = [frame for frame in part.stack if kind_of_file(frame.filename) == USER]
        foreign = [frame for frame in part.stack if kind_of_file(frame.filename) != OURS]
        part.stack = traceback.StackSummary.from_list(own or foreign[-1:])
    return "".join(formatted.format())


def tell_hook(error: BaseException) -> None:
    """The program may have a hook of its own for exceptions: it is called as Python would, with
    the frames that are there without us. Python's own hook prints those of the exception. What the
    frames hold stays until the end, as with Python."""
    if not isinstance(error, SystemExit):
        sys.last_type, sys.last_value, sys.last_traceback = (
            type(error),
            error,
            _without_ours(error.__traceback__),
        )
    if sys.excepthook is not sys.__excepthook__ and isinstance(error, Exception):
        all_frames = error.__traceback__
        with suppress(Exception, SystemExit):
            error.__traceback__ = _without_ours(all_frames)
            sys.excepthook(type(error), error, error.__traceback__)
        error.__traceback__ = all_frames


def _without_ours(frames: TracebackType | None) -> TracebackType | None:
    kept = None
    for one in reversed(list(links(frames))):
        if kind_of(one.tb_frame.f_code) != OURS:
            kept = TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return kept


def is_ours(error: BaseException) -> bool:
    """Whether gradscope's own code raised it: then it is a fault of ours and not the program's."""
    code = next(reversed(list(_codes(error.__traceback__))), None)
    if code is None or is_device_assert(error):  # whoever waits for the device next meets it
        return False
    # An op that raises does so in a wrapper of torch's, as does what cannot be compiled, or in our
    # mode, which only calls it.
    is_wrapper = bool(file_in_torch(code)) or stands_in(code)
    return kind_of(code) == OURS and not is_wrapper


def _waits(codes: Iterable[CodeType]) -> bool:
    """Whether the innermost one, which comes last, is one of those; ours are around them."""
    others = [code for code in codes if kind_of(code) != OURS]
    return bool(others) and file_in_torch(others[-1]).startswith(_WAITING)


def _codes(frames: TracebackType | None) -> Iterator[CodeType]:
    return (one.tb_frame.f_code for one in links(frames))


def _chain(one: traceback.TracebackException | None) -> Iterator[traceback.TracebackException]:
    while one is not None:
        yield one
        for part in one.exceptions or ():
            yield from _chain(part)
        one = one.__cause__ or one.__context__


def _innermost(frames: TracebackType | None) -> Location | None:
    """The line of the user's; without one, a traceback tells nothing."""
    own = [one for one in links(frames) if kind_of(one.tb_frame.f_code) == USER]
    return resolve(own[-1].tb_frame.f_code, own[-1].tb_lasti) if own else None


def _whole_line(file: str, line: int, name: str) -> Location:
    text = linecache.getline(file, line).rstrip()
    start = len(text) - len(text.lstrip())
    return Location(shown_path(file), line, start, line, len(text), name)
