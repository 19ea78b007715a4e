"""`gradscope report`: a saved trace, judged and printed again without a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli.app import app
from gradscope.cli.options import (
    ConfigFile,
    ExitZero,
    FailOn,
    Ignore,
    Output,
    Quiet,
    ReportFormat,
    Select,
    words,
)
from gradscope.cli.output import (
    check_report_place,
    code_or_zero,
    rendered,
    told_at_least,
    write,
)


@app.command(short_help="Judge a saved trace again, without running the program.")
def report(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="What trace --save wrote.", show_default=False),
    ],
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOn = None,
    exit_zero: ExitZero = False,
    quiet: Quiet = False,
    format: ReportFormat = "terminal",
    output: Output = None,
    config: ConfigFile = None,
) -> int:
    """Judge a trace that `gradscope trace --save FILE` wrote, and print its report.

    The program is not run. Where its source is as it was, patches are written, and not tried.
    """
    from gradscope import pipeline
    from gradscope.config import load_config
    from gradscope.saved import load

    check_report_place(format, output)
    configured = load_config(config).overridden(
        fail_on=fail_on, select=words(select), ignore=words(ignore)
    )
    saved = load(file)
    judged = pipeline.judge_again(saved, configured)
    with told_at_least(judged):
        text = rendered(judged, format, output, quiet=quiet, texts=pipeline.unread(saved))
        write(text, output)
    return code_or_zero(pipeline.exit_code(judged, configured.fail_on), exit_zero)
