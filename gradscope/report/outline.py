"""What a page says of a report, part by part, for the formats that set pages: Markdown and HTML.

In prose, what stands between backticks is code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from gradscope.facts import Finding, Fix, Operand, Report, Summary
from gradscope.report import closing, sentences, tensors, trials
from gradscope.report.frames import frame, gutter_of, marks
from gradscope.report.printable import Line
from gradscope.report.rendering import Options


class Heading(NamedTuple):
    level: int  # 1 for the page
    words: str
    role: str = ""  # what it means: a severity, "good", "dim"
    anchor: str = ""  # by which it is linked to


class Prose(NamedTuple):
    words: str
    role: str = ""
    lead: str = ""  # "help", before the words


class Code(NamedTuple):
    content: str | tuple[Line, ...]  # a text, or the lines of a frame
    language: str = "text"


class Listed(NamedTuple):
    """An item may go on with a block of text after its first line. Those of a `chain` lead from one
    to the next."""

    name: str
    items: tuple[str, ...]
    chain: bool = False


class Cell(NamedTuple):
    words: str
    role: str = ""
    anchor: str = ""  # what it links to
    share: float = 0.0  # 0 to 1: a bar beside it
    code: bool = False


class Table(NamedTuple):
    headings: Sequence[str]
    rows: Iterable[Sequence[Cell]]


class Section(NamedTuple):
    """The part of a page about one finding."""

    severity: str
    anchor: str
    parts: Iterable[Part]


_ANCHOR = "finding-{}"
Part = Heading | Prose | Code | Listed | Table | Section


def of_report(report: Report, options: Options) -> Iterator[Part]:
    yield Heading(1, f"gradscope: {report.target}")
    yield from (Prose(remark, "dim") for remark in report.remarks)
    judged = report.trace.steps and not closing.unexplained(report)
    yield Prose(closing.state(report), closing.ROLES[report.verdict] if judged else "error")
    yield Prose(closing.counts(report))
    if len(report.findings) > 1:
        rows = [_contents(one, number) for number, one in enumerate(report.findings, 1)]
        yield Table(("", "rule", "where", "what"), rows)
    for number, (one, shown) in enumerate(sentences.with_shown(report.findings), 1):
        yield of_finding(one, number, options, shown)
    yield from _afterwards(report)


def of_check(summary: Summary, options: Options) -> Iterator[Part]:
    yield Heading(1, "gradscope check")
    yield from (Prose(remark, "dim") for remark in summary.remarks)
    yield Prose(closing.of_all(summary), closing.ROLES[summary.verdict])
    rows = []
    parts: list[Part] = []
    numbers = count(1)
    for place, report in enumerate(summary.reports, 1):
        anchor = f"target-{place}" if closing.needs_words(report) else ""
        verdict = Cell(report.verdict, closing.ROLES[report.verdict])
        name = Cell(report.target, anchor=anchor, code=True)
        rows.append((name, verdict, Cell(closing.outcome(report))))
        if anchor:
            parts.append(Heading(2, report.target, anchor=anchor))
            parts += [Prose(remark, "dim") for remark in report.remarks]
            pairs = sentences.with_shown(report.findings)
            parts += [of_finding(one, next(numbers), options, shown) for one, shown in pairs]
            parts += _afterwards(report)
    yield Table(("target", "verdict", ""), rows)
    yield from parts
    yield from (of_finding(one, next(numbers), options) for one in summary.findings)


def _contents(finding: Finding, number: int) -> tuple[Cell, ...]:
    return (
        Cell(finding.severity, finding.severity),
        Cell(f"{finding.rule} {finding.name}", anchor=_ANCHOR.format(number)),
        Cell(sentences.place(finding.location), code=True) if finding.location else Cell(""),
        Cell(finding.message),
    )


def of_finding(
    finding: Finding, number: int, options: Options, shown: frozenset[str] = frozenset()
) -> Section:
    """What, where, why and the fixes, then what was measured. `shown` are the patches that stand
    above on the page."""
    severity = finding.severity.value
    return Section(severity, _ANCHOR.format(number), _finding(finding, severity, options, shown))


def _finding(
    finding: Finding, severity: str, options: Options, shown: frozenset[str]
) -> Iterator[Part]:
    yield Heading(2, f"{severity} {finding.rule} {finding.name}", severity)
    yield Prose(finding.message)
    if found := marks(finding):
        yield Code(tuple(frame(found, gutter_of(found), options)))
    if finding.why:
        yield Prose(finding.why)
    lead = sentences.leading(finding)
    for fix in sentences.offered(finding.fixes):
        if fix.patch in shown and fix.verified:
            yield Prose(sentences.SHOWN, lead="help")
            yield Prose(trials.verdict(fix), "good")
            continue
        yield from _fix(fix, fix is lead)
    if measured := sentences.measured(finding):
        yield Listed("numbers", measured)
    if finding.tensors:
        rows = dict.fromkeys(map(_tensor, finding.tensors))  # an op may read what it saved
        yield Table(tensors.HEADINGS, rows)
    if finding.symptoms:
        yield Listed("symptoms", (sentences.symptoms(finding.symptoms),))
    if len(sentences.links(finding.chain)) > 1:
        yield Listed("chain", tuple(sentences.chain(finding)), chain=True)
    if within := sentences.inside(finding):
        yield Listed("inside", tuple(within))
    yield Prose(f"More: `gradscope explain {finding.rule}`", "dim")


def _fix(fix: Fix, is_lead: bool) -> Iterator[Part]:
    """One that was refuted, or that nobody needs since another one holds, is one line without the
    patch."""
    verdict = trials.verdict(fix)
    if not (is_lead or fix.verified):
        named = "also" if fix.verified is None else "tried"
        yield Prose(f"{fix.title}; {verdict}", lead=named)
        return
    yield Prose(fix.title, lead="help")
    if fix.patch:
        yield Code(fix.patch, "diff")
    elif fix.code:
        yield Code(fix.code, "python")
    yield Prose(verdict, "good" if fix.verified else "warning")
    yield Prose(f"fix is {fix.safety}: {sentences.SAFETY.get(fix.safety, '')}", "dim")


def _tensor(tensor: Operand) -> tuple[Cell, ...]:
    (row,) = tensors.rows([tensor])
    share = tensor.bad / tensor.numel if tensor.numel else 0.0
    alarming = tensors.HEADINGS.index("bad") if share else None
    return tuple(
        Cell(words, "bad", share=share) if place == alarming else Cell(words)
        for place, words in enumerate(row)
    )


def _afterwards(report: Report) -> Iterator[Part]:
    if words := closing.ending(report):
        yield Prose(words)
        if report.trace.ending.traceback:
            yield Code(report.trace.ending.traceback)
    if report.verdict == "unhealthy" and (words := closing.no_cause(report)):
        yield Prose(words)
    if notes := closing.notes(report):
        yield Listed("note", notes)
