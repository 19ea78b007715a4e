"""JUnit XML: the reviewed file, and what CI systems read from it."""

from xml.etree import ElementTree as xml

import pytest
import report_cases as cases

from gradscope.facts import Report

REPORTS = ["full", "healthy", "failed", "hostile"]

# The elements and attributes of the format as Jenkins describes it, as far as we use it.
KNOWN = {
    "testsuites": {"name", "tests", "failures", "errors", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testcase": {"name", "classname", "time"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "system-out": set(),
}


def parsed(report: Report) -> xml.Element:
    return xml.fromstring(cases.render("junit", report, sources=cases.sources).encode())


def test_file_is_the_reviewed_one():
    cases.assert_snapshot("full.xml", cases.render("junit", cases.full(), sources=cases.sources))


@pytest.mark.parametrize("name", REPORTS)
def test_only_elements_and_attributes_of_the_format_are_used(name):
    for element in parsed(getattr(cases, name)()).iter():
        assert set(element.attrib) <= KNOWN[element.tag]


@pytest.mark.parametrize("name", REPORTS)
def test_counts_agree_with_the_cases(name):
    root = parsed(getattr(cases, name)())
    for suite in (root, root[0]):
        assert int(suite.get("tests", "")) == len(root.findall(".//testcase"))
        assert int(suite.get("failures", "")) == len(root.findall(".//failure"))
        assert int(suite.get("errors", "")) == len(root.findall(".//error"))


def test_errors_fail_and_warnings_pass():
    failed = {
        case.get("name", "").split()[0]: case.find("failure") is not None
        for case in parsed(cases.full()).iter("testcase")
    }

    assert failed == {"runs": False, "GS101": True, "GS102": True, "GS601": False, "GS901": False}


def test_a_program_that_raised_is_an_error_with_its_traceback():
    error = parsed(cases.failed()).find(".//error")

    assert error.text is not None
    assert error.get("message") == ("the program raised ValueError: expected 3 channels, got 4")
    assert "line 3, in <module>" in error.text


def test_a_healthy_run_is_one_case_that_passes():
    (case,) = parsed(cases.healthy()).iter("testcase")

    assert [child.tag for child in case] == ["system-out"]


def test_hostile_text_stays_text():
    root = parsed(cases.hostile())

    assert root.find(".//script") is None
    assert all(
        character.isprintable() or character == "\n" for character in "".join(root.itertext())
    )
