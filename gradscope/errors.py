"""Errors that gradscope raises on purpose, and the exit codes they end in."""

import difflib
from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0  # nothing at or above --fail-on
    FINDINGS = 1  # at least one finding at or above --fail-on
    UNUSABLE = 2  # the target could not be run, or the command line is wrong
    INTERNAL = 3  # a fault of gradscope's own


CTRL_C = 130  # the shell's code for a program that Ctrl-C ended


class GradscopeError(Exception):
    """The job cannot be done: one line that says what, and `help` that says what to do.

    `detail` is printed below the line as it stands: the user's own traceback, for one.
    """

    def __init__(self, message: str, *, help: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.help = help
        self.detail = detail


def did_you_mean(
    word: str, known: Iterable[str], *, most: int = 1, alike: float = 0.6, within: str = ""
) -> str:
    """ "did you mean log-zero?": the nearest of what is known, by difflib's ratio; nothing where
    none is as much `alike`. `within` stands before each."""
    near = difflib.get_close_matches(word, list(known), most, alike)
    return f"did you mean {' or '.join(within + one for one in near)}?" if near else ""
