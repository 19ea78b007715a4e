"""The report as people read it: what, where, why and help, in that order, and only once; then
what was measured."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gradscope.facts import Finding, Report, Severity, Summary, plural
from gradscope.report import closing, sentences
from gradscope.report.diffs import DOTS, changes, folded, numbered
from gradscope.report.frames import frame, gutter_of, header, lines_shown, marks
from gradscope.report.outline import Cell, Code, Listed, Part, Prose, Table, parts_about
from gradscope.report.printable import (
    Line,
    Segment,
    aligned,
    clean,
    expanded,
    paragraph,
    plain,
    sentence,
)
from gradscope.report.rendering import NARROWEST, Options

NAME = "terminal"

HEAD = 25  # lines: what broke, where, why and the patch stand on the first screen
ENDS = 15  # lines of a long traceback that are shown of its begin, and of its end
PROSE = 100  # cells: longer lines of prose are hard to read on any screen

# Colour repeats what words and marks say already; these read on dark and light backgrounds.
STYLES = {
    "error": "bold red",
    "warning": "bold yellow",
    "note": "bold cyan",
    "help": "bold green",
    "strong": "bold",
    "gutter": "blue",
    "related": "blue",
    "place": "underline",
    "removed": "red",
    "added": "green",
    "good": "green",
    "bad": "red",
    "dim": "dim",
}


def render(report: Report, options: Options) -> str:
    options = replace(options, width=max(options.width, NARROWEST))
    if not options.quiet:
        return written(_report(report, options), options)
    is_news = report.findings or report.verdict != "healthy"
    return written(_closing(report, options) if is_news else (), options)


def render_all(summary: Summary, options: Options) -> str:
    options = replace(options, width=max(options.width, NARROWEST))
    if not options.quiet:
        return written(_summary(summary, options), options)
    if len(summary.reports) == 1 and not summary.findings:
        return render(summary.reports[0], options)
    is_news = summary.all_findings or summary.verdict != "healthy"
    return written(_closing_of_all(summary, options) if is_news else (), options)


def _summary(summary: Summary, options: Options) -> Iterator[Line]:
    for remark in dict.fromkeys(summary.remarks):
        yield from _prose((), remark, options, 2)
    for report in summary.reports:
        yield from _report(report, options)
        if closing.needs_words(report):
            yield ()
    for finding in summary.findings:
        yield from _finding(finding, options)
        yield ()
    if len(summary.reports) != 1 or summary.findings:
        if not summary.findings and not any(map(closing.needs_words, summary.reports[-1:])):
            yield ()  # else the last one has left a line
        yield from _closing_of_all(summary, options)


def _closing_of_all(summary: Summary, options: Options) -> Iterator[Line]:
    role = closing.ROLES[summary.verdict]
    yield from _prose((), closing.of_all(summary), options, 2, role)


def text_of_finding(finding: Finding, options: Options) -> str:
    """One finding without colour, for formats that hold it as a block of text."""
    return written(_finding(finding, options), options)


def brief_of_finding(finding: Finding, options: Options) -> str:
    """What, where, and the first fix in words, for who is shown something else."""
    return written(_brief(finding, options), options)


def _brief(finding: Finding, options: Options) -> Iterator[Line]:
    yield from _headline(finding, options)
    if finding.location is not None:
        yield from header("-->", finding.location, 1, options)
    for fix in finding.fixes[:1]:
        yield from _labelled("help", fix.title, options)


def _headline(finding: Finding, options: Options) -> Iterator[Line]:
    severity = finding.severity.value
    head = (Segment(f"{severity}[{finding.rule}] {finding.name}", severity), Segment(": "))
    yield from _prose(head, finding.message, options, 4, "strong")


def _report(report: Report, options: Options) -> Iterator[Line]:
    for remark in report.remarks:
        yield from _prose((), remark, options, 2)
    if report.remarks:
        yield ()
    for finding, shown in sentences.with_shown(report.findings):
        yield from _finding(finding, options, shown)
        yield ()
    yield from _ending(report, options)
    for note in closing.notes(report):
        yield from _labelled("note", note, options)
    if closing.notes(report):
        yield ()
    yield from _closing(report, options)


def _finding(
    finding: Finding, options: Options, shown: frozenset[str] = frozenset()
) -> Iterator[Line]:
    """`shown` are the patches that stand above on the page."""
    found = marks(finding)
    lead = sentences.leading(finding)
    numbers = [change.number for change in changes(lead.patch or "")] if lead else []
    gutter = max([gutter_of(found), *(len(str(number)) for number in numbers)])
    head = [*_headline(finding, options), *(frame(found, gutter, options) if found else ())]
    known = lines_shown(found, options)
    parts = (_lines(parts, gutter, options, known) for parts in parts_about(finding, shown))
    why, cure, rest = map(list, parts)
    yield from head
    yield from (*why, *cure) if len(head) + len(why) + len(cure) <= HEAD else (*cure, *why)
    yield from rest
    yield from _item("more", f"gradscope explain {finding.rule}", gutter, options)


def _lines(
    parts: Iterable[Part], gutter: int, options: Options, known: Container[str]
) -> Iterator[Line]:
    """`known` are the lines of source that stand above."""
    for part in parts:
        match part:
            case Prose(words, _, "help"):
                yield from _labelled("help", words, options)
            case Prose(words, role, lead):
                role = role if role in ("good", "warning") else "strong"
                yield from _item(lead, words, gutter, options, role)
            case Code(str(patch), "diff", file):
                yield from numbered(patch, gutter, options, known, file)
            case Code(str(code)):
                bar = Segment(" " * gutter + " |", "gutter")
                yield (bar,)
                yield from _verbatim(code.split("\n"), gutter + 3, options, f"{bar.text} ")
                yield (bar,)
            case Listed(name, items, chain=True):
                yield from _item(name, " -> ".join(items), gutter, options)
            case Listed(name, items):
                if phrases := [one for one in items if "\n" not in one]:
                    yield from _item(name, "; ".join(phrases), gutter, options)
                for title, *lines in (one.split("\n") for one in items if "\n" in one):
                    yield from _item(name, title, gutter, options)
                    yield from _verbatim(lines, gutter + 5, options)
            case Table(headings, rows):
                yield from _item("tensors", "", gutter, options)
                yield from _tensors(headings, list(rows), gutter + 5, options)


def _tensors(
    headings: Sequence[str], rows: list[Sequence[Cell]], margin: int, options: Options
) -> Iterator[Line]:
    """In aligned columns, or two lines each where the page is too narrow for those."""
    cells = [[clean(cell.words, options.encoding) for cell in row] for row in rows]
    *others, last = zip(headings, *cells, strict=True)
    lines = zip(*map(aligned, others), last, strict=True)
    roles = (["dim"] * len(headings), *([cell.role for cell in row] for row in rows))
    table = [
        tuple(Segment(f"  {text}", role) for text, role in zip(*pair, strict=True))
        for pair in zip(lines, roles, strict=True)
    ]
    if all(cell_len(plain(line)) + margin - 2 <= options.width for line in table):
        yield from ((Segment(" " * (margin - 2)), *line) for line in table)
        return
    for row, (name, shape, dtype, device, bad, least, most) in zip(rows, cells, strict=True):
        part = "finite part " if any(cell.role == "bad" for cell in row) else ""
        finite = "" if least == "-" else f", {part}{least} to {most}"
        what = f"{name} {shape} {dtype} {device}"
        yield from _prose((Segment(" " * margin),), what, options, margin + 4)
        lead = (Segment(" " * (margin + 2)),)
        yield from _prose(lead, f"{bad} bad{finite}", options, margin + 4)


def _item(
    name: str, text: str, gutter: int, options: Options, role: str = "strong"
) -> Iterator[Line]:
    """ "  = why: ..."."""
    lead = (Segment(" " * gutter + " = ", "gutter"), Segment(name, role))
    if text:
        yield from _prose((*lead, Segment(": ")), text, options, gutter + 3)
    else:
        yield lead


def _labelled(role: str, text: str, options: Options, indent: int = 6) -> Iterator[Line]:
    """ "help: ...", "note: ..."."""
    yield from _prose((Segment(role, role), Segment(": ")), text, options, indent)


def _prose(
    lead: Sequence[Segment], text: str, options: Options, indent: int, role: str = ""
) -> Iterator[Line]:
    text = sentence(text, options.encoding)
    for line in paragraph(lead, text, min(options.width, PROSE), indent):
        yield *line[:-1], Segment(line[-1].text, role)


def _verbatim(
    lines: Iterable[str], margin: int, options: Options, bar: str | None = None
) -> Iterator[Line]:
    for line in lines:
        text = "".join(expanded(line, options.encoding))
        for part in folded(text, options.width - margin):
            yield Segment(bar or " " * margin, "gutter"), Segment(part)


def _ending(report: Report, options: Options) -> Iterator[Line]:
    end = report.trace.ending
    # Of a death a traceback tells the place alone.
    says_all = end.traceback and not (end.kind == "died" or end.memory_limited)
    words = closing.ending_in_short(report) if says_all else closing.ending(report)
    if not words:
        return
    severity = "error" if report.verdict == "failed" else "note"
    yield from _labelled(severity, words, options, 4)
    if end.location is not None:
        yield from header("-->", end.location, 1, options)
    if end.traceback:
        lines = end.traceback.rstrip().split("\n")
        left = len(lines) - 2 * ENDS
        if left > 1:  # most of it is a tensor that was printed
            lines[ENDS:-ENDS] = [f"{DOTS} {plural(left, 'more line')}"]
        yield from _verbatim(lines, 4, options)
    yield ()


def _closing(report: Report, options: Options) -> Iterator[Line]:
    words = closing.no_cause(report)
    if words and report.has(Severity.ERROR):
        yield from _labelled("note", words, options)
    role = closing.ROLES[report.verdict]
    if not report.trace.steps and report.verdict == "healthy":
        role = "warning"
    yield from _prose((), closing.summary(report), options, 2, role)


def written(lines: Iterable[Line], options: Options) -> str:
    """Lines as a terminal shows them, each without spaces at its end."""
    if options.color:
        return _painted(lines, options)
    return "".join(f"{plain(line)}\n" for line in lines)


def _painted(lines: Iterable[Line], options: Options) -> str:
    console = Console(
        file=StringIO(),
        width=options.width,
        force_terminal=True,
        force_jupyter=False,  # which would show each line in a cell of its own
        no_color=False,  # the caller has judged NO_COLOR
        color_system="standard",
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},
    )
    with console.capture() as captured:
        for line in lines:
            text = Text.assemble(*((part.text, _style(part, options)) for part in line))
            console.print(text, soft_wrap=True)
    return captured.get()


def _style(part: Segment, options: Options) -> str:
    """Colours, and a link (OSC 8) to the file that a place names."""
    style = STYLES.get(part.role, "")
    if not (options.links and part.file):
        return style
    return f"{style} link {Path(part.file).absolute().as_uri()}"
