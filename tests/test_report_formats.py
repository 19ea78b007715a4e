"""What holds for every format, found by walking the package as a new one would be."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import report_cases as cases

from gradscope.errors import GradscopeError
from gradscope.facts import Finding, NotChecked, Operand, Phase, Report, Severity, Trace
from gradscope.report import FORMATS, by_name
from gradscope.rules import RULES

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ["full", "healthy", "failed", "hostile"]


def test_the_formats_are_these():
    assert set(FORMATS) == {"terminal", "json", "sarif", "junit", "github", "markdown", "html"}


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_found_by_its_name(name):
    assert FORMATS[name].name == name


def test_an_unknown_format_is_refused_with_the_known_ones():
    with pytest.raises(GradscopeError, match="unknown format yaml") as raised:
        by_name("yaml")

    assert "terminal" in raised.value.help


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("name", FORMATS)
def test_text_ends_in_one_newline_and_holds_nothing_to_obey(name, report):
    text = cases.render(name, getattr(cases, report)(), sources=cases.hostile_sources)

    assert text.endswith("\n") and not text.endswith("\n\n")
    assert {character for character in text if not character.isprintable()} == {"\n"}


@pytest.mark.parametrize("name", FORMATS)
def test_rendering_twice_gives_the_same_text(name):
    first, second = (cases.render(name, cases.full(), sources=cases.sources) for _ in range(2))

    assert first == second


@pytest.mark.parametrize("name", FORMATS)
def test_a_report_of_the_barest_facts_renders(name):
    bare = Finding(
        "GS102", "singular-derivative", Severity.ERROR, Phase.BACKWARD, 0, "sqrt", "", "",
        tensors=(Operand("self"),),
    )  # fmt: skip

    assert "GS102" in cases.render(name, Report("", Trace(""), (bare,)))


@pytest.mark.parametrize("name", FORMATS)
def test_what_was_not_seen_is_said_by_its_finding_alone(name):
    trace = Trace("t", notes=("the ops of CUDA graphs were not observed",))
    told = Report("t", trace, tuple(RULES["GS902"].check(trace, ())))
    without = replace(told, trace=replace(trace, notes=()))

    assert cases.render(name, told) == cases.render(name, without)


@pytest.mark.parametrize("name", FORMATS)
def test_what_was_left_out_is_said_with_why(name):
    trace = Trace("t", not_checked=(NotChecked("the backward of Scan", "6.5 million elements"),))
    report = Report("t", trace, not_searched=(NotChecked("other patches", "5 seconds were up"),))

    text = cases.render(name, report)

    for part in ("the backward of Scan", "6.5 million elements", "other patches", "5 seconds"):
        assert part in text


@pytest.mark.parametrize("name", FORMATS)
def test_a_refuted_patch_is_shown_by_none_but_json(name):
    text = cases.render(name, cases.full(), sources=cases.sources)

    assert ("clamp_min(1e-3)" in text) is (name == "json")


@pytest.mark.parametrize("name", FORMATS)
def test_the_users_file_is_read_from_disk(name, here):
    Path("gamma_loss.py").write_text(cases.GAMMA)
    only = replace(cases.full(), findings=(replace(cases.masked_branch(), fixes=()),))

    assert cases.render(name, only) == cases.render(name, only, sources=cases.sources)


def test_reports_never_import_torch():
    code = "import sys, gradscope.report; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


ORDERS = ("::error file=a.py::it was me", "  ::stop-commands::x", "a ##[error]b", "##vso[task.x]y")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", FORMATS)
def test_what_a_program_says_is_no_command_in_the_log_of_a_ci_run(name, order):
    said = f"first\n{order}\r{order}\x0b{order}\u2028{order}"
    finding = replace(cases.full().findings[0], message=order, why=said, label=order)
    trace = replace(cases.failed().trace, notes=(said,))
    ending = replace(trace.ending, detail=said, traceback=said)
    report = Report(order, replace(trace, ending=ending), (finding,), (said,))

    text = cases.render(name, report, sources=lambda file: [order] * 20)

    ours = (
        re.compile(r"::(error|warning|notice) (file=[^:]*,)?title=") if name == "github" else None
    )
    commands = [line for line in text.splitlines() if line.lstrip().startswith("::")]
    assert [line for line in commands if ours is None or not ours.match(line)] == []
    if name not in ("github", "json", "sarif"):
        assert "##[" not in text and "##vso[" not in text
