"""`gradscope trace`: which op broke, why, and the fix."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli.app import app
from gradscope.cli.output import check_report_place, parse_input, write_report
from gradscope.facts import Severity


@app.command(epilog="The program's own arguments follow after --, as in: trace train.py -- --lr 1")
def trace(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            help="FILE.py, FILE.py:FUNCTION, package.module:FUNCTION or a built-in example.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many backward passes [100].")
    ] = None,
    keep_going: Annotated[
        bool | None, typer.Option("--keep-going", help="Do not stop at the first error.")
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=EXPR", help="An input of a function; torch is in scope."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A model: net.py:Net, or 'net.py:Net(3)'.")
    ] = None,
    loss: Annotated[str | None, typer.Option(help="Its loss: net.py:loss, or F.mse_loss.")] = None,
    batch: Annotated[str | None, typer.Option(help="Its batch: net.py:batch, or a loader.")] = None,
    fail_on: Annotated[
        Severity | None, typer.Option(help="Exit with 1 for findings from here on [error].")
    ] = None,
    format: Annotated[str, typer.Option(help="terminal or json.")] = "terminal",
    output: Annotated[Path | None, typer.Option(help="Write the report to a file.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="A configuration other than the nearest gradscope.yaml.")
    ] = None,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not try the fixes.")] = False,
    no_custom_backward: Annotated[
        bool, typer.Option("--no-custom-backward", help="Do not check custom autograd.Functions.")
    ] = False,
    time_limit: Annotated[
        float | None, typer.Option(min=0.001, help="Stop the program after so many seconds.")
    ] = None,
) -> int:
    """Run a program, name the op that broke its gradients, say why, and try the fix."""
    from gradscope import pipeline
    from gradscope.check.accepted import accepted_by
    from gradscope.config import load_config
    from gradscope.target.choose import choose
    from gradscope.target.progress import progress_line

    check_report_place(format, output)
    choice = choose(
        load_config(config).overridden(
            steps=steps,
            keep_going=keep_going,
            time_limit=time_limit,
            fail_on=fail_on,
            verify=False if no_verify else None,
            custom_backward=False if no_custom_backward else None,
        ),
        target,
        context.obj or (),
        inputs=tuple(map(parse_input, input or ())),
        parts=(model, loss, batch),
    )
    with progress_line() as on_progress:
        report = pipeline.trace(
            choice.target,
            choice.config,
            said=choice.said,
            stdout_to_stderr=format != "terminal" and output is None,
            on_progress=on_progress,
        )
    report = accepted_by(report, choice.config)
    write_report(report, format, output)
    return pipeline.exit_code(report, choice.config.fail_on)
