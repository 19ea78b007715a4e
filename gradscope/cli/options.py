"""The options that several commands have, each with its one text, and what was said with them.

None: not said. A parameter called as a field of `Config` sets that field: commands do not name it
again, but ask for `settings`, `configured` or `chosen`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradscope.errors import ExitCode, GradscopeError
from gradscope.facts import Severity

if TYPE_CHECKING:
    from gradscope.config import Config, Input
    from gradscope.programs.choose import Choice

ARGUMENTS_FOLLOW = "The program's own arguments follow after --, as in: train.py -- --lr 1"

Target = Annotated[
    str | None, typer.Argument(metavar="TARGET", help="As for trace.", show_default=False)
]

Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        min=1,
        metavar="N",
        help="Stop after N updates (without an optimizer, backward passes).",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=EXPR", help="An input of a function; torch is in scope."),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="A model: net.py:Net, or 'net.py:Net(3)'."),
]
Loss = Annotated[
    str | None,
    typer.Option("--loss", metavar="LOSS", help="Its loss: net.py:loss, or F.mse_loss."),
]
Batch = Annotated[
    str | None,
    typer.Option("--batch", metavar="BATCH", help="Its batch: net.py:batch, or a loader."),
]
Select = Annotated[
    list[str] | None,
    typer.Option("--select", metavar="RULE", help="Only these rules: a code, a name or GS1."),
]
Ignore = Annotated[
    list[str] | None, typer.Option("--ignore", metavar="RULE", help="Not these rules.")
]
FailOn = Annotated[
    Severity | None,
    typer.Option("--fail-on", help="Exit with 1 for findings from here on [error]."),
]
ExitZero = Annotated[
    bool, typer.Option("--exit-zero", help="Exit with 0 also where there are findings.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Only the verdict, and nothing where all is healthy.")
]
ReportFormat = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="terminal, json, sarif, junit, github, markdown or html.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the report to a file."),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="A configuration other than the nearest gradscope.yaml."
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit", min=0.001, metavar="SECONDS", help="Stop the program after so many seconds."
    ),
]
NoVerify = Annotated[bool | None, typer.Option("--no-verify", help="Do not try the fixes.")]
VerifyTime = Annotated[
    float | None,
    typer.Option(
        "--verify-time",
        min=0.001,
        metavar="SECONDS",
        help="How long trying all fixes may take [60].",
    ),
]
VerifyRuns = Annotated[
    int | None,
    typer.Option(
        "--verify-runs", min=1, metavar="N", help="How often it runs again for that [10]."
    ),
]
Rerun = Annotated[
    bool | None,
    typer.Option("--rerun", help="Run again what connects, starts processes or deletes files."),
]
NoCustomBackward = Annotated[
    bool | None,
    typer.Option("--no-custom-backward", help="Do not check custom autograd.Functions."),
]


# Options that are not called as the field of a Config that they set; a "no_" negates it.
_FIELDS = {"dtype": "dtypes", "no_verify": "verify", "no_custom_backward": "custom_backward"}


def settings(context: typer.Context) -> dict[str, Any]:
    """The fields of a Config that the command line sets, read as the configuration's keys are.

    Raises GradscopeError with the option where a value is wrong.
    """
    from gradscope.config.scalars import WrongValue
    from gradscope.config.values import READERS
    from gradscope.programs.choose import PARTS

    found = {}
    for name, value in context.params.items():
        value = list(value) if isinstance(value, tuple) else value
        field = _FIELDS.get(name, name)
        reader = READERS.get(field.replace("_", "-"))
        if reader is None or field in PARTS or value in (None, []):
            continue
        try:
            found[field] = reader(not value if name.startswith("no_") else value)
        except WrongValue as error:
            words, _, help = f"--{name.replace('_', '-')} {error}".partition("\n")
            raise GradscopeError(words, help=help) from None
    return found


def inputs(context: typer.Context) -> tuple[Input, ...]:
    """Those of --input. Raises GradscopeError for what is not NAME=EXPR."""
    from gradscope.config import Input

    found = []
    for text in context.params["input"] or ():
        name, equals, expression = text.partition("=")
        if not (equals and name.strip().isidentifier() and expression.strip()):
            raise GradscopeError(
                f"--input {text} is not NAME=EXPR", help="for example --input 'x=torch.zeros(3)'"
            )
        found.append(Input(name.strip(), expression.strip()))
    return tuple(found)


def configured(context: typer.Context) -> Config:
    """The configuration, with what the command line says on top. Raises GradscopeError."""
    from gradscope.config import load_config

    return load_config(context.params["config"]).overridden(**settings(context))


def chosen(context: typer.Context, **more: str) -> Choice:
    """The target that is meant; `more` goes to `choose`. Raises GradscopeError."""
    from gradscope.programs.choose import choose

    given = context.params
    return choose(
        configured(context),
        given["target"],
        context.obj or (),
        inputs=inputs(context),
        parts=(given["model"], given["loss"], given["batch"]),
        **more,
    )


def code_or_zero(context: typer.Context, code: ExitCode) -> ExitCode:
    """With --exit-zero findings are no failure: somebody only wants to read of them."""
    is_read = context.params["exit_zero"] and code is ExitCode.FINDINGS
    return ExitCode.OK if is_read else code
