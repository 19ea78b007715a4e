"""What a report says, part by part: of a finding for whatever people read, of a whole report for
the formats that set pages, Markdown and HTML.

In prose, what stands between backticks is code.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from gradscope.facts import Finding, Holds, Operand, Report, Severity, Summary, number
from gradscope.ops.display import role_name
from gradscope.report import closing, sentences, trials
from gradscope.report.diffs import changes
from gradscope.report.frames import frame, gutter_of, marks
from gradscope.report.printable import Line, clean
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
    file: str = ""  # that a patch is of, where the finding is in another one


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
_TENSORS = ("tensor", "shape", "dtype", "device", "bad", "min", "max")
Part = Heading | Prose | Code | Listed | Table | Section


def of_report(report: Report, options: Options) -> Iterator[Part]:
    yield Heading(1, f"gradscope: {report.target}")
    yield from (Prose(remark, "dim") for remark in report.remarks)
    role = closing.ROLES[report.verdict] if report.trace.steps else "error"
    yield Prose(closing.state(report), role)
    yield Prose(closing.counts(report))
    if len(report.findings) > 1:
        rows = [_contents(one, number) for number, one in enumerate(report.findings, 1)]
        yield Table(("", "rule", "where", "what"), rows)
    for place, (one, shown) in enumerate(sentences.with_shown(report.findings), 1):
        yield of_finding(one, place, options, shown)
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
    for parts in parts_about(finding, shown):
        yield from parts
    yield Prose(f"More: `gradscope explain {finding.rule}`", "dim")


def parts_about(finding: Finding, shown: frozenset[str]) -> tuple[Iterator[Part], ...]:
    """Why, the fix to show in full, and all the rest. `shown` are the patches that stand above."""
    return _why(finding), _cure(finding, shown), _rest(finding)


def _why(finding: Finding) -> Iterator[Part]:
    if finding.why:
        yield Prose(finding.why, lead="why")


def _cure(finding: Finding, shown: frozenset[str]) -> Iterator[Part]:
    fix = sentences.leading(finding)
    if fix is None:
        return
    trial, words = trials.trial_words(fix)
    verdict = Prose(words, "good" if fix.verified else "warning", trial)
    if fix.patch in shown:
        yield from (Prose(sentences.SHOWN, lead="help"), verdict)
        return
    yield Prose(fix.title, lead="help")
    if fix.patch:
        edited = next((change.file for change in changes(fix.patch)), "")
        at = os.path.abspath(finding.location.file) if finding.location else ""
        yield Code(fix.patch, "diff", edited if os.path.abspath(edited) != at else "")
    elif fix.code:
        yield Code(fix.code, "python")
    yield verdict
    yield Prose(sentences.SAFETY.get(fix.safety, ""), "dim", f"fix is {fix.safety}")


def _rest(finding: Finding) -> Iterator[Part]:
    """The other fixes, one line for each verdict, and what was measured."""
    lead = sentences.leading(finding)
    if lead is None and finding.fixes:
        holds = any(isinstance(fix.verdict, Holds) for fix in finding.fixes)
        yield Prose(sentences.DOUBTFUL if holds else sentences.UNREPAIRED, lead="help")
    others: dict[tuple[str, str], list[str]] = {}
    for fix in sentences.offered(finding.fixes):
        if fix is not lead:
            named = "also" if fix.verified is not False else "tried"
            others.setdefault((named, trials.verdict(fix)), []).append(fix.title)
    for (named, verdict), titles in others.items():
        yield Prose(f"{'; '.join(dict.fromkeys(titles))} ({verdict})", lead=named)
    yield from (Prose(place, lead="inside") for place in sentences.inside(finding))
    if measured := sentences.measured(finding):
        yield Listed("numbers", measured)
    if finding.tensors:
        # What an op reads may also be what it saved.
        yield Table(_TENSORS, dict.fromkeys(map(_tensor, finding.tensors)))
    if finding.symptoms:
        yield Prose(sentences.symptoms(finding.symptoms), lead="symptoms")
    if len(sentences.links(finding.chain)) > 1:
        yield Listed("chain", tuple(sentences.chain(finding)), chain=True)


def _tensor(tensor: Operand) -> tuple[Cell, ...]:
    """Under `_TENSORS`; min and max are over the finite elements."""
    share = tensor.bad / tensor.numel if tensor.numel else 0.0
    return (
        Cell(clean(tensor.called or role_name(tensor.role))),
        Cell(str(list(tensor.shape))),
        Cell(clean(tensor.dtype.removeprefix("torch."))),
        Cell(clean(tensor.device)),
        Cell(sentences.share(tensor.bad, tensor.numel), "bad" if share else "", share=share),
        *(Cell("-" if one is None else number(one)) for one in (tensor.min, tensor.max)),
    )


def _afterwards(report: Report) -> Iterator[Part]:
    if words := closing.ending(report):
        yield Prose(words)
        if report.trace.ending.traceback:
            yield Code(report.trace.ending.traceback)
    if report.has(Severity.ERROR) and (words := closing.no_cause(report)):
        yield Prose(words)
    if notes := closing.notes(report):
        yield Listed("note", notes)
