"""`gradscope explain` and `gradscope examples`: what causes and programs there are."""

from __future__ import annotations

from typing import Annotated

import typer

from gradscope.cli.app import app


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
