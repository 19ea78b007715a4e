"""The report for programs: schema "gradscope/1", described by schema.json in this folder.

Not called json.py, which would hide the standard library's. The text is ASCII, so that no stream's
encoding and no control character of a hostile name can spoil it.
"""

from __future__ import annotations

import json
import math
from functools import cache
from importlib import resources
from typing import Any

from gradscope.facts import (
    Environment,
    Event,
    Finding,
    Fix,
    Location,
    NotChecked,
    Related,
    Report,
    Summary,
    Symptom,
    Trace,
    Unexamined,
    text_of,
)
from gradscope.report import phrases, trials
from gradscope.report.options import Options

NAME = "json"
FOR_PROGRAMS = True

SCHEMA = "gradscope/1"


def render(report: Report, options: Options) -> str:
    return json.dumps(document(report), indent=2, allow_nan=False) + "\n"


def render_all(summary: Summary, options: Options) -> str:
    return json.dumps(document_of_all(summary), indent=2, allow_nan=False) + "\n"


def document_of_all(summary: Summary) -> dict[str, Any]:
    """One document for several targets: findings and symptoms say which target they are of."""
    reports = summary.reports
    environments = [one.trace.environment for one in reports if one.trace.environment.torch]
    values = document(
        Report("check", Trace("check", environment=(*environments, Environment())[0]))
    )
    findings = [
        _plain({**_finding(finding), "target": report.target})
        for report in reports
        for finding in report.findings
    ]
    return {
        **values,
        "verdict": summary.verdict,
        "steps": sum(len(report.trace.steps) for report in reports),
        "runs": sum(report.runs for report in reports),
        "symptoms": [
            _plain({**_symptom(one), "target": report.target})
            for report in reports
            for one in report.trace.symptoms
        ],
        "findings": [*findings, *(_plain(_finding(finding)) for finding in summary.findings)],
        "not_checked": [
            _plain({**_not_checked(one), "target": report.target})
            for report in reports
            for one in report.not_checked
        ],
        "targets": [_plain(_outcome(report)) for report in reports],
    }


def _outcome(report: Report) -> dict[str, Any]:
    return {
        "target": report.target,
        "verdict": report.verdict,
        "steps": len(report.trace.steps),
        "updates": report.trace.updates,
        "inspected": report.trace.inspected,
        "runs": report.runs,
        "ending": _ending(report),
        "findings": len(report.findings),
        "accepted": report.accepted,
        "remarks": [*report.said, *report.trace.notes],
    }


def document(report: Report) -> dict[str, Any]:
    """The report as plain values, in the order in which they are written."""
    trace = report.trace
    values = {
        "schema": SCHEMA,
        "target": report.target,
        "verdict": report.verdict,
        "steps": len(trace.steps),
        "environment": {
            "torch": trace.environment.torch,
            "python": trace.environment.python,
            "device": trace.environment.device,
        },
        "symptoms": [_symptom(one) for one in trace.symptoms],
        "findings": [_finding(one) for one in report.findings],
        "not_checked": [_not_checked(one) for one in report.not_checked],
        "updates": trace.updates,
        "inspected": trace.inspected,
        "unexamined": _unexamined(trace.unexamined),
        "runs": report.runs,
    }
    if report.verdict in ("failed", "incomplete"):  # and nothing else says why
        values["ending"] = _ending(report)
    safe = _plain(values)
    assert isinstance(safe, dict)
    return safe


def _ending(report: Report) -> dict[str, str]:
    return {"kind": report.trace.ending.kind, "detail": report.trace.ending.detail}


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) that every document fulfils."""
    text = resources.files(__package__).joinpath("schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "name": finding.name,
        "severity": finding.severity.value,
        "phase": finding.phase.value,
        "step": finding.step,
        "op": finding.op,
        "node": finding.node,
        "location": _location(finding.location),
        "related": [_related(one) for one in finding.related],
        "message": finding.message,
        "why": finding.why,
        "evidence": finding.evidence,
        "chain": [_link(event) for event in finding.chain],
        "fixes": [_fix(fix) for fix in phrases.offered(finding.fixes)],
    }


def _location(location: Location | None) -> dict[str, Any] | None:
    if location is None:
        return None
    return {
        "file": location.file,
        "line": location.line,
        "col": location.col,
        "end_line": location.end_line,
        "end_col": location.end_col,
        "function": location.function,
        "module": location.module,
    }


def _related(one: Related) -> dict[str, Any]:
    return {"role": one.role, "location": _location(one.location), "message": one.message}


def _link(event: Event) -> dict[str, Any]:
    link: dict[str, Any] = {
        "kind": event.kind.value,
        "op": event.op,
        "phase": event.phase.value,
        "location": _location(event.blame.location),
    }
    if event.branches:
        branches = [{"op": one.op, "location": _location(one.location)} for one in event.branches]
        link["branches"] = branches
    return link


def _fix(fix: Fix) -> dict[str, Any]:
    return {
        "kind": fix.kind,
        "title": fix.title,
        "patch": fix.patch,
        "verified": fix.verified,
        "verdict": trials.sentence(fix),
        "safety": fix.safety,
    }


def _symptom(one: Symptom) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "step": one.step,
        "tensor": one.tensor,
        "bad": one.bad,
        "numel": one.numel,
        "first_index": list(one.first_index),
    }


def _unexamined(one: Unexamined | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {"step": one.step, "since": one.since, "subject": one.subject}


def _not_checked(one: NotChecked) -> dict[str, Any]:
    return {"what": one.what, "why": one.why}


def _plain(value: object) -> object:
    """What JSON can hold: non-finite numbers as strings, no lone surrogates, no other types."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else text_of(value)
        case dict():
            return {str(_plain(str(key))): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return str(value).encode("utf-8", "backslashreplace").decode("utf-8")
