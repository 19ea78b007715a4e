"""One self-contained HTML page: no script, no network, light and dark, readable without colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from gradscope.norms import charts
from gradscope.norms.facts import NormReport
from gradscope.norms.sections import Column, Section, sections
from gradscope.report.html_parts import opening, prose, section, table, text_row
from gradscope.report.printable import sentence
from gradscope.report.rendering import Options


def render(report: NormReport) -> str:
    return "\n".join(_page(report)) + "\n"


def _page(report: NormReport) -> Iterator[str]:
    title = escape(sentence(f"gradscope norms: {report.judged.target}"))
    yield opening(title, charts.STYLE)
    yield f"<header>\n<h1>{title}</h1>\n</header>"
    for number, finding in enumerate(report.judged.findings, 1):
        yield from section(number, finding, Options().for_page())
    reason = charts.missing()
    if reason is not None:
        yield (
            '<p class="dim">No pictures here: matplotlib cannot be imported '
            f"({prose(reason)}). <code>pip install matplotlib</code> brings it.</p>"
        )
    for one in sections(report):
        yield from _section(one, pictures=reason is None)
    if reason is None:
        yield from _heat_map(report)
    yield "</body>\n</html>"


def _section(one: Section, *, pictures: bool) -> Iterator[str]:
    if one.title:
        yield f"<h2>{prose(one.title)}</h2>"
    yield from (f"<p>{prose(line)}</p>" for line in (*(c.sentence for c in one.curves), *one.lines))
    if one.picture is not None and pictures:
        yield _scrolling(one.picture())
    if one.table and one.picture is None:
        yield from _table(one.table)
    elif one.table:
        yield f"<details{'' if pictures else ' open'}><summary>the numbers</summary>"
        yield from _table(one.table)
        yield "</details>"


def _table(columns: Sequence[Column]) -> Iterator[str]:
    rows = zip(*(one.cells for one in columns), strict=True)
    return table([one.name for one in columns], map(text_row, rows))


def _heat_map(report: NormReport) -> Iterator[str]:
    magnitudes = report.judged.trace.magnitudes
    order = {row.name: at for at, row in enumerate(report.measured.rows)}
    leaves = [leaf for leaf in magnitudes.leaves if leaf.known] if magnitudes else []
    if leaves:
        title = "L2 norm of each gradient by step"
        yield f"<h2>{title}</h2>"
        yield "<p>The lighter the larger, on a logarithmic scale. Nothing: no gradient.</p>"
        leaves.sort(key=lambda leaf: order.get(leaf.name, len(order)))
        yield _scrolling(charts.heat_map(title, leaves))


def _scrolling(inner: str) -> str:
    """What is wider than a small screen scrolls on its own."""
    return f'<div class="scroll">{inner}</div>'
