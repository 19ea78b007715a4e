"""`gradscope check`: the preflight that CI runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli.app import app
from gradscope.cli.options import (
    ConfigFile,
    ExitZero,
    FailOn,
    Ignore,
    Inputs,
    NoVerify,
    Output,
    Quiet,
    ReportFormat,
    Rerun,
    Select,
    Steps,
    VerifyRuns,
    VerifyTime,
)
from gradscope.cli.output import check_report_place, code_or_zero, parse_input, write_reports
from gradscope.errors import ExitCode


@app.command(short_help="Preflight: fail where a configured target is unhealthy.")
def check(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of configured targets, or targets as for trace. All that are configured "
            "without one.",
            metavar="TARGET",
            show_default=False,
        ),
    ] = None,
    config: ConfigFile = None,
    init: Annotated[
        bool, typer.Option("--init", help="Write a gradscope.yaml for the programs found here.")
    ] = False,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print each setting and where it came from.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, metavar="N", help="Targets at a time [one a core]."),
    ] = None,
    stress: Annotated[
        bool | None,
        typer.Option("--stress", help="Also look for inputs that break a function's gradient."),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(metavar="DTYPE", help="float32, bfloat16, float16, autocast ..."),
    ] = None,
    steps: Steps = None,
    input: Inputs = None,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOn = None,
    exit_zero: ExitZero = False,
    quiet: Quiet = False,
    format: ReportFormat = "terminal",
    output: Output = None,
    report: Annotated[
        list[str] | None,
        typer.Option(metavar="FORMAT=FILE", help="Write the report in one more format."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="FILE", help="A file of findings that are accepted.")
    ] = None,
    write_baseline: Annotated[
        bool, typer.Option("--write-baseline", help="Accept what is found now.")
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="SECONDS", help="How long each target may take [300]."),
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Memory that each target may take, such as 2GiB (Linux)."
        ),
    ] = None,
    no_verify: NoVerify = False,
    verify_time: VerifyTime = None,
    verify_runs: VerifyRuns = None,
    rerun: Rerun = False,
) -> int:
    """Preflight: run every configured target and fail where a gradient is unhealthy."""
    from gradscope.check import command, settings
    from gradscope.config import load_config

    if init:
        from gradscope.check.proposal import write_proposal

        sys.stdout.write("".join(f"{line}\n" for line in write_proposal(Path.cwd())))
        return ExitCode.OK
    places = command.report_places(format, output, report or ())
    for one in places:
        check_report_place(*one)
    asked = command.Asked(
        targets=tuple(targets or ()),
        inputs=tuple(map(parse_input, input or ())),
        given=command.given(
            jobs=jobs,
            stress=stress,
            dtypes=dtype,
            steps=steps,
            select=select,
            ignore=ignore,
            fail_on=fail_on,
            baseline=baseline,
            time_limit=time_limit,
            memory_limit=memory_limit,
            verify=False if no_verify else None,
            verify_time=verify_time,
            verify_runs=verify_runs,
            rerun=rerun or None,
        ),
    )
    configured = load_config(config)
    if show_config:
        sys.stdout.write(settings.shown(configured, asked))
        return ExitCode.OK
    summary, code = command.run(configured, asked, write_baseline=write_baseline)
    write_reports(summary, places, quiet=quiet)
    return code_or_zero(code, exit_zero)
