"""The command line: one file a command. What takes long to import is imported where it is used."""

import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from gradscope.cli.app import ClickException, Given, app, ended_together, is_first_to_say
from gradscope.cli.output import (
    MACHINE,
    UNREACHABLE,
    complain,
    open_closed_streams,
    report_fault,
    shortened,
    stdout_is_gone,
)
from gradscope.errors import CTRL_C, ExitCode, GradscopeError

__all__ = ["app", "main"]

# Importing a command's file adds it, in the order in which the help lists them.
COMMANDS = ("trace", "fix", "norms", "check", "replay", "report", "explain")
RUNNING = COMMANDS[:3]  # those whose program takes arguments of its own
for name in COMMANDS:
    import_module(f"gradscope.cli.{name}")


def main(words: Sequence[str] | None = None, began: float | None = None) -> int:
    """Run one command, which `began` then by `time.monotonic`, and return its exit code. What
    follows `--` belongs to the traced program."""
    open_closed_streams()
    return ended_together(_run(words, time.monotonic() if began is None else began))


def _run(words: Sequence[str] | None, began: float) -> int:
    given = list(sys.argv[1:] if words is None else words)
    split = given.index("--") if "--" in given else len(given)
    try:
        code = app(
            given[:split],
            obj=Given(tuple(given[split + 1 :]), began),
            prog_name="gradscope",
            standalone_mode=False,
        )
        sys.stdout.flush()
        if code == CTRL_C:  # newer versions of typer have taken the interrupt for an exit
            raise KeyboardInterrupt
        return int(code or 0)
    except GradscopeError as error:
        if is_first_to_say(str(error)):
            complain(str(error), error.help, error.detail)
    except ClickException as error:
        if is_first_to_say(error.format_message()):
            complain(error.format_message(), help_for(error, given))
    except (KeyboardInterrupt, typer.Abort) as error:
        if isinstance(error.__cause__, EOFError):  # typer takes it for the end of an answer
            report_fault(error.__cause__)
            return ExitCode.INTERNAL
        if is_first_to_say("interrupted"):
            complain("interrupted")
        return CTRL_C
    except (BrokenPipeError, SystemExit):  # the second is click's word for the first
        stdout_is_gone()
        return ExitCode.OK
    except OSError as error:
        if error.errno in MACHINE:
            stdout_is_gone()
            complain(f"the output could not be written: {error.strerror}")
        elif error.errno in UNREACHABLE and error.filename is not None:
            complain(f"{shortened(str(error.filename))}: {error.strerror}")
        else:
            report_fault(error)
            return ExitCode.INTERNAL
    except Exception as error:
        report_fault(error)
        return ExitCode.INTERNAL
    return ExitCode.UNUSABLE


def help_for(error: Any, given: Sequence[str]) -> str:
    """What to do about a command line that cannot be read."""
    command = error.ctx.info_name if getattr(error, "ctx", None) is not None else ""
    message = error.format_message()
    if command in RUNNING and getattr(error, "option_name", "") == "-m":
        return f"a module is named without it: gradscope {command} package.module"
    if command in RUNNING and message.startswith(("No such option", "Got unexpected extra")):
        return f"the program's own arguments follow after --: gradscope {command} FILE.py -- --lr 1"
    if command in COMMANDS:
        return f"gradscope {command} --help shows its options"
    if given and given[0] not in COMMANDS and Path(given[0]).is_file():
        return f"what to do with it comes first: gradscope trace {given[0]}"
    return "gradscope --help shows the commands and their options"
