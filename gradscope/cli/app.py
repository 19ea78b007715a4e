"""The application: what all commands have in common."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from gradscope.version import __version__

# click's own, or the copy that newer versions of typer bring along
ClickException: Any = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)

STARTED = "gradscope.started"  # in a context's `meta`: when the command did, by time.monotonic

app = typer.Typer(
    rich_markup_mode=None,  # importing rich takes longer than printing the help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def gradscope(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Names the op that broke a gradient, says why, and hands over a fix that was tried."""
    context.meta[STARTED] = time.monotonic()
    if version:
        typer.echo(f"gradscope {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
