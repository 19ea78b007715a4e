"""`gradscope check`: the preflight that CI runs."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli import options
from gradscope.cli.app import ranks_of, subcommand
from gradscope.cli.output import check_report_place, write_reports
from gradscope.errors import ExitCode, GradscopeError


@subcommand(short_help="Preflight: fail where a configured target is unhealthy.")
@options.sharing(
    *options.OF_REPORT,
    *("steps", "input", "config", "time_limit"),
    *("stress", "dtype", "jobs", "memory_limit", "baseline"),
    *options.OF_RULES,
    *options.OF_VERDICT,
    "no_verify",
    *options.OF_TRIALS,
)
def check(
    context: typer.Context,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of configured targets, or targets as for trace. All that are configured "
            "without one.",
            metavar="TARGET",
            show_default=False,
        ),
    ] = None,
    init: Annotated[
        bool, typer.Option("--init", help="Write a gradscope.yaml for the programs found here.")
    ] = False,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print each setting and where it came from.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of gradscope.yaml, for editors.")
    ] = False,
    report: Annotated[
        list[str] | None,
        typer.Option(metavar="FORMAT=FILE", help="Write the report in one more format."),
    ] = None,
    write_baseline: Annotated[
        bool, typer.Option("--write-baseline", help="Accept what is found now.")
    ] = False,
) -> int:
    """Preflight: run every configured target and fail where a gradient is unhealthy."""
    from gradscope.check import settings
    from gradscope.check.whole import run
    from gradscope.config.json_schema import schema as schema_of_config

    if init:
        from gradscope.check.proposal import write_proposal

        sys.stdout.write("".join(f"{line}\n" for line in write_proposal(Path.cwd())))
        return ExitCode.OK
    if schema:
        sys.stdout.write(json.dumps(schema_of_config(), indent=2) + "\n")
        return ExitCode.OK
    places = _report_places(*options.report_place(context), report or ())
    for one in places:
        check_report_place(*one)
    asked, inputs, configured = targets or (), options.inputs(context), options.configured(context)
    if show_config:
        typed = {*options.settings(context), *(["inputs"] if inputs else [])}
        sys.stdout.write(settings.shown(configured, asked, inputs=inputs, typed=typed))
        return ExitCode.OK
    summary, code = run(configured, asked, inputs=inputs, write_baseline=write_baseline)
    ranks = ranks_of()
    if ranks is None or ranks.rank == 0:
        write_reports(summary, places, quiet=context.params["quiet"])
    return options.code_or_zero(context, code)


def _report_places(
    format: str, output: Path | None, more: Iterable[str]
) -> tuple[tuple[str, Path | None, str], ...]:
    """Each report that is wanted: a format, a file (None: stdout), the option that named it."""
    places: list[tuple[str, Path | None, str]] = [(format, output, "--output")]
    for text in more:
        name, equals, file = text.partition("=")
        if not (equals and file):
            raise GradscopeError(
                f"--report {text} is not FORMAT=FILE", help="for example --report sarif=out.sarif"
            )
        places.append((name, Path(file), "--report"))
    return tuple(places)
