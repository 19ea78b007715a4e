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
FORMATS = ("terminal", "json", "csv")


def check(
    format: str, sort: str, table: str | None, *, output: Path | None, html: Path | None
) -> None:
    """Before the program runs: its hours should not be lost to a misspelt word."""
    if format not in FORMATS:
        raise GradscopeError(f"no format is called {format}", help=f"one of: {', '.join(FORMATS)}")
    if table is not None and table not in document.TABLES:
        raise GradscopeError(
            f"no table is called {table}", help=f"one of: {', '.join(document.TABLES)}"
        )
    if table is not None and format != "csv":
        raise GradscopeError(
            "--table chooses what a CSV holds", help=f"--format csv --table {table}"
        )
    if sort not in SORTS:
        raise GradscopeError(f"--sort {sort} is no order", help=f"one of: {', '.join(SORTS)}")
    for option, file in (("--output", output), ("--html", html)):
        if file is not None:
            check_writable(file, asked_by=option)


@dataclass(frozen=True, slots=True)
class View:
    """What the command line wants to see of the norms; `table` is of a CSV."""

    format: str = "terminal"
    table: str | None = None
    depth: int | None = None
    sort: str = "module"
    quiet: bool = False


def rendered(report: NormReport, view: View, options: Options) -> str:
    match view.format:
        case "json":
            return document.as_json(report)
        case "csv":
            return document.as_csv(report, view.table or next(iter(document.TABLES)))
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
