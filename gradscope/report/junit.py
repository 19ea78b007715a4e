"""JUnit XML, for the test tab of a CI: the target is a suite, each finding a test case."""

from __future__ import annotations

from xml.etree import ElementTree as xml

from gradscope.facts import Finding, Report, Severity, Summary
from gradscope.report import phrases, verdicts
from gradscope.report.options import Options
from gradscope.report.terminal import text_of_finding, text_of_report
from gradscope.report.text import clean, sentence

NAME = "junit"


def render(report: Report, options: Options) -> str:
    options = options.for_page()
    target = sentence(report.target)
    cases = [_run(report, target), *(_case(one, target, options) for one in report.findings)]
    return _document(target, cases, report.duration)


def _document(name: str, cases: list[xml.Element], seconds: float) -> str:
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": str(sum(case.find("error") is not None for case in cases)),
        "time": f"{seconds:.3f}",
    }
    root = xml.Element("testsuites", {"name": "gradscope", **counts})
    suite = xml.SubElement(root, "testsuite", {"name": name, **counts, "skipped": "0"})
    suite.extend(cases)
    xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(root, "unicode") + "\n"


def render_all(summary: Summary, options: Options) -> str:
    """Each target is one test case, with all its findings as the text of its failure."""
    options = options.for_page()
    cases = [_target(report, options) for report in summary.reports]
    if summary.findings:
        cases.append(_remarks(summary, options))
    seconds = sum(report.duration for report in summary.reports)
    return _document("gradscope check", cases, seconds)


def _target(report: Report, options: Options) -> xml.Element:
    names = {"classname": "gradscope.check", "name": sentence(report.target)}
    case = xml.Element("testcase", {**names, "time": f"{report.duration:.3f}"})
    text = _lines(text_of_report(report, options))
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    if errors:
        failure = {"type": errors[0].rule, "message": sentence(errors[0].message)}
        xml.SubElement(case, "failure", failure).text = text
    elif report.verdict == "failed":
        error = {"type": report.trace.ending.kind, "message": sentence(verdicts.ending(report))}
        xml.SubElement(case, "error", error).text = text
    elif words := verdicts.no_cause(report):
        xml.SubElement(case, "failure", {"type": "unexplained", "message": words}).text = text
    else:
        xml.SubElement(case, "system-out").text = text
    return case


def _remarks(summary: Summary, options: Options) -> xml.Element:
    names = {"classname": "gradscope.check", "name": "the check as a whole", "time": "0.000"}
    case = xml.Element("testcase", names)
    texts = [text_of_finding(finding, options) for finding in summary.findings]
    xml.SubElement(case, "system-out").text = _lines("".join(texts))
    return case


def _run(report: Report, target: str) -> xml.Element:
    """The run as a whole: an error where the program did not get to its end."""
    case = xml.Element(
        "testcase", {"classname": target, "name": "runs", "time": f"{report.duration:.3f}"}
    )
    if report.verdict == "failed":
        end = report.trace.ending
        error = {"type": end.kind, "message": sentence(verdicts.ending(report))}
        xml.SubElement(case, "error", error).text = _lines(end.traceback)
    elif words := verdicts.no_cause(report):
        xml.SubElement(case, "failure", {"type": "unexplained", "message": words})
    said = (*report.said, *verdicts.notes(report), verdicts.summary(report))
    xml.SubElement(case, "system-out").text = _lines("\n".join(sentence(one) for one in said))
    return case


def _case(finding: Finding, target: str, options: Options) -> xml.Element:
    """Errors fail; a warning or a note is a case that passes and says what it saw."""
    name = f"{finding.rule} {finding.name}"
    if finding.location is not None:
        name += f" at {phrases.place(finding.location)}"
    case = xml.Element("testcase", {"classname": target, "name": clean(name), "time": "0.000"})
    text = _lines(text_of_finding(finding, options))
    if finding.severity is Severity.ERROR:
        failure = {"type": finding.rule, "message": sentence(finding.message)}
        xml.SubElement(case, "failure", failure).text = text
    else:
        xml.SubElement(case, "system-out").text = text
    return case


def _lines(text: str) -> str:
    return "".join(f"\n{clean(line)}" for line in text.rstrip().split("\n")) + "\n"
