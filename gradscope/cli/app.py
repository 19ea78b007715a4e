"""The application: what all commands have in common, and what those on several ranks say and end in
together."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from gradscope.version import __version__

# click's own, or the copy that newer versions of typer bring along
ClickException: Any = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)


class Given(NamedTuple):
    """A context's `obj`: the program's own arguments, and when the command began."""

    arguments: tuple[str, ...]
    began: float


app = typer.Typer(
    rich_markup_mode=None,  # importing rich takes longer than printing the help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class _Command(TyperCommand):
    """One whose help calls arguments by their metavars alone, as it does options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for kind in ("argument", "option"):
            found = (one for one in self.get_params(ctx) if one.param_type_name == kind)
            rows = [row for row in (one.get_help_record(ctx) for one in found) if row]
            if rows:
                with formatter.section(f"{kind.capitalize()}s"):
                    formatter.write_dl(
                        [(name.partition(" <")[0], text) for name, text in rows]
                        if kind == "argument"
                        else rows
                    )


subcommand = partial(app.command, cls=_Command)


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


if TYPE_CHECKING:
    from gradscope.programs.ranks import Ranks


def ranks_of() -> Ranks | None:
    """The ranks of the program, where torchrun has started it; None in a single process."""
    if "TORCHELASTIC_USE_AGENT_STORE" not in os.environ:
        return None
    from gradscope.programs.ranks import Ranks

    return Ranks.found()


def is_first_to_say(message: str) -> bool:
    ranks = ranks_of()
    return ranks is None or ranks.is_first_to_say(message)


def ended_together(code: int) -> int:
    """The exit code of all, once each of them is about to end."""
    ranks = ranks_of()
    return code if ranks is None else ranks.finish(code)
