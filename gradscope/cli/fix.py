"""`gradscope fix`: the patches, printed or applied."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gradscope.cli.app import STARTED, app
from gradscope.cli.options import (
    Batch,
    ConfigFile,
    Ignore,
    Inputs,
    Loss,
    Model,
    Rerun,
    Select,
    Steps,
    TimeLimit,
    VerifyRuns,
    VerifyTime,
    words,
)
from gradscope.cli.output import parse_input, say
from gradscope.errors import ExitCode, GradscopeError
from gradscope.facts import plural


@app.command(
    short_help="Print the patch that makes a program healthy, or write it.",
    epilog="The program's own arguments follow after --, as in: fix train.py -- --lr 1",
)
def fix(
    context: typer.Context,
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="As for trace.", show_default=False)
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write the repaired files.")] = False,
    unsafe: Annotated[
        bool,
        typer.Option("--unsafe", help="Also write fixes that change values, or were not verified."),
    ] = False,
    steps: Steps = None,
    input: Inputs = None,
    model: Model = None,
    loss: Loss = None,
    batch: Batch = None,
    select: Select = None,
    ignore: Ignore = None,
    config: ConfigFile = None,
    time_limit: TimeLimit = None,
    verify_time: VerifyTime = None,
    verify_runs: VerifyRuns = None,
    rerun: Rerun = False,
) -> int:
    """Print the patch that makes a program healthy, for `git apply`; or write it.

    Without --write the patch holds every verified fix. With it, those that keep all values, and
    with --unsafe the others too. Errors are repaired; a warning has not hurt, and stays.
    The exit code is about the repaired program.
    """
    from gradscope import rounds
    from gradscope.config import load_config
    from gradscope.pipeline import require_backward
    from gradscope.programs.choose import choose
    from gradscope.report.status import stage_line

    choice = choose(
        load_config(config).overridden(
            steps=steps,
            time_limit=time_limit,
            verify_time=verify_time,
            verify_runs=verify_runs,
            rerun=rerun or None,
            select=words(select),
            ignore=words(ignore),
        ),
        target,
        context.obj or (),
        inputs=tuple(map(parse_input, input or ())),
        parts=(model, loss, batch),
    )
    for line in choice.said:
        say(line)
    with stage_line(context.meta[STARTED]) as stages:

        def tell(line: str) -> None:
            stages.clear()
            say(line)

        done = rounds.fix_target(
            choice.target,
            choice.config,
            may_apply=rounds.policy(write=write, unsafe=unsafe),
            stages=stages,
            tell=tell,
        )
    if done.interrupted:
        sys.stdout.write(done.patch)
        sys.stdout.flush()
        count = plural(len(done.applied), "fix", "fixes")
        say(f"the patch holds the {count} found so far, and no file was written")
        raise KeyboardInterrupt
    assert done.trace is not None
    require_backward(choice.target, done.trace)
    if write:
        try:
            written = rounds.write(done)
        except GradscopeError:
            sys.stdout.write(done.patch)  # what took hours to find is not lost
            sys.stdout.flush()
            raise
        for name in written:
            say(f"wrote {name}")
    else:
        sys.stdout.write(done.patch)
    for line in rounds.summary(done):
        say(line)
    return ExitCode.FINDINGS if done.left else ExitCode.OK
