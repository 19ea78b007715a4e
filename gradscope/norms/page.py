"""One self-contained HTML page: no script, no network, light and dark, readable without colour."""

from collections.abc import Iterator, Sequence

from gradscope.norms import charts
from gradscope.norms.facts import NormReport
from gradscope.norms.sections import Column, Section, sections
from gradscope.report.html_page import page, written
from gradscope.report.outline import Cell, Heading, Prose, Table, of_finding
from gradscope.report.rendering import Options


def render(report: NormReport) -> str:
    title = f"gradscope norms: {report.judged.target}"
    return page(title, _body(title, report), charts.STYLE)


def _body(title: str, report: NormReport) -> Iterator[str]:
    yield from written([Heading(1, title)])
    found = enumerate(report.judged.findings, 1)
    yield from written(of_finding(one, number, Options().for_page()) for number, one in found)
    reason = charts.missing()
    if reason is not None:
        words = f"No pictures here: matplotlib cannot be imported ({reason})."
        yield from written([Prose(f"{words} `pip install matplotlib` brings it.", "dim")])
    for one in sections(report):
        yield from _section(one, pictures=reason is None)
    if reason is None:
        yield from _heat_map(report)


def _section(one: Section, *, pictures: bool) -> Iterator[str]:
    if one.title:
        yield from written([Heading(2, one.title)])
    lines = (*(curve.sentence for curve in one.curves), *one.lines)
    yield from written(Prose(line) for line in lines)
    if one.picture is not None and pictures:
        yield _scrolling(one.picture())
    if one.table and one.picture is None:
        yield from written([_table(one.table)])
    elif one.table:
        yield f"<details{'' if pictures else ' open'}><summary>the numbers</summary>"
        yield from written([_table(one.table)])
        yield "</details>"


def _table(columns: Sequence[Column]) -> Table:
    rows = zip(*(one.cells for one in columns), strict=True)
    return Table([one.name for one in columns], tuple(tuple(map(Cell, row)) for row in rows))


def _heat_map(report: NormReport) -> Iterator[str]:
    order = {row.name: at for at, row in enumerate(report.measured.rows)}
    leaves = [leaf for leaf in report.sizes.leaves if leaf.known]
    if leaves:
        title = "L2 norm of each gradient by step"
        words = "The lighter the larger, on a logarithmic scale. Nothing: no gradient."
        yield from written([Heading(2, title), Prose(words)])
        leaves.sort(key=lambda leaf: order.get(leaf.name, len(order)))
        yield _scrolling(charts.heat_map(title, leaves))


def _scrolling(inner: str) -> str:
    """Around an element that may be wider than a small screen: it scrolls by itself."""
    return f'<div class="scroll">{inner}</div>'
