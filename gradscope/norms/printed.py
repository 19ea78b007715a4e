"""The norms as text: right at 80 columns, without colour, and in ASCII where it must be."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gradscope.facts import text_of
from gradscope.norms import bars
from gradscope.norms.facts import NormReport
from gradscope.norms.sections import Column, Curve, sections
from gradscope.report.printable import clean, wrap
from gradscope.report.rendering import Options
from gradscope.report.terminal import brief_of_finding

_NARROWEST = 60
_WIDEST = 10_000
_LAYERS_SHOWN = 24
_PROFILE = 40  # cells of a curve whose ends are written beside it
_NAME = 12  # cells that a name keeps in a narrow window
_LEFT = ("parameter", "layer", "op", "shape", "dtype")


def render(
    report: NormReport, options: Options, *, depth: int | None = None, sort: str = "module"
) -> str:
    """The whole report, ending in a newline."""
    out = io.StringIO()
    width = max(options.width, _NARROWEST)
    console = Console(
        file=out,
        width=width,
        no_color=not options.color,
        force_terminal=options.color,
        highlight=False,
        emoji=False,
        soft_wrap=False,
    )
    plain = not _can(options.encoding, bars.SPARKS)

    def say(lines: Iterable[str]) -> None:
        for line in lines:
            for part in _folded(clean(line, options.encoding), width):
                console.print(Text(part))

    for one in sections(report, depth=depth, sort=sort, tree=sort == "module", most=_LAYERS_SHOWN):
        say([""] * bool(one.title))
        for curve in one.curves:
            say(_curve(curve, width, plain))
        say(one.lines)
        if one.table:
            console.print(_fitting(one.table, console, plain, options.encoding))
    for finding in report.judged.findings:
        say([""])
        out.write(brief_of_finding(finding, replace(options, width=width)))
    if report.judged.findings:
        say(["`gradscope trace` shows the place and tries the fixes"])
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _folded(line: str, width: int) -> list[str]:
    """A line that is too long, its further lines indented below it."""
    if cell_len(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip(" ")) + 2
    first, *rest = wrap(line.strip(), width - indent, used=-2)
    return [" " * (indent - 2) + first, *(" " * indent + part for part in rest)]


def _curve(curve: Curve, width: int, plain: bool) -> Iterator[str]:
    yield curve.sentence
    if curve.ends:
        ends = f"{text_of(curve.values[0], 3)} to {text_of(curve.values[-1], 3)}"
        yield f"  {bars.sparkline(curve.values, _PROFILE, plain)}  {ends}"
    else:
        yield f"  {bars.sparkline(curve.values, width - 4, plain)}"


def _fitting(columns: Sequence[Column], console: Console, plain: bool, encoding: str) -> Table:
    """The table; without its bars where they make it too wide."""
    whole = _table(columns, encoding, plain=plain, with_bars=True)
    needed = console.measure(whole, options=console.options.update(max_width=_WIDEST)).maximum
    if needed <= console.width:
        return whole
    return _table(columns, encoding, plain=plain, with_bars=False)


def _table(columns: Sequence[Column], encoding: str, *, plain: bool, with_bars: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    filled = []
    for one in columns:
        is_name = one is columns[0]
        table.add_column(
            one.name,
            justify="left" if one.name in _LEFT else "right",
            no_wrap=not is_name,
            overflow="fold",
            min_width=_NAME if is_name else None,
            style="bold red" if one.name == "bad" else "",
        )
        filled.append([Text(clean(cell, encoding)) for cell in one.cells])
        if one.lengths and with_bars:
            table.add_column("", no_wrap=True, style="blue")
            filled.append([Text(bars.bar(length, plain)) for length in one.lengths])
    for row in zip(*filled, strict=True):
        table.add_row(*row)
    return table


def _can(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
