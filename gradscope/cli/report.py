"""`gradscope report`: a saved trace, judged and printed again without a run."""

from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli import options
from gradscope.cli.app import subcommand
from gradscope.cli.output import check_report_place, tell


@subcommand(short_help="Judge a saved trace again, without running the program.")
@options.sharing(*options.OF_RULES, *options.OF_VERDICT, "config")
def report(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="What trace --save wrote.", show_default=False),
    ],
    quiet: options.Quiet = False,
    format: options.ReportFormat = "terminal",
    output: options.Output = None,
) -> int:
    """Judge a trace that `gradscope trace --save FILE` wrote, and print its report.

    The program is not run. Where its source is as it was, patches are written, and not tried.
    """
    from gradscope import pipeline
    from gradscope.saved import load

    check_report_place(format, output)
    configured = options.configured(context)
    saved = load(file)
    judged = pipeline.judge_again(saved, configured)
    tell(judged, format, output, quiet=quiet, texts=pipeline.unread(saved))
    return options.code_or_zero(context, pipeline.exit_code(judged, configured.fail_on))
