"""`gradscope report`: a saved trace, judged and printed again without a run."""

from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli import options
from gradscope.cli.app import subcommand
from gradscope.cli.output import check_report_place, tell


@subcommand(short_help="Judge a saved trace again, without running the program.")
@options.sharing(*options.OF_REPORT, *options.OF_RULES, *options.OF_VERDICT, "config")
def report(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="What trace --save wrote.", show_default=False),
    ],
) -> int:
    """Judge a trace that `gradscope trace --save FILE` wrote, and print its report.

    The program is not run. Where its source is as it was, patches are written, and not tried.
    """
    from gradscope import pipeline
    from gradscope.saved import load

    check_report_place(*options.report_place(context))
    configured = options.configured(context)
    saved = load(file)
    judged = pipeline.judge_again(saved, configured)
    return tell(context, judged, configured.fail_on, texts=pipeline.unread(saved))
