"""`gradscope norms`: how large each gradient is, and what clipping does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradscope.cli import options
from gradscope.cli.app import ranks_of, subcommand
from gradscope.cli.output import fitting, write
from gradscope.errors import ExitCode, GradscopeError

if TYPE_CHECKING:
    from gradscope.facts import Report

FORMATS = ("terminal", "json")


@subcommand(
    short_help="Measure each gradient, and what clipping would do to it.",
    epilog=options.ARGUMENTS_FOLLOW,
)
@options.sharing("quiet", "output", *options.OF_PROGRAM, *options.OF_VERDICT, "no_custom_backward")
def norms(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="As for trace; the built-in example clip_norm without one.",
            show_default=False,
        ),
    ] = None,
    max_norm: Annotated[
        float | None,
        typer.Option(metavar="NORM", help="Show what clipping to this total norm would do."),
    ] = None,
    norm_type: Annotated[
        float, typer.Option(metavar="P", help="1, 2, inf or any p above 0.")
    ] = 2.0,
    depth: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Join parameters below so many dots in their names."),
    ] = None,
    sort: Annotated[str, typer.Option(metavar="ORDER", help="module or norm.")] = "module",
    format: Annotated[str, typer.Option(metavar="FORMAT", help="terminal or json.")] = "terminal",
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page with pictures (the extra `charts`)."),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the norms of each step for TensorBoard."),
    ] = None,
) -> int:
    """Measure each gradient, what clipping would do to it, and where gradients grow or die."""
    from gradscope import pipeline
    from gradscope.norms import NormOptions, document, page, printed
    from gradscope.norms import norms as measure
    from gradscope.report.printable import inert
    from gradscope.report.status import stage_line

    asked, output = NormOptions(max_norm, norm_type), context.params["output"]
    _check(format, sort, output=output, html=html)
    choice = options.chosen(context, example="clip_norm")
    with stage_line(context.obj.began) as stages:
        found = measure(
            choice.target,
            asked,
            choice.config,
            remarks=choice.remarks,
            stdout_to_stderr=format != "terminal" and output is None,
            stages=stages,
            ranks=ranks_of(),
        )
    if found is None:
        return ExitCode.OK
    if format == "json":
        written = document.as_json(found)
    elif context.params["quiet"]:
        written = _verdict(found.judged)
    else:
        written = inert(printed.render(found, fitting(output), depth=depth, sort=sort))
    write(written, output)
    if html is not None:
        write(page.render(found), html, "--html")
    if tensorboard is not None:
        from gradscope.norms.loggers import write_tensorboard

        write_tensorboard(found, tensorboard)
    code = pipeline.exit_code(found.judged, choice.config.fail_on)
    return options.code_or_zero(context, code)


def _check(format: str, sort: str, *, output: Path | None, html: Path | None) -> None:
    """Before the program runs: its hours should not be lost to a misspelt word."""
    from gradscope.norms.rows import SORTS
    from gradscope.writing import check_writable

    if format not in FORMATS:
        raise GradscopeError(f"unknown format {format}", help=f"one of: {', '.join(FORMATS)}")
    if sort not in SORTS:
        raise GradscopeError(f"unknown order --sort {sort}", help=f"one of: {', '.join(SORTS)}")
    for option, file in (("--output", output), ("--html", html)):
        if file is not None:
            check_writable(file, asked_by=option)


def _verdict(judged: Report) -> str:
    """One line, and nothing where all is healthy. No fix was tried, so none is counted."""
    from gradscope.report.closing import state
    from gradscope.report.printable import sentence

    found = ", ".join(f"{one.rule} {one.name}" for one in judged.findings)
    if not found and judged.verdict == "healthy":
        return ""
    words = f"{judged.target}: {state(judged)}" + (f" ({found})" if found else "")
    return f"{sentence(words)}\n"
