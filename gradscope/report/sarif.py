"""SARIF 2.1.0, for code scanning: https://docs.oasis-open.org/sarif/sarif/v2.1.0/

The chain from birth to symptom is a code flow, patches are fixes. Texts are plain: brackets that
SARIF would read as a link are taken apart.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from gradscope.facts import Edit, Event, Finding, Fix, Location, Related, Report, Summary, Trace
from gradscope.ops.display import spelled
from gradscope.report import closing, sentences, trials
from gradscope.report.printable import sentence
from gradscope.report.rendering import Options, RulePage, Sources
from gradscope.version import __version__

NAME = "sarif"
FOR_PROGRAMS = True

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
FINGERPRINT = "gradscopeFinding/v1"

Value = dict[str, Any]


def render(report: Report, options: Options) -> str:
    return _log(Summary((report,)), _identity(report), options)


def render_all(summary: Summary, options: Options) -> str:
    return _log(summary, {"target": "check", "verdict": summary.verdict}, options)


def _log(summary: Summary, properties: Value, options: Options) -> str:
    """One run with the results of every target; what several of them share is one result."""
    reports = (*summary.reports, Report("check", Trace("check"), summary.findings))
    everything = summary.all_findings
    names = {finding.rule: finding.name for finding in everything}
    codes = list(names)
    results: dict[str, Value] = {}
    for report in reports:
        prints = fingerprints(report.findings, options.sources)
        for finding, digest in zip(report.findings, prints, strict=True):
            result = results.setdefault(digest, _result(finding, codes.index(finding.rule), report))
            result["partialFingerprints"] = {FINGERPRINT: digest}
            targets = result.setdefault("properties", {"targets": []})["targets"]
            targets.append(sentence(report.target))
    run = {
        "tool": {"driver": _driver(names, options)},
        "invocations": [
            _invocation(report) | {"properties": _identity(report)} for report in summary.reports
        ],
        "columnKind": "unicodeCodePoints",
        "results": list(results.values()),
        "properties": properties,
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, allow_nan=False) + "\n"


def _identity(report: Report) -> Value:
    return {
        "target": sentence(report.target),
        "verdict": report.verdict,
        "steps": len(report.trace.steps),
    }


def _driver(names: dict[str, str], options: Options) -> Value:
    return {
        "name": "gradscope",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(code, name, options.page(code)) for code, name in names.items()],
    }


def _rule(code: str, name: str, page: RulePage | None) -> Value:
    command = f"gradscope explain {code}"
    rule = {
        "id": code,
        "name": "".join(word.capitalize() for word in name.split("-")),
        "shortDescription": _message(name.replace("-", " ")),
        "help": _message(command),
        "properties": {"tags": ["gradient", "pytorch", "correctness"], "precision": "high"},
    }
    if page is not None:
        rule["shortDescription"] = _message(page.summary)
        rule["fullDescription"] = _message(page.description)
        rule["help"] = {"text": f"{page.description}\n\n{command}", "markdown": page.markdown}
    return rule


def _result(finding: Finding, index: int, report: Report) -> Value:
    result: Value = {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": finding.severity.value,
        "message": _message(_text(finding)),
        "locations": _culprit(finding, report),
    }
    if finding.related:
        result["relatedLocations"] = [
            _related(number, one) for number, one in enumerate(finding.related)
        ]
    if flow := _flow(finding):
        result["codeFlows"] = [{"threadFlows": [{"locations": flow}]}]
    fixes = [fix for fix in sentences.offered(finding.fixes) if fix.edits]
    if fixes := [fix for fix in fixes if fix.verified is not False]:
        result["fixes"] = [_fix(fix) for fix in fixes]
    return result


def _text(finding: Finding) -> str:
    """Headline, mechanism and the best fix: all that most viewers show of a result."""
    words = [f"{finding.message}. {finding.why}"]
    if fix := sentences.leading(finding):
        words.append(f"Fix ({trials.verdict(fix)}): {fix.title}.")
    return " ".join(words)


def _culprit(finding: Finding, report: Report) -> list[Value]:
    """The finding's place; the file that ran as a whole where the place is not known."""
    if finding.location is not None:
        place = _physical(finding.location)
        logical = _logical(finding.location)
        return [{"physicalLocation": place, **logical}]
    file = report.trace.file
    return [{"physicalLocation": {"artifactLocation": _artifact(file)}}] if file else []


def _related(number: int, one: Related) -> Value:
    words = f"{one.role}: {one.message}" if one.message else one.role
    return {"id": number, "physicalLocation": _physical(one.location), "message": _message(words)}


def _flow(finding: Finding) -> list[Value]:
    """From the birth to the symptom, which is shown where the last event stands."""
    placed = [event for event in sentences.links(finding.chain) if event.blame.location]
    if not placed:
        return []
    flow = [
        _step(order, one, f"{one.kind} at {spelled(one.op)} ({one.phase})")
        for order, one in enumerate(placed)
    ]
    flow[0]["importance"] = "essential"
    if finding.symptoms:
        words = sentences.symptoms(finding.symptoms)
        flow.append(_step(len(flow), placed[-1], words) | {"importance": "essential"})
    return flow


def _step(order: int, event: Event, words: str) -> Value:
    assert event.blame.location is not None
    location = {"physicalLocation": _physical(event.blame.location), "message": _message(words)}
    return {"location": location, "executionOrder": order, "kinds": [event.kind.value]}


def _fix(fix: Fix) -> Value:
    changes = [
        {
            "artifactLocation": _artifact(file),
            "replacements": [_replacement(edit) for edit in fix.edits if edit.file == file],
        }
        for file in dict.fromkeys(edit.file for edit in fix.edits)
    ]
    words = f"{fix.title} ({trials.verdict(fix)})"
    return {"description": _message(words), "artifactChanges": changes}


def _replacement(edit: Edit) -> Value:
    text = edit.text.encode("utf-8", "backslashreplace").decode("utf-8")
    return {"deletedRegion": _region(edit), "insertedContent": {"text": text}}


def _physical(location: Location) -> Value:
    return {"artifactLocation": _artifact(location.file), "region": _region(location)}


def _logical(location: Location) -> Value:
    names = [(location.function, "function"), (location.module, "module")]
    found = [
        {"fullyQualifiedName": sentence(name), "kind": kind}
        for name, kind in names
        if name and name != "<module>"
    ]
    return {"logicalLocations": found} if found else {}


def _artifact(file: str) -> Value:
    path = PurePath(file)
    uri = quote(path.as_posix().encode("utf-8", "surrogatepass"))
    if path.is_absolute():
        return {"uri": f"file://{uri}"}
    return {"uri": uri, "uriBaseId": "%SRCROOT%"}


def _region(span: Location | Edit) -> Value:
    """1-based columns, the end exclusive. An empty span (an insertion) is a region too."""
    last, end = max((span.line, span.col), (span.end_line, span.end_col))
    return {
        "startLine": span.line,
        "startColumn": span.col + 1,
        "endLine": last,
        "endColumn": end + 1,
    }


def _invocation(report: Report) -> Value:
    notes = [("note", note) for note in closing.notes(report)]
    if words := closing.ending(report) or closing.shortfall(report):
        notes.append(("error" if report.verdict == "failed" else "note", words))
    if words := closing.no_cause(report):
        notes.append(("warning", words))
    return {
        "executionSuccessful": report.verdict != "failed",
        "toolExecutionNotifications": [
            {"level": level, "message": _message(words)} for level, words in notes
        ],
    }


def _message(words: str) -> Value:
    return {"text": sentence(words).replace("](", "] (")}


def fingerprints(
    findings: tuple[Finding, ...], sources: Sources, *, named: Callable[[str], str] = str
) -> list[str]:
    """What a finding keeps when lines move: its rule, function, op and the code at its place.
    `named` is what a file is called in it."""
    seen: Counter[str] = Counter()
    found = []
    for finding in findings:
        parts = [finding.rule, finding.op]
        if at := finding.location:
            source = sources(at.file)
            line = source[at.line - 1] if 0 < at.line <= len(source) else ""
            parts += [named(at.file), at.function, at.module or "", " ".join(line.split())]
        text = "\0".join(parts)
        digest = hashlib.sha256(f"{text}\0{seen[text]}".encode("utf-8", "surrogatepass"))
        seen[text] += 1
        found.append(digest.hexdigest()[:32])
    return found
