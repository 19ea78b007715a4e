"""What the child process tells its parent while the program runs. Everything here pickles."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.facts import Trace


@dataclass(frozen=True, slots=True)
class Progress:
    steps: int
    ops: int


@dataclass(frozen=True, slots=True)
class Interim:
    """The facts so far, in case that nothing comes after them."""

    trace: Trace


@dataclass(frozen=True, slots=True)
class Final:
    """The facts of the whole run. `imported` are the slow parts of torch that it needed.
    `snapshots` are the steps from which it can be repeated, newest first."""

    trace: Trace
    imported: tuple[str, ...] = ()
    snapshots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Unanswered:
    """What was asked of a snapshot cannot be told from there."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """The target cannot be run: a GradscopeError on its way to the parent."""

    message: str
    help: str
    detail: str


@dataclass(frozen=True, slots=True)
class Fault:
    """gradscope itself failed in the child."""

    traceback: str


Message = Progress | Interim | Final | Unanswered | Unusable | Fault
