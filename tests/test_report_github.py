"""GitHub annotations: one command a line, and nothing in a name that becomes another."""

import re
from dataclasses import replace

import pytest
import report_cases as cases

from gradscope.facts import Location

COMMAND = re.compile(r"::(error|warning|notice) ((?:\w+=[^,:\r\n]*,?)+)::([^\r\n]*)")


def test_commands_are_the_reviewed_ones():
    cases.assert_snapshot("full-github.txt", cases.render("github", cases.full()))
    cases.assert_snapshot("failed-github.txt", cases.render("github", cases.failed()))


@pytest.mark.parametrize("name", ["full", "healthy", "failed", "hostile"])
def test_every_line_but_the_last_is_a_command(name):
    *commands, last = cases.render("github", getattr(cases, name)()).splitlines()

    assert all(COMMAND.fullmatch(command) for command in commands)
    assert last.startswith("gradscope: ")


def test_hostile_text_is_escaped():
    first = cases.render("github", cases.hostile()).splitlines()[0]

    assert "%250A" in first  # `%0A` in a name is not a line break
    assert "%3A%3Aerror%3A%3A.py,line=1" in first
    assert first.isprintable()


def test_columns_are_given_only_within_one_line():
    span = Location("a.py", 3, 4, 5, 2, "f")
    report = replace(cases.full(), findings=(replace(cases.not_observed(), location=span),))
    (command, *_) = cases.render("github", report).splitlines()

    assert command.startswith("::notice file=a.py,line=3,endLine=5,title=GS901 not-observed::")


def test_a_refuted_fix_is_not_recommended():
    finding = cases.masked_branch()
    report = replace(cases.full(), findings=(replace(finding, fixes=finding.fixes[:1]),))

    assert "help:" not in cases.render("github", report)
