"""JUnit XML, for the test tab of a CI: a target is a suite, each finding a test case."""

from xml.etree import ElementTree as xml

from gradscope.facts import Finding, Report, Severity, Summary
from gradscope.report import closing, sentences
from gradscope.report.printable import clean, sentence
from gradscope.report.rendering import Options
from gradscope.report.terminal import text_of_finding

NAME = "junit"


def render(report: Report, options: Options) -> str:
    return render_all(Summary((report,)), options)


def render_all(summary: Summary, options: Options) -> str:
    """A suite for each target, and one for what concerns the check as a whole."""
    options = options.for_page()
    suites = [_suite(report, options) for report in summary.reports]
    if summary.findings:
        cases = [_case(finding, "check", options) for finding in summary.findings]
        suites.append(_holding("testsuite", "check", cases, 0.0))
    seconds = sum(report.duration for report in summary.reports)
    root = _holding("testsuites", "gradscope", suites, seconds)
    xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(root, "unicode") + "\n"


def _suite(report: Report, options: Options) -> xml.Element:
    target = sentence(report.target)
    cases = [_run(report, target), *(_case(one, target, options) for one in report.findings)]
    return _holding("testsuite", target, cases, report.duration)


def _holding(tag: str, name: str, inside: list[xml.Element], seconds: float) -> xml.Element:
    """An element around others, with how many cases are in it and what became of them."""
    element = xml.Element(tag, {"name": name})
    element.extend(inside)
    for count, what in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
        element.set(count, str(sum(1 for _ in element.iter(what))))
    element.set("time", f"{seconds:.3f}")
    return element


def _run(report: Report, target: str) -> xml.Element:
    """The run as a whole: an error where the program did not get to its end."""
    case = xml.Element(
        "testcase", {"classname": target, "name": "runs", "time": f"{report.duration:.3f}"}
    )
    if report.verdict == "failed":
        end = report.trace.ending
        error = {"type": end.kind, "message": sentence(closing.ending(report))}
        xml.SubElement(case, "error", error).text = _lines(end.traceback)
    elif words := closing.no_cause(report):
        xml.SubElement(case, "failure", {"type": "unexplained", "message": words})
    remarks = (*report.remarks, *closing.notes(report), closing.summary(report))
    xml.SubElement(case, "system-out").text = _lines("\n".join(sentence(one) for one in remarks))
    return case


def _case(finding: Finding, target: str, options: Options) -> xml.Element:
    """Errors fail; a warning or a note is a case that passes and says what it saw."""
    name = f"{finding.rule} {finding.name}"
    if finding.location is not None:
        name += f" at {sentences.place(finding.location)}"
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
