"""The command line: one function each. What takes long to import is imported where it is used."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradscope import __version__
from gradscope.errors import ExitCode, GradscopeError
from gradscope.facts import Severity

if TYPE_CHECKING:
    from gradscope.config import Input
    from gradscope.facts import Report, Summary

# click's own, or the copy that newer versions of typer bring along
ClickException: Any = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,  # importing rich takes longer than printing the help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. What follows `--` belongs to the traced program."""
    given = list(sys.argv[1:] if words is None else words)
    split = given.index("--") if "--" in given else len(given)
    try:
        code = app(
            given[:split],
            obj=tuple(given[split + 1 :]),
            prog_name="gradscope",
            standalone_mode=False,
        )
        return int(code or 0)
    except GradscopeError as error:
        _complain(str(error), error.help, error.detail)
    except ClickException as error:
        _complain(error.format_message(), "gradscope --help shows the commands and their options")
    except (KeyboardInterrupt, typer.Abort):
        _complain("interrupted")
    except BrokenPipeError:
        _stdout_is_gone()
        return ExitCode.OK
    except Exception as error:
        _report_fault(error)
        return ExitCode.INTERNAL
    return ExitCode.UNUSABLE


@app.callback(invoke_without_command=True)
def gradscope(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Names the op that broke a gradient, says why, and hands over a fix that was tried."""
    if version:
        typer.echo(f"gradscope {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


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
    from gradscope.config import load_config
    from gradscope.target.progress import progress_line

    _check_report_place(format, output)
    given: dict[str, Any] = {
        "steps": steps,
        "keep_going": keep_going,
        "time_limit": time_limit,
        "fail_on": fail_on,
        "verify": False if no_verify else None,
        "custom_backward": False if no_custom_backward else None,
    }
    settings = load_config(config)
    settings = replace(settings, **{k: v for k, v in given.items() if v is not None})
    chosen, said = pipeline.choose_target(
        settings,
        target,
        context.obj or (),
        inputs=tuple(map(_input, input or ())),
        parts=(model, loss, batch),
    )
    with progress_line() as on_progress:
        report = pipeline.trace(
            chosen,
            settings,
            said=said,
            stdout_to_stderr=format != "terminal" and output is None,
            on_progress=on_progress,
        )
    _write(report, format, output)
    return pipeline.exit_code(report, settings.fail_on)


@app.command()
def fix(
    context: typer.Context,
    target: Annotated[
        str | None, typer.Argument(help="What trace takes.", show_default=False)
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write the repaired files.")] = False,
    unsafe: Annotated[
        bool,
        typer.Option("--unsafe", help="Also write fixes that change values, or were not verified."),
    ] = False,
    steps: Annotated[int | None, typer.Option(min=1, help="As in trace.")] = None,
    input: Annotated[list[str] | None, typer.Option(metavar="NAME=EXPR")] = None,
    config: Annotated[Path | None, typer.Option(help="As in trace.")] = None,
    time_limit: Annotated[float | None, typer.Option(min=0.001, help="As in trace.")] = None,
) -> int:
    """Print the patch that makes a program healthy, for `git apply`; or write it.

    Without --write the patch holds every verified fix. With it, those that keep all values, and
    with --unsafe the others too. The exit code is about the repaired program.
    """
    from gradscope import pipeline
    from gradscope.config import load_config
    from gradscope.repair import apply
    from gradscope.target import RunOptions

    settings = load_config(config)
    given: dict[str, Any] = {"steps": steps, "time_limit": time_limit}
    settings = replace(settings, **{k: v for k, v in given.items() if v is not None})
    chosen, said = pipeline.choose_target(
        settings, target, context.obj or (), inputs=tuple(map(_input, input or ()))
    )
    for line in said:
        _say(line)
    done = apply.fix_target(
        chosen,
        RunOptions(settings.steps, settings.keep_going, settings.time_limit),
        may_apply=apply.policy(write=write, unsafe=unsafe),
        wanted=pipeline.rule_filter(settings),
        tell=_say,
    )
    assert done.trace is not None
    pipeline.require_backward(chosen, done.trace)
    if write:
        for name in apply.write(done):
            _say(f"wrote {name}")
    else:
        sys.stdout.write(done.patch)
    for line in apply.summary(done):
        _say(line)
    return ExitCode.FINDINGS if done.left else ExitCode.OK


def _say(line: str) -> None:
    print(line, file=sys.stderr)


@app.command(epilog="The program's own arguments follow after --, as in: norms train.py -- --lr 1")
def norms(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            help="As for trace; the built-in example clip_norm without one.", show_default=False
        ),
    ] = None,
    max_norm: Annotated[
        float | None, typer.Option(help="Show what clipping to this total norm would do.")
    ] = None,
    norm_type: Annotated[float, typer.Option(help="1, 2, inf or any p above 0.")] = 2.0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many backward passes [100].")
    ] = None,
    depth: Annotated[
        int | None, typer.Option(min=0, help="Join parameters below so many dots in their names.")
    ] = None,
    sort: Annotated[str, typer.Option(help="module or norm.")] = "module",
    format: Annotated[str, typer.Option(help="terminal, json or csv.")] = "terminal",
    output: Annotated[Path | None, typer.Option(help="Write the report to a file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with pictures.")] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=EXPR", help="An input of a function; torch is in scope."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="A model, as for trace.")] = None,
    loss: Annotated[str | None, typer.Option(help="Its loss.")] = None,
    batch: Annotated[str | None, typer.Option(help="Its batch.")] = None,
    fail_on: Annotated[
        Severity | None, typer.Option(help="Exit with 1 for findings from here on [error].")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A configuration other than the nearest gradscope.yaml.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=0.001, help="Stop the program after so many seconds.")
    ] = None,
) -> int:
    """Measure each gradient, what clipping would do to it, and where gradients grow or die."""
    from gradscope import pipeline
    from gradscope.config import load_config
    from gradscope.norms import NormOptions, command
    from gradscope.norms import norms as measure
    from gradscope.target import RunOptions
    from gradscope.target.progress import progress_line

    options = NormOptions(max_norm, norm_type)
    command.check(format, sort, (output, html))
    settings = load_config(config)
    given: dict[str, Any] = {"steps": steps, "time_limit": time_limit, "fail_on": fail_on}
    settings = replace(settings, **{k: v for k, v in given.items() if v is not None})
    chosen, said = pipeline.choose_target(
        settings,
        target,
        context.obj or (),
        inputs=tuple(map(_input, input or ())),
        parts=(model, loss, batch),
        example=command.EXAMPLE,
    )
    aside = format != "terminal" and output is None
    run_options = RunOptions(settings.steps, False, settings.time_limit, stdout_to_stderr=aside)
    with progress_line() as on_progress:
        report = measure(chosen, options, run_options, said=said, on_progress=on_progress)
    command.write(report, format, output, html, depth=depth, sort=sort)
    return pipeline.exit_code(report.as_findings(), settings.fail_on)


@app.command()
def check(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of configured targets, or targets as for trace. All that are configured "
            "without one.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A configuration other than the nearest gradscope.yaml.")
    ] = None,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print each setting and where it came from.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Targets at a time [one a core].")
    ] = None,
    stress: Annotated[
        bool | None,
        typer.Option("--stress", help="Also look for inputs that break a function's gradient."),
    ] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="float32, bfloat16, float16, autocast ...")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many backward passes [100].")
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=EXPR", help="An input of a function; torch is in scope."),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(help="Only these rules: a code, a name or GS1.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Not these rules.")] = None,
    fail_on: Annotated[
        Severity | None, typer.Option(help="Exit with 1 for findings from here on [error].")
    ] = None,
    format: Annotated[
        str, typer.Option(help="terminal, json, sarif, junit, github, markdown or html.")
    ] = "terminal",
    output: Annotated[Path | None, typer.Option(help="Write the report to a file.")] = None,
    report: Annotated[
        list[str] | None,
        typer.Option(metavar="FORMAT=FILE", help="Write the report in one more format."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="A file of findings that are accepted.")
    ] = None,
    write_baseline: Annotated[
        bool, typer.Option("--write-baseline", help="Accept what is found now.")
    ] = False,
    time_limit: Annotated[
        float | None, typer.Option(min=0.001, help="Seconds that each target may take [300].")
    ] = None,
    memory_limit: Annotated[
        str | None, typer.Option(help="Memory that each target may take, such as 2GiB (Linux).")
    ] = None,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not try the fixes.")] = False,
) -> int:
    """Preflight: run every configured target and fail where a gradient is unhealthy."""
    from gradscope.check import command
    from gradscope.config import load_config

    places = command.report_places(format, output, report or ())
    for one in places:
        _check_report_place(*one)
    asked = command.Asked(
        targets=tuple(targets or ()),
        inputs=tuple(map(_input, input or ())),
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
        ),
    )
    settings = load_config(config)
    if show_config:
        sys.stdout.write(command.shown(settings, asked))
        return ExitCode.OK
    summary, code = command.run(settings, asked, write_baseline=write_baseline)
    for one in places:
        _write(summary, *one)
    return code


@app.command()
def explain(
    rule: Annotated[
        str | None, typer.Argument(help="A code or a name; all are listed without one.")
    ] = None,
) -> None:
    """What a cause is, why it hurts, an example and its repair."""
    from gradscope.rules import RULES, by_name, pages

    if rule is None:
        for one in RULES.values():
            typer.echo(f"{one.code}  {one.name:<26} {pages.summary(one)}")
        return
    one = by_name(rule)
    typer.echo(f"# {one.code} {one.name} ({one.severity})\n")
    for heading, body in pages.sections(one).items():
        typer.echo(f"## {heading}\n{body}\n")


@app.command()
def examples() -> None:
    """The built-in programs; trace NAME runs one."""
    from gradscope.examples import EXAMPLES

    for example in EXAMPLES.values():
        expects = example.expects or "healthy"
        typer.echo(f"{example.name:<26} {expects:<22} {example.title}")


def _input(text: str) -> Input:
    from gradscope.config import Input

    name, equals, expression = text.partition("=")
    if not (equals and name.strip().isidentifier() and expression.strip()):
        raise GradscopeError(
            f"--input {text} is not NAME=EXPR", help="for example --input 'x=torch.zeros(3)'"
        )
    return Input(name.strip(), expression.strip())


def _check_report_place(format: str, output: Path | None) -> None:
    """Before the program runs: its hours should not be lost to a misspelt path."""
    from gradscope.report import FORMATS

    if format not in FORMATS:
        raise GradscopeError(f"no format is called {format}", help=f"one of: {', '.join(FORMATS)}")
    if output is not None and (output.is_dir() or not output.absolute().parent.is_dir()):
        reason = "is a directory" if output.is_dir() else "lies in a folder that does not exist"
        raise GradscopeError(f"--output {output} {reason}", help="name a file to write")


def _write(report: Report | Summary, format: str, output: Path | None) -> None:
    from gradscope.facts import Report
    from gradscope.report import FORMATS, Options

    def rendered(options: Options) -> str:
        if isinstance(report, Report):
            return FORMATS[format].render(report, options)
        return FORMATS[format].render_all(report, options)

    if output is not None:
        try:
            output.write_text(rendered(Options(width=100)), encoding="utf-8")
        except OSError as error:
            raise GradscopeError(f"--output {output}: {error.strerror}") from error
        return
    try:
        sys.stdout.write(rendered(Options.fitting(sys.stdout)))
        sys.stdout.flush()
    except BrokenPipeError:
        _stdout_is_gone()


def _stdout_is_gone() -> None:
    """The reader (head, less) has closed the pipe; Python must not complain when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _complain(message: str, help: str = "", detail: str = "") -> None:
    lines = [f"gradscope: error: {message}"]
    if detail:
        lines.append(detail.rstrip())
    if help:
        lines.append(f"help: {help}")
    print(*lines, sep="\n", file=sys.stderr)


def _report_fault(error: Exception) -> None:
    import traceback

    traceback.print_exception(error)
    print(
        f"gradscope: internal error: {type(error).__name__}: this is a fault of gradscope "
        f"{__version__}, not of your program\n"
        "help: report it with the lines above to the project's issue tracker",
        file=sys.stderr,
    )
