"""The report for programs: schema "gradscope/1", described by schema.json in this folder.

Not called json.py, which would hide the standard library's. The text is ASCII, so that no stream's
encoding and no control character of a hostile name can spoil it.
"""

import json
import math
from typing import Any

from gradscope.facts import (
    Environment,
    Event,
    Finding,
    Fix,
    Location,
    Replay,
    Report,
    Share,
    Summary,
    Trace,
    text_of,
)
from gradscope.report import sentences, trials
from gradscope.report.rendering import Options

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
    environment = (*environments, Environment())[0]
    about_all = _document(Report("check", Trace("check", environment=environment)))

    def each(key: str) -> list[dict[str, Any]]:
        """What the targets' own documents list under a key, with the target's name."""
        listed = ((report, one) for report in reports for one in _document(report)[key])
        return [{**one, "target": report.target} for report, one in listed]

    whole = {
        **about_all,
        "verdict": summary.verdict,
        "steps": sum(len(report.trace.steps) for report in reports),
        "runs": sum(report.runs for report in reports),
        "symptoms": each("symptoms"),
        "findings": [*each("findings"), *map(_finding, summary.findings)],
        "not_checked": each("not_checked"),
        "targets": list(map(_outcome, reports)),
    }
    return {key: plain(value) for key, value in whole.items()}


def _outcome(report: Report) -> dict[str, Any]:
    return {
        "target": report.target,
        "verdict": report.verdict,
        "steps": len(report.trace.steps),
        "updates": report.trace.updates,
        "inspected": report.trace.inspected,
        "runs": report.runs,
        "ending": named(report.trace.ending, "kind detail"),
        "findings": len(report.findings),
        "accepted": report.accepted,
        "remarks": [*report.remarks, *report.trace.notes],
    }


def document(report: Report) -> dict[str, Any]:
    """The report as plain values, in the order in which they are written."""
    return {key: plain(value) for key, value in _document(report).items()}


def _document(report: Report) -> dict[str, Any]:
    """The same before `plain`: numbers may be infinite, words may be enums."""
    trace = report.trace
    values = {
        "schema": SCHEMA,
        "target": report.target,
        "verdict": report.verdict,
        "steps": len(trace.steps),
        "environment": named(trace.environment, "torch python device"),
        "symptoms": [
            named(one, "kind step tensor bad numel first_index") for one in trace.symptoms
        ],
        "findings": list(map(_finding, report.findings)),
        "not_checked": [named(one, "what why") for one in report.not_checked],
        "updates": trace.updates,
        "inspected": trace.inspected,
        "unexamined": named(trace.unexamined, "step since subject only_compiled")
        if trace.unexamined
        else None,
        "runs": report.runs,
        "replay": _replay(report.replay) if report.replay else None,
    }
    if report.ranks is not None:
        values["rank"] = report.ranks.rank
        values["ranks"] = list(map(_share, report.ranks.all))
    if report.verdict in ("failed", "incomplete"):  # and nothing else says why
        values["ending"] = named(trace.ending, "kind detail")
    return values


def named(value: object, names: str) -> dict[str, Any]:
    """The attributes of an object that have the same names in the document."""
    return {name: getattr(value, name) for name in names.split()}


def _replay(replay: Replay) -> dict[str, Any]:
    return {"from": replay.origin, **named(replay, "step steps identical hurdle")}


def _share(share: Share) -> dict[str, Any]:
    place = {"location": _location(share.location)}
    return {**named(share, "rank fate step rule detail"), **place}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        **named(finding, "rule name severity phase step op node"),
        "location": _location(finding.location),
        "related": [
            {"role": one.role, "location": _location(one.location), "message": one.message}
            for one in finding.related
        ],
        **named(finding, "message why evidence"),
        "chain": list(map(_link, finding.chain)),
        "fixes": list(map(_fix, sentences.offered(finding.fixes))),
    }


def _location(location: Location | None) -> dict[str, Any] | None:
    if location is None:
        return None
    return named(location, "file line col end_line end_col function module")


def _link(event: Event) -> dict[str, Any]:
    place = {"location": _location(event.blame.location)}
    link = named(event, "kind op phase") | place
    if event.branches:
        link["branches"] = [
            {"op": one.op, "location": _location(one.location)} for one in event.branches
        ]
    return link


def _fix(fix: Fix) -> dict[str, Any]:
    return {
        **named(fix, "kind title patch verified"),
        "verdict": trials.sentence(fix),
        "safety": fix.safety,
    }


def plain(value: object) -> object:
    """What JSON can hold: non-finite numbers as strings, no lone surrogates, no other types."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else text_of(value)
        case dict():
            return {str(plain(str(key))): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return str(value).encode("utf-8", "backslashreplace").decode("utf-8")
