"""`gradscope trace`: which op broke, why, and the fix."""

from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli import options
from gradscope.cli.app import ranks_of, subcommand
from gradscope.cli.output import check_report_place, tell
from gradscope.errors import ExitCode, GradscopeError


@subcommand(
    short_help="Name the op that broke a program's gradients, why, and the fix.",
    epilog=options.ARGUMENTS_FOLLOW,
)
@options.sharing(
    *options.OF_REPORT,
    *("every_step", "keep_going"),
    *options.OF_PROGRAM,
    *options.OF_RULES,
    *options.OF_VERDICT,
    "no_verify",
    *options.OF_TRIALS,
    "no_custom_backward",
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
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", metavar="FILE", help="Save what was seen, for gradscope report FILE."
        ),
    ] = None,
    save_step: Annotated[
        Path | None,
        typer.Option(
            "--save-step",
            metavar="DIR",
            help="Save the failing step, for gradscope replay DIR: its tensors (2 GiB at most) and "
            "the lines of source that it ran. The program runs once more for it.",
        ),
    ] = None,
) -> int:
    """Run a program, name the op that broke its gradients, say why, and try the fix.

    Fixes are tried in further, silent runs: they end with the failing step, write to a folder of
    their own, and do not connect, start programs or delete files again unless --rerun is given.
    """
    from gradscope import pipeline
    from gradscope.facts import Trace
    from gradscope.report.status import Doing, stage_line
    from gradscope.saved import save as save_to
    from gradscope.writing import check_writable

    format, output = options.report_place(context)
    check_report_place(format, output)
    if save is not None:
        check_writable(save, asked_by="--save")
    if save_step is not None:
        from gradscope.repair.keep import check_folder

        check_folder(save_step, is_alone=ranks_of() is None)
    unsaved: list[GradscopeError] = []  # told after the report, which is there all the same

    def keep(seen: Trace) -> None:
        try:
            if save is not None:
                save_to(seen, save, asked_by="--save")
        except GradscopeError as error:
            unsaved.append(error)

    choice = options.chosen(context)
    ranks = ranks_of()
    with stage_line(context.obj.began) as stages:
        report = pipeline.trace(
            choice.target,
            choice.config,
            remarks=choice.remarks,
            stdout_to_stderr=format != "terminal" and output is None,
            keep=keep,
            keep_step_in=save_step,
            stages=stages,
            started=context.obj.began,
            ranks=ranks,
        )
        if ranks is not None and not ranks.leads:
            return ExitCode.OK
        stages.begin(Doing.WRITING)
        code = tell(context, report, choice.config.fail_on, stages)
    if unsaved:
        raise unsaved[0]
    return code
