"""`gradscope norms`: how large each gradient is, and what clipping does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli.app import STARTED, app
from gradscope.cli.options import (
    Batch,
    ConfigFile,
    ExitZero,
    FailOn,
    Inputs,
    Loss,
    Model,
    NoCustomBackward,
    Output,
    Steps,
    TimeLimit,
)
from gradscope.cli.output import code_or_zero, parse_input


@app.command(
    short_help="Measure each gradient, and what clipping would do to it.",
    epilog="The program's own arguments follow after --, as in: norms train.py -- --lr 1",
)
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
    steps: Steps = None,
    depth: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Join parameters below so many dots in their names."),
    ] = None,
    sort: Annotated[str, typer.Option(metavar="ORDER", help="module or norm.")] = "module",
    format: Annotated[
        str, typer.Option(metavar="FORMAT", help="terminal, json or csv.")
    ] = "terminal",
    table: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="Of a csv: parameters, steps, norms-by-step, bounds, layers, growth or findings"
            " [parameters].",
        ),
    ] = None,
    output: Output = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page with pictures (the extra `charts`)."),
    ] = None,
    input: Inputs = None,
    model: Model = None,
    loss: Loss = None,
    batch: Batch = None,
    fail_on: FailOn = None,
    exit_zero: ExitZero = False,
    config: ConfigFile = None,
    time_limit: TimeLimit = None,
    no_custom_backward: NoCustomBackward = False,
) -> int:
    """Measure each gradient, what clipping would do to it, and where gradients grow or die."""
    from gradscope import pipeline
    from gradscope.config import load_config
    from gradscope.norms import NormOptions, command
    from gradscope.norms import norms as measure
    from gradscope.programs.choose import choose
    from gradscope.report.status import stage_line

    options = NormOptions(max_norm, norm_type)
    command.check(format, sort, table, output=output, html=html)
    choice = choose(
        load_config(config).overridden(
            steps=steps,
            time_limit=time_limit,
            fail_on=fail_on,
            custom_backward=False if no_custom_backward else None,
        ),
        target,
        context.obj or (),
        inputs=tuple(map(parse_input, input or ())),
        parts=(model, loss, batch),
        example=command.EXAMPLE,
    )
    aside = format != "terminal" and output is None
    with stage_line(context.meta[STARTED]) as stages:
        report = measure(
            choice.target,
            options,
            choice.config,
            said=choice.said,
            stdout_to_stderr=aside,
            stages=stages,
        )
    command.write(report, format, output, html, depth=depth, sort=sort, table=table)
    return code_or_zero(pipeline.exit_code(report.judged, choice.config.fail_on), exit_zero)
