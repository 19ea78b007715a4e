"""The norms as text: right at 80 columns, without colour, and in ASCII where it must be."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rich.cells import cell_len

from gradscope.facts import text_of
from gradscope.norms import bars
from gradscope.norms.facts import NormReport
from gradscope.norms.sections import Column, Curve, sections
from gradscope.report.printable import Line, Segment, aligned, clean, wrap
from gradscope.report.rendering import Options
from gradscope.report.terminal import brief_of_finding, written

_NARROWEST = 60
_LAYERS_SHOWN = 24
_PROFILE = 40  # cells of a curve whose ends are written beside it
_NAME = 12  # cells that a name keeps in a narrow window
_LEFT = ("parameter", "layer", "op", "shape", "dtype")


def render(
    report: NormReport, options: Options, *, depth: int | None = None, sort: str = "module"
) -> str:
    """The whole report, ending in a newline."""
    options = replace(options, width=max(options.width, _NARROWEST))
    text = written(_measured(report, options, depth, sort), options)
    for finding in report.judged.findings:
        text += f"\n{brief_of_finding(finding, options)}"
    closing = "`gradscope trace` shows the place and tries the fixes\n"
    return text + closing * bool(report.judged.findings)


def _measured(report: NormReport, options: Options, depth: int | None, sort: str) -> Iterator[Line]:
    plainly = not _can(options.encoding, bars.SPARKS)

    def folded(lines: Iterable[str]) -> Iterator[Line]:
        for line in lines:
            for part in _folded(clean(line, options.encoding), options.width):
                yield (Segment(part),)

    for one in sections(report, depth=depth, sort=sort, tree=sort == "module", most=_LAYERS_SHOWN):
        yield from [()] * bool(one.title)
        for curve in one.curves:
            yield from folded(_curve(curve, options.width, plainly))
        yield from folded(one.lines)
        if one.table:
            yield from _table(one.table, options, plainly)


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


def _table(columns: Sequence[Column], options: Options, plainly: bool) -> Iterator[Line]:
    """In aligned columns, a heading over each; without its bars, and then with its names folded,
    where they make it too wide."""
    for with_bars in (True, False):
        shown = list(_shown(columns, options.encoding, plainly, with_bars=with_bars))
        widths = [max(map(cell_len, cells)) for cells, *_ in shown]
        room = options.width - sum(widths[1:]) - len(widths) + 1
        if room >= widths[0]:
            break
    widths[0] = max(_NAME, min(widths[0], room))
    rest = [
        [Segment(f" {cell}", role if number else "strong") for number, cell in enumerate(padded)]
        for cells, role, right in shown[1:]
        for padded in [aligned(cells, right=right)]
    ]
    for number, name in enumerate(shown[0][0]):
        indent = len(name) - len(name.lstrip(" "))
        parts = [" " * indent + one for one in wrap(name.lstrip(" "), widths[0] - indent)]
        first, *more = aligned(parts, widths[0])
        yield Segment(first, "" if number else "strong"), *(column[number] for column in rest)
        yield from ((Segment(one),) for one in more)


def _shown(
    columns: Sequence[Column], encoding: str, plainly: bool, *, with_bars: bool
) -> Iterator[tuple[list[str], str, bool]]:
    """The cells of each, its heading first, its role, and whether it ends on the right."""
    for one in columns:
        cells = [one.name, *(clean(cell, encoding) for cell in one.cells)]
        yield cells, "bad" if one.name == "bad" else "", one.name not in _LEFT
        if one.lengths and with_bars:
            yield ["", *(bars.bar(length, plainly) for length in one.lengths)], "gutter", False


def _can(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
