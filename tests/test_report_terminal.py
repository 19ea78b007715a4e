"""The report on a terminal: whole pages at two widths, and what may go wrong with a frame."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
import report_cases as cases
from rich.cells import cell_len

from gradscope.errors import ExitCode
from gradscope.facts import Ending, Finding, Location, Operand, Related, Report, Severity, Trace
from gradscope.pipeline import exit_code
from gradscope.report import Options
from gradscope.report.diffs import changes, numbered
from gradscope.report.frames import frame, gutter_of, marks
from gradscope.report.printable import clean, plain, wrap

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
REPORTS = {"full": cases.full(), "healthy": cases.healthy(), "failed": cases.failed()}


def shown(report: Report, width: int = 80, **options: object) -> str:
    return cases.render("terminal", report, width=width, **{"sources": cases.sources, **options})


def framed(source: str, finding: Finding, width: int = 80, encoding: str = "utf-8") -> list[str]:
    """The code frame of a finding in a file of that source, without its header."""
    options = Options(width, encoding=encoding, sources=lambda file: source.split("\n"))
    found = marks(finding)
    return [plain(line) for line in frame(found, gutter_of(found), options)][1:]


def at(line: int, col: int, end_col: int, label: str = "here", end_line: int = 0) -> Finding:
    location = Location("a.py", line, col, end_line or line, end_col, "f")
    return replace(cases.not_observed(), location=location, label=label)


def test_an_exception_that_prints_a_tensor_is_cut_in_its_middle():
    report = cases.failed()
    long = "Traceback:\n" + "\n".join(f"[{row}]" for row in range(100)) + "\nValueError: no"
    ending = replace(report.trace.ending, traceback=long)

    text = shown(replace(report, trace=replace(report.trace, ending=ending)))

    assert "    [13]\n    ... 72 more lines\n    [86]\n" in text
    assert "    ValueError: no\n" in text


def test_a_death_is_told_with_its_signal_where_its_place_is_known():
    place = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>'
    ending = Ending("died", "Segmentation fault (SIGSEGV)", -11, place)
    text = shown(Report("t", Trace("t", ending=ending), ()))

    assert "error: the program died: Segmentation fault (SIGSEGV)" in text


def test_a_limit_on_memory_is_told_with_what_the_program_raised():
    detail = "MemoryError: 2 GB (memory limit 300 MiB)"
    ending = Ending("raised", detail, 1, "MemoryError: 2 GB", memory_limited=True)

    text = shown(Report("t", Trace("t", ending=ending), ()))

    assert f"error: the program raised {detail}" in text


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", REPORTS)
def test_page_is_the_reviewed_one(name, width):
    cases.assert_snapshot(f"{name}-{width}.txt", shown(REPORTS[name], width))


def test_coloured_page_is_the_reviewed_one():
    cases.assert_snapshot("full-80-color.txt", shown(cases.full(), color=True))


@pytest.mark.parametrize("width", range(40, 201, 8))
@pytest.mark.parametrize("name", REPORTS)
def test_no_line_is_wider_than_the_terminal(name, width):
    lines = shown(REPORTS[name], width).splitlines()

    assert [line for line in lines if cell_len(line) > width] == []


@pytest.mark.parametrize("width", [40, 80, 200])
def test_colour_adds_nothing_but_colour(width):
    coloured = shown(cases.full(), width, color=True)
    bare = "\n".join(line.rstrip() for line in ESCAPES.sub("", coloured).split("\n"))

    assert coloured != bare
    assert bare == shown(cases.full(), width)


def test_colour_is_the_callers_choice_and_not_the_environments(monkeypatch):
    coloured = shown(cases.healthy(), color=True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")

    assert shown(cases.healthy(), color=True) == coloured


@pytest.mark.parametrize("color", [False, True])
def test_nothing_of_a_hostile_name_is_obeyed(color):
    page = shown(cases.hostile(), color=color, sources=cases.hostile_sources)
    printed = ESCAPES.sub("", page) if color else page

    assert "alert(1)" in printed
    assert {character for character in printed if not character.isprintable()} == {"\n"}


def test_what_the_stream_cannot_encode_is_spelled_out():
    finding = replace(at(1, 0, 1), message="grad of `\u03bb` is NaN")
    report = replace(cases.healthy(), findings=(finding,))
    page = shown(report, encoding="ascii", sources=lambda file: ["\u03bb = x"])

    assert "1 | \\u03bb = x" in page
    assert "  | ^^^^^^ here" in page
    assert "grad of `\\u03bb` is NaN" in page
    assert page.isascii()


def test_tabs_and_wide_characters_keep_the_carets_below_their_span():
    source = "\tn = '\u6f22\u5b57' + x.log()"
    start = source.index("x.log")

    assert framed(source, at(1, start, start + 7)) == [
        "  |",
        "1 |     n = '\u6f22\u5b57' + x.log()",
        "  |                  ^^^^^^^ here",
        "  |",
    ]


def test_a_control_character_in_the_source_keeps_the_carets_below_their_span():
    assert framed("s = '\x1b[2J'; x.log()", at(1, 12, 19))[1:3] == [
        "1 | s = '\\x1b[2J'; x.log()",
        "  |                ^^^^^^^ here",
    ]


def test_a_long_line_is_cut_around_its_span():
    source = "y = " + " + ".join(f"term{n}" for n in range(40)) + " + x.log() + " + "z" * 60
    start = source.index("x.log")
    line, carets = framed(source, at(1, start, start + 7), width=60)[1:3]

    assert len(line) <= 60
    assert line[4:7] == "..." and line.endswith("...")
    assert line[carets.index("^") : carets.rindex("^") + 1] == "x.log()"


def test_a_span_over_lines_is_marked_on_each():
    source = "y = torch.where(\n    m,\n    x.log(),\n)"

    assert framed(source, at(1, 4, 1, end_line=4)) == [
        "  |",
        "1 | y = torch.where(",
        "  |     ^^^^^^^^^^^^",
        "2 |     m,",
        "  |     ^^",
        "3 |     x.log(),",
        "  |     ^^^^^^^^",
        "4 | )",
        "  | ^ here",
        "  |",
    ]


def test_near_lines_are_shown_and_far_ones_left_out():
    source = "\n".join(f"line{n}" for n in range(1, 21))
    finding = at(2, 0, 5, "culprit")
    related = tuple(
        Related("mask", Location("a.py", n, 0, n, 5, "f"), f"place {n}") for n in (4, 12)
    )

    assert framed(source, replace(finding, related=related)) == [
        "   |",
        " 1 | line1",
        " 2 | line2",
        "   | ^^^^^ culprit",
        " 3 | line3",
        " 4 | line4",
        "   | ----- place 4",
        "...",
        "12 | line12",
        "   | ----- place 12",
        "   |",
    ]


@pytest.mark.parametrize("line, col, end_col", [(1, 0, 0), (1, 50, 60), (9, 0, 4), (1, 3, 1)])
def test_a_span_that_the_source_no_longer_has_does_no_harm(line, col, end_col):
    page = framed("x = 1", at(line, col, end_col))

    assert len(page) >= 2
    assert all(len(text) < 20 for text in page)


def test_a_place_without_source_keeps_its_words():
    related = (Related("mask", Location("b.py", 3, 4, 3, 9, "g"), "hides it"),)
    page = shown(
        replace(cases.healthy(), findings=(replace(at(7, 2, 9, "slope is inf"), related=related),)),
        sources=lambda file: (),
    )

    assert " --> a.py:7:3, in f\n  = slope is inf\n  = b.py:3:5, in g: hides it\n" in page


def test_a_line_of_a_library_is_named_and_not_framed():
    page = shown(replace(cases.full(), findings=(cases.singular_derivative(),)))

    assert "= inside: torch/functional.py:431:16 in norm: `sqrt` runs here" in page
    assert "site-packages" not in page
    assert "431 |" not in page


def test_a_label_that_does_not_fit_behind_its_carets_goes_below_them():
    label = "slope is inf where its input is 0"

    assert framed("y = a + b + c.sqrt()", at(1, 12, 20, label), width=40)[2:4] == [
        "  |             ^^^^^^^^",
        "  |    slope is inf where its input is 0",
    ]


def test_a_tensor_that_is_read_twice_is_listed_once():
    weight = Operand("weight", "conv.weight", (4,), "torch.float32", "cpu", 4, nan=1)
    finding = replace(cases.not_observed(), tensors=(weight, replace(weight, role="other")))

    assert shown(replace(cases.healthy(), findings=(finding,))).count("conv.weight") == 1


def test_a_tensor_without_a_finite_element_has_no_range():
    name = "a_name_that_leaves_no_room_for_a_table"
    tensor = Operand("self", name, (4,), "torch.float32", "cpu", 4, nan=4)
    finding = replace(cases.not_observed(), tensors=(tensor,))
    page = shown(replace(cases.healthy(), findings=(finding,)), 70)

    assert f"      {name} [4] float32 cpu\n        4 of 4 (100 %) bad\n" in page


def test_a_symptom_that_nothing_explains_is_said():
    full = cases.full()
    assert "no finding explains x.grad is NaN" in shown(replace(full, findings=full.findings[1:]))
    unknown = replace(full, findings=(), trace=replace(full.trace, ending=Ending("finished")))
    assert "no rule knows why: x.grad is NaN" in shown(unknown)
    assert (unknown.verdict, exit_code(unknown, Severity.ERROR)) == ("unhealthy", ExitCode.FINDINGS)


def test_a_run_without_backward_is_not_called_healthy():
    report = cases.healthy()
    page = shown(replace(report, trace=replace(report.trace, steps=())))

    assert "not judged: no backward pass ran" in page
    assert "healthy" not in page


def test_a_removed_line_that_looks_like_a_header_is_a_line():
    patch = "--- a/q.sql\n+++ b/q.sql\n@@ -3,2 +3,2 @@\n--- drop\n+-- keep\n x\n"

    assert [(one.sign, one.number, one.text) for one in changes(patch)] == [
        ("-", 3, "-- drop"),
        ("+", 3, "-- keep"),
        (" ", 4, "x"),
    ]


def test_a_patch_of_two_files_names_each():
    patch = "".join(
        f"--- a/{file}\n+++ b/{file}\n@@ -{line} +{line} @@\n-old\n+new\n"
        for file, line in (("one.py", 3), ("two.py", 9))
    )
    lines = [plain(line) for line in numbered(patch, 1, Options())]

    assert lines == [
        "  |", "3 | - old", "3 | + new", " ::: two.py", "9 | - old", "9 | + new", "  |",
    ]  # fmt: skip


def test_words_longer_than_the_line_are_cut():
    assert wrap("ab cdefghij kl", 4) == ["ab", "cdef", "ghij", "kl"]
    assert wrap("\u6f22\u5b57\u6f22", 4) == ["\u6f22\u5b57", "\u6f22"]
    assert wrap("half (20 %)", 9) == ["half", "(20 %)"]


def test_text_is_cleaned_of_all_that_does_not_print():
    assert clean("a\tb\x9b\u202e\ud800\xa0") == r"a\tb\x9b\u202e\ud800\xa0"
    assert clean("caf\xe9 \u6f22", "latin-1") == "caf\xe9 \\u6f22"


class Terminal(io.StringIO):
    encoding = "ascii"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "stream, environ, color",
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": "", "TERM": "xterm"}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour_follows_the_stream(stream, environ, color):
    assert Options.fitting(stream, environ).color is color


def test_width_and_encoding_follow_the_stream():
    assert Options.fitting(io.StringIO(), {}).width == 80
    assert Options.fitting(io.StringIO(), {"COLUMNS": "123"}).width == 123
    assert Options.fitting(io.StringIO(), {"COLUMNS": "7"}).width == 40
    assert Options.fitting(Terminal(), {}).encoding == "ascii"


def test_places_are_links_where_a_terminal_knows_them():
    linked = cases.render("terminal", cases.full(), color=True, links=True)
    plain = cases.render("terminal", cases.full(), color=True)

    where = Path("train.py").absolute().as_uri()
    assert re.search(rf"\x1b\]8;id=\d+;{where}\x1b", linked)
    assert "\x1b]8;" not in plain
    assert re.sub(r"\x1b\]8;[^\x1b]*\x1b\\", "", linked) == plain
