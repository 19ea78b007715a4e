"""Errors that gradscope raises on purpose, and the exit codes they end in."""

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
