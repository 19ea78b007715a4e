"""`gradscope trace`: which op broke, why, and the fix."""

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
    Ignore,
    Inputs,
    Loss,
    Model,
    NoCustomBackward,
    NoVerify,
    Output,
    Quiet,
    ReportFormat,
    Rerun,
    Select,
    Steps,
    TimeLimit,
    VerifyRuns,
    VerifyTime,
    words,
)
from gradscope.cli.output import (
    check_report_place,
    code_or_zero,
    parse_input,
    rendered,
    told_at_least,
    write,
)


@app.command(
    short_help="Name the op that broke a program's gradients, why, and the fix.",
    epilog="The program's own arguments follow after --, as in: trace train.py -- --lr 1",
)
def trace(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            help="FILE.py or package.module to run, either with :FUNCTION to call one that returns "
            "the loss, or a built-in example.",
            metavar="TARGET",
            show_default=False,
        ),
    ] = None,
    steps: Steps = None,
    keep_going: Annotated[
        bool | None, typer.Option("--keep-going", help="Do not stop at the first error.")
    ] = None,
    input: Inputs = None,
    model: Model = None,
    loss: Loss = None,
    batch: Batch = None,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOn = None,
    exit_zero: ExitZero = False,
    quiet: Quiet = False,
    format: ReportFormat = "terminal",
    output: Output = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", metavar="FILE", help="Save what was seen, for gradscope report FILE."
        ),
    ] = None,
    config: ConfigFile = None,
    no_verify: NoVerify = False,
    verify_time: VerifyTime = None,
    verify_runs: VerifyRuns = None,
    rerun: Rerun = False,
    no_custom_backward: NoCustomBackward = False,
    time_limit: TimeLimit = None,
) -> int:
    """Run a program, name the op that broke its gradients, say why, and try the fix.

    Fixes are tried in further, silent runs: they end with the failing step, write to a folder of
    their own, and do not connect, start programs or delete files again unless --rerun is given.
    """
    from gradscope import pipeline
    from gradscope.config import load_config
    from gradscope.outputs import check_writable
    from gradscope.programs.choose import choose
    from gradscope.report.status import Doing, stage_line

    check_report_place(format, output)
    if save is not None:
        check_writable(save, asked_by="--save")
    choice = choose(
        load_config(config).overridden(
            steps=steps,
            keep_going=keep_going,
            time_limit=time_limit,
            fail_on=fail_on,
            select=words(select),
            ignore=words(ignore),
            verify=False if no_verify else None,
            verify_time=verify_time,
            verify_runs=verify_runs,
            rerun=rerun or None,
            custom_backward=False if no_custom_backward else None,
        ),
        target,
        context.obj or (),
        inputs=tuple(map(parse_input, input or ())),
        parts=(model, loss, batch),
    )
    with stage_line(context.meta[STARTED]) as stages:
        report = pipeline.trace(
            choice.target,
            choice.config,
            said=choice.said,
            stdout_to_stderr=format != "terminal" and output is None,
            keep=save,
            stages=stages,
            started=context.meta[STARTED],
        )
        stages.begin(Doing.WRITING)
        with told_at_least(report):
            text = rendered(report, format, output, quiet=quiet)
            stages.clear()
            write(text, output)
    return code_or_zero(pipeline.exit_code(report, choice.config.fail_on), exit_zero)
