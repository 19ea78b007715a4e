"""What the `norms` command takes, and what it writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.facts import Report
from gradscope.norms import document, text
from gradscope.norms.facts import NormReport
from gradscope.norms.rows import SORTS
from gradscope.outputs import check_writable
from gradscope.report import Options
from gradscope.report.closing import state
from gradscope.report.printable import inert, sentence

EXAMPLE = "clip_norm"
FORMATS = ("terminal", "json")


def check(format: str, sort: str, *, output: Path | None, html: Path | None) -> None:
    """Before the program runs: its hours should not be lost to a misspelt word."""
    if format not in FORMATS:
        raise GradscopeError(f"no format is called {format}", help=f"one of: {', '.join(FORMATS)}")
    if sort not in SORTS:
        raise GradscopeError(f"--sort {sort} is no order", help=f"one of: {', '.join(SORTS)}")
    for option, file in (("--output", output), ("--html", html)):
        if file is not None:
            check_writable(file, asked_by=option)


@dataclass(frozen=True, slots=True)
class View:
    """What the command line wants to see of the norms."""

    format: str = "terminal"
    depth: int | None = None
    sort: str = "module"
    quiet: bool = False


def rendered(report: NormReport, view: View, options: Options) -> str:
    if view.format == "json":
        return document.as_json(report)
    if view.quiet:
        return _verdict(report.judged)
    return inert(text.render(report, options, depth=view.depth, sort=view.sort))


def _verdict(judged: Report) -> str:
    """One line, and nothing where all is healthy. No fix was tried, so none is counted."""
    found = ", ".join(f"{one.rule} {one.name}" for one in judged.findings)
    if not found and judged.verdict == "healthy":
        return ""
    words = f"{judged.target}: {state(judged)}" + (f" ({found})" if found else "")
    return f"{sentence(words)}\n"
