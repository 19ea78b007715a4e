"""JUnit XML, for the test tab of a CI: the target is a suite, each finding a test case."""

from __future__ import annotations

from xml.etree import ElementTree as xml

from gradscope.facts import Finding, Report, Severity
from gradscope.report import phrases
from gradscope.report.options import Options
from gradscope.report.terminal import text_of_finding
from gradscope.report.text import clean, sentence

NAME = "junit"
SUFFIX = ".xml"

WIDTH = 100


def render(report: Report, options: Options) -> str:
    options = Options(WIDTH, sources=options.sources)
    target = sentence(report.target)
    cases = [_run(report, target), *(_case(one, target, options) for one in report.findings)]
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": str(sum(case.find("error") is not None for case in cases)),
        "skipped": "0",
        "time": f"{sum(step.seconds for step in report.trace.steps):.3f}",
    }
    root = xml.Element("testsuites", {"name": "gradscope", **counts})
    suite = xml.SubElement(root, "testsuite", {"name": target, **counts})
    suite.extend(cases)
    xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(root, "unicode") + "\n"


def _run(report: Report, target: str) -> xml.Element:
    """The run as a whole: an error where the program did not get to its end."""
    seconds = sum(step.seconds for step in report.trace.steps)
    case = xml.Element("testcase", {"classname": target, "name": "runs", "time": f"{seconds:.3f}"})
    unexplained = phrases.unexplained(report)
    if report.verdict == "failed":
        end = report.trace.ending
        error = {"type": end.kind, "message": sentence(phrases.ending(report))}
        xml.SubElement(case, "error", error).text = _lines(end.traceback)
    elif unexplained:
        words = f"no finding explains {phrases.symptoms(unexplained)}"
        xml.SubElement(case, "failure", {"type": "unexplained", "message": words})
    said = (*report.said, *report.trace.notes, phrases.summary(report))
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
