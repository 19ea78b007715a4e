"""The ways in which the commands speak: reports to a file or to stdout, lines on stderr."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gradscope.cli import options
from gradscope.errors import ExitCode, GradscopeError
from gradscope.version import __version__

if TYPE_CHECKING:
    from gradscope.facts import Report, Severity, Summary
    from gradscope.report import Options
    from gradscope.report.rendering import RulePage
    from gradscope.report.status import Stages
    from gradscope.source.text import Texts


def check_report_place(format: str, file: Path | None, asked_by: str = "--output") -> None:
    """Before the program runs. `asked_by` is the option that named the file."""
    from gradscope.report import by_name
    from gradscope.writing import check_writable

    by_name(format)
    if file is not None:
        check_writable(file, asked_by=asked_by)


def fitting(file: Path | None) -> Options:
    """The rendering options for a file, or for stdout without one."""
    from gradscope.report import Options

    return Options(width=100) if file is not None else Options.fitting(sys.stdout)


def rendered(
    report: Report | Summary,
    format: str,
    file: Path | None,
    *,
    quiet: bool = False,
    texts: Texts | None = None,
) -> str:
    """The report in a format. `texts` are as in `source.read`."""
    from gradscope.facts import Report
    from gradscope.report import by_name
    from gradscope.source import lines

    options = replace(
        fitting(file), quiet=quiet, sources=partial(lines, texts=texts or {}), page=page_of
    )
    if isinstance(report, Report):
        return by_name(format).render(report, options)
    return by_name(format).render_all(report, options)


def page_of(code: str) -> RulePage | None:
    """The documentation of a rule, by its code; None for an unknown one."""
    from gradscope.report.rendering import RulePage
    from gradscope.rules import RULES, pages

    rule = RULES.get(code)
    if rule is None:
        return None
    what = " ".join(pages.sections(rule)["What it does"].split())
    return RulePage(pages.summary(rule), what, pages.markdown(rule))


def write(text: str, file: Path | None, asked_by: str = "--output") -> None:
    """A whole report, to a file or to stdout."""
    from gradscope.writing import write_or_print, write_whole

    if file is not None:
        if asked_by == "--output":
            write_or_print(file, text, asked_by=asked_by)
        else:  # one more format of what is told already
            write_whole(file, text, asked_by=asked_by)
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        stdout_is_gone()


def tell(
    context: typer.Context,
    report: Report,
    fail_on: Severity,
    stages: Stages | None = None,
    texts: Texts | None = None,
) -> ExitCode:
    """One report, whole, and the exit code that it gives. Where Ctrl-C ends its writing, its last
    line is told all the same."""
    from gradscope.pipeline import exit_code

    try:
        format, file = options.report_place(context)
        text = rendered(report, format, file, quiet=context.params["quiet"], texts=texts)
        if stages is not None:
            stages.clear()
        write(text, file)
    except KeyboardInterrupt:
        from gradscope.report.closing import summary

        say(summary(report))
        raise
    return options.code_or_zero(context, exit_code(report, fail_on))


def write_reports(
    summary: Summary, places: Iterable[tuple[str, Path | None, str]], *, quiet: bool = False
) -> None:
    """Each of several, also where one cannot be written; that is told at the end."""
    failed: GradscopeError | None = None
    for format, file, asked_by in places:
        try:
            write(rendered(summary, format, file, quiet=quiet), file, asked_by)
        except GradscopeError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def say(line: str) -> None:
    """A line on stderr, for people: what it quotes of the program is nobody's command."""
    from gradscope.report.printable import inert

    print(inert(line), file=sys.stderr)


# The machine's own reasons for which an output cannot be written: a full disk, above all.
MACHINE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
# Paths that the user named and the system refuses.
UNREACHABLE = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EROFS})


def shortened(text: str, most: int = 80) -> str:
    """The text with its middle left out where it is longer than anybody reads."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]}"


def open_closed_streams() -> None:
    """Where a stream was closed by whoever started us (`>&-`), nothing is what goes there. Else
    the next file to be opened, a pipe of ours, would be the program's stdout."""
    for stream, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            setattr(sys, name, open(stream, "w" if stream else "r", closefd=False))


def stdout_is_gone() -> None:
    """The reader (head, less) has closed the pipe, or the disk is full; Python must not complain
    when it exits of what it could not write."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def complain(message: str, help: str = "", detail: str = "") -> None:
    from gradscope.report.printable import clean, inert, sentence

    lines = [sentence(f"gradscope: error: {message}")]
    if detail:
        lines += [clean(line.expandtabs()) for line in detail.rstrip().split("\n")]
    if help:
        lines.append(sentence(f"help: {help}"))
    print(inert("\n".join(lines)), file=sys.stderr)


def report_fault(error: Exception) -> None:
    import traceback

    traceback.print_exception(error)
    print(
        f"gradscope: internal error: {type(error).__name__}: this is a fault of gradscope "
        f"{__version__}, not of your program\n"
        "help: report it with the lines above to the project's issue tracker",
        file=sys.stderr,
    )
