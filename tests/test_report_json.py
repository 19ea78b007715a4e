"""The JSON report: the contract, and the schema that describes it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import report_cases as cases

from gradscope.facts import Report
from gradscope.report.json_document import document

SCHEMA = json.loads(
    Path(__file__).resolve().parent.parent.joinpath("gradscope/report/schema.json").read_text()
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def loaded(report: Report) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    result: dict[str, Any] = json.loads(cases.render("json", report), parse_constant=refuse)
    return result


def test_document_is_the_reviewed_one():
    full = cases.full()
    few = replace(full, trace=replace(full.trace, symptoms=full.trace.symptoms[:2]))

    cases.assert_snapshot("full.json", cases.render("json", few))


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", ["full", "healthy", "failed", "hostile"])
def test_every_document_fulfils_the_schema(name):
    VALIDATOR.validate(loaded(getattr(cases, name)()))


@pytest.mark.parametrize(
    "path, value",
    [
        ((), {"extra": 1}),
        (("findings", 0, "location"), {"line": 0}),
        (("findings", 0, "fixes", 0), {"verified": "yes"}),
        (("findings", 0), {"severity": "fatal"}),
        (("findings", 0, "evidence"), {"slope": "infinite"}),
        (("symptoms", 0), {"kind": "bad"}),
    ],
)
def test_the_schema_refuses_what_the_contract_does_not_say(path, value):
    broken: Any = document(cases.full())
    part = broken
    for key in path:
        part = part[key]
    part.update(value)

    assert not VALIDATOR.is_valid(broken)


def test_a_program_that_failed_has_its_reason():
    assert loaded(cases.failed())["ending"] == {
        "kind": "raised",
        "detail": "ValueError: expected 3 channels, got 4",
    }
    assert "ending" not in loaded(cases.healthy())


def test_keys_come_in_the_order_of_the_contract():
    whole = loaded(cases.full())
    first = whole["findings"][0]

    assert list(whole) == [
        "schema", "target", "verdict", "steps", "environment", "symptoms", "findings",
        "not_checked", "updates", "inspected", "unexamined", "runs", "replay",
    ]  # fmt: skip
    assert list(first) == [
        "rule", "name", "severity", "phase", "step", "op", "node", "location", "related",
        "message", "why", "evidence", "chain", "fixes",
    ]  # fmt: skip
    assert list(first["location"]) == [
        "file", "line", "col", "end_line", "end_col", "function", "module",
    ]  # fmt: skip
    assert list(first["fixes"][0]) == [
        "kind", "title", "patch", "verified", "verdict", "safety",
    ]  # fmt: skip


def test_numbers_that_are_not_finite_are_strings():
    finding = replace(
        cases.masked_branch(),
        evidence={"slope": float("-inf"), "operands": {"self": float("nan")}, "grad_output": 0.0},
    )
    report = replace(cases.full(), findings=(finding,))

    assert loaded(report)["findings"][0]["evidence"] == {
        "slope": "-inf",
        "operands": {"self": "nan"},
        "grad_output": 0.0,
    }


def test_a_verified_fix_leads_and_a_refuted_one_comes_last():
    fixes = loaded(cases.full())["findings"][0]["fixes"]

    assert [fix["verified"] for fix in fixes] == [True, False]


def test_a_name_that_is_not_unicode_survives():
    report = replace(cases.healthy(), target="loss\udcff.py")

    assert loaded(report)["target"] == "loss\\udcff.py"


def test_the_text_is_ascii_and_holds_no_control_characters():
    text = cases.render("json", cases.hostile())

    assert text.isascii()
    assert {character for character in text if not character.isprintable()} == {"\n"}
