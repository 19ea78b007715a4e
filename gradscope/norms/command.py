"""What the `norms` command writes, and where."""

from __future__ import annotations

import sys
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.norms import document, page, terminal
from gradscope.norms.facts import NormReport
from gradscope.norms.rows import SORTS
from gradscope.outputs import check_writable, write_or_print, write_whole
from gradscope.report import Options
from gradscope.report.text import inert

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


def write(
    report: NormReport,
    format: str,
    output: Path | None,
    html: Path | None,
    *,
    depth: int | None,
    sort: str,
    table: str | None,
) -> None:
    options = Options(width=100) if output is not None else Options.fitting(sys.stdout)
    match format:
        case "json":
            text = document.as_json(report)
        case "csv":
            text = document.as_csv(report, table or next(iter(document.TABLES)))
        case _:
            text = inert(terminal.render(report, options, depth=depth, sort=sort))
    if output is not None:
        write_or_print(output, text, asked_by="--output")
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    if html is not None:
        write_whole(html, page.render(report), asked_by="--html")
