"""SARIF: the reviewed log, and the parts of the standard that code scanning insists on."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import report_cases as cases

from gradscope import __version__
from gradscope.facts import Edit, Finding, Location, Report
from gradscope.report.rendering import RulePage

REPORTS = ["full", "healthy", "failed", "hostile"]


def loaded(report: Report, sources: Any = cases.sources) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(cases.render("sarif", report, sources=sources))
    return result


def run(report: Report, sources: Any = cases.sources) -> dict[str, Any]:
    (only,) = loaded(report, sources)["runs"]
    return dict(only)


def of(finding: Finding) -> dict[str, Any]:
    (result,) = run(replace(cases.full(), findings=(finding,)))["results"]
    return dict(result)


def parts(value: object, key: str) -> Iterator[Any]:
    """Every value that stands below that key, at any depth."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name == key:
                yield item
            yield from parts(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from parts(item, key)


def test_log_is_the_reviewed_one():
    text = cases.render("sarif", cases.full(), sources=cases.sources)

    cases.assert_snapshot("full.sarif", text.replace(__version__, "VERSION"))


@pytest.mark.parametrize("name", REPORTS)
def test_what_the_standard_requires_is_there(name):
    log = loaded(getattr(cases, name)())
    (only,) = log["runs"]
    rules = only["tool"]["driver"]["rules"]

    assert log["version"] == "2.1.0"
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result in only["results"]:
        assert result["message"]["text"]
        assert result["level"] in ("error", "warning", "note", "none")
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    for flow in parts(log, "codeFlows"):
        assert all(thread["locations"] for one in flow for thread in one["threadFlows"])
    for message in parts(log, "message"):
        assert set(message) == {"text"}


@pytest.mark.parametrize("name", REPORTS)
def test_regions_are_1_based_and_never_end_before_they_start(name):
    for region in parts(loaded(getattr(cases, name)()), "region"):
        start = region["startLine"], region["startColumn"]

        assert min(start) >= 1
        assert (region["endLine"], region["endColumn"]) >= start


@pytest.mark.parametrize("name", REPORTS)
def test_files_are_uris(name):
    for artifact in parts(loaded(getattr(cases, name)()), "artifactLocation"):
        assert re.fullmatch(r"[A-Za-z0-9._~/%-]+|file:///[A-Za-z0-9._~/%-]+", artifact["uri"])


def test_a_file_outside_of_the_folder_is_an_absolute_uri():
    location = Location("/srv/my loss.py", 1, 0, 1, 4, "f")
    artifact = of(replace(cases.not_observed(), location=location))["locations"][0]

    assert artifact["physicalLocation"]["artifactLocation"] == {"uri": "file:///srv/my%20loss.py"}


def test_the_code_flow_leads_from_the_birth_to_the_symptom():
    (thread,) = of(cases.singular_derivative())["codeFlows"][0]["threadFlows"]
    told = [step["location"]["message"]["text"] for step in thread["locations"]]

    assert told[0] == "birth at sqrt (backward)"
    assert told[-1].startswith("embed.0.weight.grad is NaN")
    assert [step["executionOrder"] for step in thread["locations"]] == list(range(len(told)))


def test_the_columns_are_those_of_the_span():
    region = of(cases.masked_branch())["locations"][0]["physicalLocation"]["region"]
    line = cases.sources("gamma_loss.py")[region["startLine"] - 1]

    assert line[region["startColumn"] - 1 : region["endColumn"] - 1] == "x ** 0.5"


def test_a_fingerprint_stays_when_lines_move_and_changes_with_the_code():
    def fingerprint(finding: Finding, above: int, text: str) -> str:
        location = Location("a.py", above + 1, 0, above + 1, 4, "f")
        report = replace(cases.full(), findings=(replace(finding, location=location),))
        (result,) = run(report, lambda file: [""] * above + [text])["results"]
        return str(result["partialFingerprints"]["gradscopeFinding/v1"])

    first = fingerprint(cases.masked_branch(), 0, "x ** 0.5")

    assert fingerprint(cases.masked_branch(), 7, "    x ** 0.5") == first
    assert fingerprint(cases.masked_branch(), 0, "x ** 0.25") != first
    assert fingerprint(cases.singular_derivative(), 0, "x ** 0.5") != first


def test_equal_findings_on_one_line_have_their_own_fingerprints():
    twice = replace(cases.full(), findings=(cases.masked_branch(), cases.masked_branch()))
    prints = [one["partialFingerprints"]["gradscopeFinding/v1"] for one in run(twice)["results"]]

    assert len(set(prints)) == 2


def test_edits_become_fixes_unless_they_were_refuted():
    edit = Edit("gamma_loss.py", 6, 39, 6, 47, "torch.where(dark, 1.0, x) ** 0.5")
    finding = cases.masked_branch()
    fixes = tuple(replace(fix, edits=(edit,)) for fix in finding.fixes)

    (fix,) = of(replace(finding, fixes=fixes))["fixes"]
    (replacement,) = fix["artifactChanges"][0]["replacements"]

    assert fix["description"]["text"].startswith("give the power a harmless base")
    assert replacement["deletedRegion"] == {
        "startLine": 6, "startColumn": 40, "endLine": 6, "endColumn": 48,
    }  # fmt: skip
    assert replacement["insertedContent"]["text"] == edit.text


def test_a_run_that_failed_is_said_to_have():
    (invocation,) = run(cases.failed())["invocations"]

    assert invocation["executionSuccessful"] is False
    assert [one["level"] for one in invocation["toolExecutionNotifications"]] == ["error"]


def test_no_text_is_read_as_a_link():
    for message in parts(loaded(cases.hostile()), "text"):
        assert "](" not in message


def test_a_rule_has_its_whole_page():
    page = RulePage("a loss", "Finds a loss.", "# GS101\n\n## What it does\n\nFinds a loss.")
    text = cases.render("sarif", cases.full(), sources=cases.sources, page=lambda code: page)
    rule = json.loads(text)["runs"][0]["tool"]["driver"]["rules"][0]

    assert rule["fullDescription"] == {"text": "Finds a loss."}
    assert rule["help"]["markdown"] == page.markdown
    assert rule["properties"]["precision"] == "high"
