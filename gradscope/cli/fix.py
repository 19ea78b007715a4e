"""`gradscope fix`: the patches, printed or applied."""

import sys
from typing import Annotated

import typer

from gradscope.cli import options
from gradscope.cli.app import ranks_of, subcommand
from gradscope.cli.output import say
from gradscope.errors import ExitCode, GradscopeError
from gradscope.facts import plural


@subcommand(
    short_help="Print the patch that makes a program healthy, or write it.",
    epilog=options.ARGUMENTS_FOLLOW,
)
@options.sharing(*options.OF_PROGRAM, *options.OF_RULES, *options.OF_TRIALS)
def fix(
    context: typer.Context,
    target: options.Target = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Print the patch, with --write too.")
    ] = False,
    write: Annotated[bool, typer.Option("--write", help="Write the repaired files.")] = False,
    unsafe: Annotated[
        bool,
        typer.Option("--unsafe", help="Also write fixes that change values, or were not verified."),
    ] = False,
) -> int:
    """Print the patch that makes a program healthy, for `git apply`; or write it.

    Without --write the patch holds every verified fix. With it, those that keep all values, and
    with --unsafe the others too. Errors are repaired; a warning has not hurt, and stays.
    The exit code is about the repaired program.
    """
    from gradscope import rounds
    from gradscope.pipeline import require_backward
    from gradscope.report.status import stage_line

    choice = options.chosen(context)
    for line in choice.remarks:
        say(line)
    with stage_line(context.obj.began) as stages:

        def tell(line: str) -> None:
            stages.clear()
            say(line)

        done = rounds.fix_target(
            choice.target,
            choice.config,
            may_apply=rounds.policy(write=write, unsafe=unsafe),
            stages=stages,
            tell=tell,
            ranks=(ranks := ranks_of()),
        )
    if ranks is not None and not ranks.leads:
        return ExitCode.OK
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
    if diff or not write:
        sys.stdout.write(done.patch)
    for line in rounds.summary(done):
        say(line)
    return ExitCode.FINDINGS if done.left else ExitCode.OK
