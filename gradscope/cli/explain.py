"""`gradscope explain` and `gradscope examples`: what causes and programs there are."""

import shutil
import sys
import textwrap
from typing import Annotated

import typer

from gradscope.cli.app import subcommand

NARROWEST = 24  # columns of text, whatever the terminal
WIDEST = 100


@subcommand()
def explain(
    rule: Annotated[
        str | None,
        typer.Argument(metavar="RULE", help="A code or a name; all are listed without one."),
    ] = None,
) -> None:
    """What a cause is, why it hurts, an example and its repair."""
    from gradscope.rules import RULES, by_name, pages

    if rule is None:
        for one in RULES.values():
            _row(f"{one.code}  {one.name:<26} ", pages.summary(one))
        return
    one = by_name(rule)
    typer.echo(f"# {one.code} {one.name} ({one.severity})\n")
    width = min(_columns() or WIDEST, WIDEST)
    for heading, body in pages.sections(one).items():
        typer.echo(f"## {heading}\n{pages.folded(body, width)}\n")


@subcommand()
def examples() -> None:
    """The built-in programs; trace NAME runs one."""
    from gradscope.examples import EXAMPLES

    for example in EXAMPLES.values():
        _row(f"{example.name:<26} ", f"{example.title} ({example.expects or 'healthy'})")


def _row(head: str, text: str) -> None:
    """A line of a list: folded under its last column on a terminal, else whole, for grep."""
    columns = _columns()
    lines = [text] if columns is None else textwrap.wrap(text, max(columns - len(head), NARROWEST))
    typer.echo(head + f"\n{'':{len(head)}}".join(lines))


def _columns() -> int | None:
    """The width of the terminal; None where stdout is not one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
