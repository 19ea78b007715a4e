"""The pages of the rules: complete, well-formed, and right when their code is run."""

import ast
import re
from pathlib import Path

import pytest

from gradscope.diagnose import diagnose
from gradscope.errors import GradscopeError
from gradscope.facts import Finding, Severity
from gradscope.rules import RULES, Rule, by_name
from gradscope.rules.pages import SECTIONS, sections, summary

ABOUT_US = "GS9"
WITH_CODE = [rule for code, rule in RULES.items() if not code.startswith(ABOUT_US)]
ENDS = ("GS505",)  # its example raises
# These judge one step by what its values were; the others need measurements over several steps.
BY_VALUE = [
    rule
    for rule in WITH_CODE
    if rule.code.startswith(("GS1", "GS2", "GS5")) and rule.code not in ENDS
]


def snippet(rule: Rule, heading: str) -> str:
    """The Python code under one heading ("Example", "Use instead"); empty where it has none."""
    found = re.search(r"```python\n(.*?)```", sections(rule).get(heading, ""), flags=re.DOTALL)
    return found[1] if found else ""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Finding, ...]]:
    """What each rule's Example leads to: code -> findings."""
    folder = tmp_path_factory.mktemp("examples")
    return {rule.code: traced(snippet(rule, "Example"), folder) for rule in BY_VALUE}


def traced(source: str, folder: Path) -> tuple[Finding, ...]:
    """The findings about a script, run in a child process that shares our import of torch."""
    from gradscope.programs import parse_target, run

    file = folder / "snippet.py"
    file.write_text(source)
    seen = run(parse_target(str(file)), silent=True)

    assert seen.ending.kind in ("finished", "stopped"), seen.ending
    assert seen.steps, "no backward pass was seen"
    return tuple(finding for finding in diagnose(seen) if finding.severity is not Severity.NOTE)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_every_page_speaks_in_one_voice(rule):
    assert sections(rule)["What it does"].startswith("Finds ")


@pytest.mark.parametrize("rule", BY_VALUE, ids=lambda rule: rule.name)
@pytest.mark.long
def test_the_example_fires_this_rule_alone(rule, found):
    assert [finding.rule for finding in found[rule.code]] == [rule.code]


@pytest.mark.parametrize("rule", BY_VALUE, ids=lambda rule: rule.name)
def test_what_to_use_instead_is_silent(rule, tmp_path):
    assert traced(snippet(rule, "Use instead"), tmp_path) == ()


@pytest.mark.parametrize("rule", BY_VALUE, ids=lambda rule: rule.name)
def test_a_finding_says_what_where_why_and_help(rule, found):
    (finding,) = found[rule.code]
    text = " ".join((finding.message, finding.why, finding.label, *finding.numbers))

    assert finding.location is not None
    assert re.search(r"\d", finding.message), "a headline has a count"
    assert 0 < len(finding.label) < 70
    assert not re.search(r"\b(try|use|should|please|consider)\b", finding.message)
    assert "None" not in text and "{" not in text
    assert 2 <= len(re.findall(r"[.:;] ", finding.why + " ")) <= 8
    assert finding.fixes
    assert {"index", "operands", "bad", "numel"} <= finding.evidence.keys()


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_a_page_has_its_sections(rule):
    wanted = [head for head in SECTIONS if rule in WITH_CODE or "xample" not in head]
    if rule not in WITH_CODE:
        wanted.remove("Use instead")

    found = [head for head in sections(rule) if head in SECTIONS]

    assert found == wanted
    assert all(sections(rule).values())


@pytest.mark.parametrize("rule", WITH_CODE, ids=lambda rule: rule.name)
def test_snippets_are_whole_programs(rule):
    for heading in ("Example", "Use instead"):
        code = snippet(rule, heading)

        assert "backward" in code
        assert ast.parse(code)
        assert max(map(len, code.splitlines())) <= 88


def test_a_page_is_found_by_code_and_by_name():
    assert by_name("gs201") is by_name("Zero-Division") is RULES["GS201"]


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(GradscopeError, match="unknown rule log-zeros") as raised:
        by_name("log-zeros")

    assert "GS202 log-zero" in raised.value.help


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_a_rule_is_told_in_one_line(rule):
    assert 10 < len(summary(rule)) < 150
    assert "\n" not in summary(rule)
