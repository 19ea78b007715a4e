"""Reports are valid by the official schemas of their formats, hostile text and all.

The files and where they come from: tests/schemas/README.md.
"""

import json
from pathlib import Path

import jsonschema
import pytest
import report_cases as cases
import xmlschema

from gradscope.facts import Ending, Report, Severity, Summary, Trace
from gradscope.report import FORMATS, Options

SCHEMAS = Path(__file__).parent / "schemas"
SARIF = jsonschema.Draft7Validator(
    json.loads((SCHEMAS / "sarif-2.1.0.json").read_text()),
    format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER,
)
JUNIT = xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")

OPTIONS = Options(width=100, sources=cases.sources)
REPORTS = [cases.full(), cases.healthy(), cases.failed(), cases.hostile()]
DEAD = Report("dead", Trace("dead", ending=Ending("died", "SIGKILL")), ())
SUMMARIES = [
    Summary(()),
    Summary((*REPORTS, DEAD), cases.hostile().findings, ("a remark",)),
]


def rendered(name: str) -> list[str]:
    writer = FORMATS[name]
    return [writer.render(one, OPTIONS) for one in REPORTS] + [
        writer.render_all(one, OPTIONS) for one in SUMMARIES
    ]


@pytest.mark.parametrize("text", rendered("sarif"))
def test_sarif_is_valid(text):
    assert [error.message for error in SARIF.iter_errors(json.loads(text))] == []


@pytest.mark.parametrize("text", rendered("junit"))
def test_junit_is_valid(text):
    assert [error.reason for error in JUNIT.iter_errors(text)] == []


def test_the_validators_refuse_what_is_wrong():
    log = json.loads(FORMATS["sarif"].render(cases.full(), OPTIONS))
    log["runs"][0]["results"][0]["level"] = Severity.ERROR.name
    file = FORMATS["junit"].render(cases.full(), OPTIONS)

    assert not SARIF.is_valid(log)
    assert not JUNIT.is_valid(file.replace("<failure", "<fault").replace("</failure", "</fault"))
    assert not JUNIT.is_valid(file.replace(' failures="', ' failed="'))
