"""`gradscope replay`: a saved step, run and looked at again without its program."""

from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli import options
from gradscope.cli.app import subcommand
from gradscope.cli.output import check_report_place, tell


@subcommand(short_help="Look at a saved step again, without its program.")
@options.sharing(*options.OF_REPORT, *options.OF_RULES, *options.OF_VERDICT, "config", "time_limit")
def replay(
    context: typer.Context,
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="What trace --save-step wrote.", show_default=False),
    ],
) -> int:
    """Run the step that `gradscope trace --save-step DIR` kept, and look at each op of it.

    The step holds the calls of torch's functions, their tensors and copies of the program's files
    that they stand in. Nothing else is run: no code of the program. Patches are written, and not
    tried.
    """
    from gradscope import pipeline
    from gradscope.report.status import Doing, stage_line

    check_report_place(*options.report_place(context))
    configured = options.configured(context)
    with stage_line(context.obj.began) as stages:
        report = pipeline.replay(folder, configured, stages, context.obj.began)
        stages.begin(Doing.WRITING)
        return tell(context, report, configured.fail_on, stages)
