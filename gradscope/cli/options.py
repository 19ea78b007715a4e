"""The options that several commands have, each with its one text. None: not said."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradscope.facts import Severity

Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        min=1,
        metavar="N",
        help="Stop after N updates (without an optimizer, backward passes) [100].",
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
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Do not try the fixes.")]
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
    bool,
    typer.Option("--rerun", help="Run again what connects, starts processes or deletes files."),
]
NoCustomBackward = Annotated[
    bool, typer.Option("--no-custom-backward", help="Do not check custom autograd.Functions.")
]


def words(given: list[str] | None) -> tuple[str, ...] | None:
    """As a configuration holds them; None where nothing was said."""
    return tuple(given) if given else None
