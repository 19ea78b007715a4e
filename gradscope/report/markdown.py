"""Markdown for a job summary or a comment: a table of the findings, then each with its frame."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gradscope.facts import Finding, Fix, Report, Summary
from gradscope.report import closing, sentences, tensors, trials
from gradscope.report.frames import frame, gutter_of, marks
from gradscope.report.printable import clean, plain, sentence
from gradscope.report.rendering import Options

NAME = "markdown"

_SPECIAL = re.compile(r"([\\`*\[\]#|<~$]|(?<!\w)_|_(?!\w))")
_OPENING = re.compile(r"^(\d*)([-+>=.)])")  # what begins a list, a quote or a heading
_ENDS = re.compile(r"\r?\n")
_RUNS = re.compile(r"`+")


def render(report: Report, options: Options) -> str:
    return "\n".join(_report(report, options.for_page())).rstrip() + "\n"


def _report(report: Report, options: Options) -> Iterator[str]:
    yield f"# gradscope: {_prose(report.target)}"
    yield ""
    for remark in report.remarks:
        yield _prose(remark)
        yield ""
    yield f"**{_prose(closing.state(report))}**"
    yield ""
    yield _prose(closing.counts(report))
    yield ""
    if report.findings:
        yield from _table(report)
    for finding in report.findings:
        yield from _finding(finding, options)
    yield from _afterwards(report)


def render_all(summary: Summary, options: Options) -> str:
    return "\n".join(_summary(summary, options.for_page())).rstrip() + "\n"


def _summary(summary: Summary, options: Options) -> Iterator[str]:
    yield "# gradscope check"
    yield ""
    yield f"**{_prose(closing.of_all(summary))}**"
    yield ""
    for remark in summary.remarks:
        yield _prose(remark)
        yield ""
    yield "| target | verdict | |"
    yield "|---|---|---|"
    for report in summary.reports:
        name, words = _code(report.target, table=True), _prose(closing.outcome(report), table=True)
        yield f"| {name} | {report.verdict} | {words} |"
    yield ""
    for report in summary.reports:
        if closing.needs_words(report):
            yield from _report(report, options)
    for finding in summary.findings:
        yield from _finding(finding, options)


def _table(report: Report) -> Iterator[str]:
    yield "| | rule | where | what |"
    yield "|---|---|---|---|"
    for one in report.findings:
        where = _code(sentences.place(one.location), table=True) if one.location else ""
        rule = f"{one.rule} {one.name}"
        yield f"| {one.severity} | {rule} | {where} | {_prose(one.message, table=True)} |"
    yield ""


def _finding(finding: Finding, options: Options) -> Iterator[str]:
    yield f"## {finding.severity} {finding.rule} {finding.name}"
    yield ""
    yield f"{_prose(finding.message)}"
    yield ""
    if found := marks(finding):
        lines = frame(found, gutter_of(found), options)
        yield from _fenced("text", "\n".join(plain(line) for line in lines))
    yield _prose(finding.why)
    yield ""
    for fix in sentences.offered(finding.fixes):
        yield from _fix(fix)
    for words in sentences.inside(finding):
        yield f"- inside {_prose(words)}"
    for phrase in sentences.measured(finding):
        title, _, block = phrase.partition("\n")  # a small table of a rule's own, a test
        yield f"- {_prose(title)}"
        if block:
            yield ""
            yield from (f"  {line}".rstrip() for line in _fenced("text", block.rstrip()))
    if finding.symptoms:
        yield f"- symptoms: {_prose(sentences.symptoms(finding.symptoms))}"
    if len(sentences.links(finding.chain)) > 1:
        yield f"- chain: {_prose(' -> '.join(sentences.chain(finding)))}"
    yield ""
    if finding.tensors:
        yield f"| {' | '.join(tensors.HEADINGS)} |"
        yield f"|{'---|' * len(tensors.HEADINGS)}"
        for row in tensors.rows(finding.tensors):
            yield f"| {' | '.join(_prose(cell, table=True) for cell in row)} |"
        yield ""
    yield f"More: `gradscope explain {finding.rule}`"
    yield ""


def _fix(fix: Fix) -> Iterator[str]:
    """A fix that was refuted is one line, without the patch that nobody should apply."""
    if fix.verified is False:
        yield f"**tried:** {_prose(fix.title)}; {_prose(trials.verdict(fix))}"
        yield ""
        return
    yield f"**help:** {_prose(fix.title)}"
    yield ""
    if fix.patch:
        yield from _fenced("diff", fix.patch)
    elif fix.code:
        yield from _fenced("python", fix.code)
    safety = sentences.SAFETY.get(fix.safety, "")
    yield f"- fix is {fix.safety}: {safety}"
    yield f"- {_prose(trials.verdict(fix))}"
    yield ""


def _afterwards(report: Report) -> Iterator[str]:
    if words := closing.ending(report):
        yield _prose(words)
        yield ""
        if report.trace.ending.traceback:
            yield from _fenced("text", report.trace.ending.traceback)
    if report.verdict == "unhealthy" and (words := closing.no_cause(report)):
        yield _prose(words)
        yield ""
    for note in closing.notes(report):
        yield f"- note: {_prose(note)}"


def _prose(text: str, table: bool = False) -> str:
    """Text with nothing in it that markdown obeys, but for the `code` that it names."""
    pieces = sentence(text).split("`")
    if len(pieces) % 2 == 0:  # a backtick of somebody's name
        words = _escaped("`".join(pieces))
    else:
        turns = zip(pieces, [False, True] * len(pieces), strict=False)
        words = "".join(
            _code(piece, table) if code and piece else _escaped(piece) for piece, code in turns
        )
    return words if table else _OPENING.sub(r"\1\\\2", words)


def _escaped(text: str) -> str:
    """Backslashes for punctuation; entities for what would become a mention or a bare link."""
    text = _SPECIAL.sub(r"\\\1", text.replace("&", "&amp;"))
    return text.replace("@", "&#64;").replace("://", "&#58;//").replace("www.", "www&#46;")


def _code(text: str, table: bool = False) -> str:
    """A code span, fenced by more backticks than it holds."""
    text = clean(text)
    ticks = "`" * (1 + max((len(run) for run in _RUNS.findall(text)), default=0))
    pad = " " if len(ticks) > 1 else ""
    if table:
        text = text.replace("|", "\\|")
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _fenced(language: str, text: str) -> Iterator[str]:
    lines = ["\t".join(map(clean, line.split("\t"))) for line in _ENDS.split(text.rstrip())]
    longest = max((len(run) for line in lines for run in _RUNS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}"
    yield from lines
    yield fence
    yield ""
