"""The report as one self-contained page: no script, nothing fetched, light and dark, printable.

Not called html.py, which would hide the standard library's.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import count

from gradscope.facts import Report, Summary
from gradscope.report import closing, sentences
from gradscope.report.html_parts import (
    SCOPED,
    listed,
    opening,
    prose,
    section,
    table,
    verbatim,
)
from gradscope.report.printable import clean, sentence
from gradscope.report.rendering import Options
from gradscope.version import __version__

NAME = "html"


def render(report: Report, options: Options) -> str:
    return "\n".join(_page(report, options.for_page())) + "\n"


def fragment(report: Report, options: Options) -> str:
    """The report as a part of somebody else's page, whose looks stay as they are."""
    inside = "\n".join(_report(report, options.for_page()))
    return f'<div class="gradscope">\n<style>\n{SCOPED}</style>\n{inside}\n</div>\n'


def _page(report: Report, options: Options) -> Iterator[str]:
    yield opening(f"gradscope: {escape(sentence(report.target))}")
    yield from _report(report, options)
    yield "</body>\n</html>"


def _report(report: Report, options: Options) -> Iterator[str]:
    yield f"<header>\n<h1>gradscope: {escape(sentence(report.target))}</h1>"
    yield from (f'<p class="dim">{prose(remark)}</p>' for remark in report.remarks)
    judged = report.trace.steps and not closing.unexplained(report)
    role = closing.ROLES[report.verdict] if judged else "error"
    yield f'<p class="tag {role}">{prose(closing.state(report))}</p>'
    yield f"<p>{prose(closing.counts(report))}</p>"
    yield "</header>"
    yield from _contents(report)
    for number, finding in enumerate(report.findings, 1):
        yield from section(number, finding, options)
    yield from _afterwards(report)
    env = report.trace.environment
    known = [("torch", env.torch), ("Python", env.python), ("device", env.device)]
    listed = ", ".join(f"{name} {sentence(value)}" for name, value in known if value)
    yield f"<footer>gradscope {__version__}; {escape(listed)}</footer>"


def render_all(summary: Summary, options: Options) -> str:
    return "\n".join(_pages(summary, options.for_page())) + "\n"


def _pages(summary: Summary, options: Options) -> Iterator[str]:
    yield opening("gradscope check")
    yield "<header>\n<h1>gradscope check</h1>"
    yield from (f'<p class="dim">{prose(remark)}</p>' for remark in summary.remarks)
    role = closing.ROLES[summary.verdict]
    yield f'<p class="tag {role}">{prose(closing.of_all(summary))}</p>\n</header>'
    numbers = count(1)
    parts: list[str] = []
    rows = []
    for place, report in enumerate(summary.reports, 1):
        name = escape(clean(report.target))
        if closing.needs_words(report):
            parts.append(f'<h2 id="target-{place}">{name}</h2>')
            parts += [f'<p class="dim">{prose(remark)}</p>' for remark in report.remarks]
            for finding in report.findings:
                parts += section(next(numbers), finding, options)
            parts += _afterwards(report)
            name = f'<a href="#target-{place}">{name}</a>'
        role = closing.ROLES[report.verdict]
        rows.append(
            f'<tr><td class="what">{name}</td><td><span class="tag {role}">{report.verdict}</span>'
            f'</td><td class="what">{prose(closing.outcome(report))}</td></tr>'
        )
    yield from table(("target", "verdict", ""), rows)
    yield from parts
    for finding in summary.findings:
        yield from section(next(numbers), finding, options)
    yield f"<footer>gradscope {__version__}</footer>\n</body>\n</html>"


def _contents(report: Report) -> Iterator[str]:
    """Where more than one finding is below: what they are, with links."""
    if len(report.findings) < 2:
        return
    rows = []
    for number, one in enumerate(report.findings, 1):
        where = f"<code>{escape(sentences.place(one.location))}</code>" if one.location else ""
        rows.append(
            f'<tr><td><span class="tag {one.severity}">{one.severity}</span></td>'
            f'<td><a href="#finding-{number}">{escape(one.rule)} {escape(one.name)}</a></td>'
            f'<td>{where}</td><td class="what">{prose(one.message)}</td></tr>'
        )
    yield from table(("", "rule", "where", "what"), rows)


def _afterwards(report: Report) -> Iterator[str]:
    end = report.trace.ending
    if words := closing.ending(report):
        yield f"<h3>How it ended</h3>\n<p>{prose(words)}</p>"
        if end.traceback:
            yield f"<pre>{verbatim(end.traceback.rstrip())}</pre>"
    if report.verdict == "unhealthy" and (words := closing.no_cause(report)):
        yield f"<p>{prose(words)}</p>"
    if closing.notes(report):
        yield "<h3>What could not be observed</h3>"
        yield from listed("ul", map(prose, closing.notes(report)))
