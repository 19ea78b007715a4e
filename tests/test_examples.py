"""The built-in programs print the numbers that their stories tell, and gradscope agrees."""

import re
import runpy

import pytest
from _pytest.mark import ParameterSet
from corpus import diagnosed_file

from gradscope.examples import EXAMPLES, Example
from gradscope.facts import Severity

# What plain python prints: the reference programs' published numbers.
PRINTED = {
    "gamma_mask_multiply": ["0.0105", "[    nan,  0.1416, -0.0243, -0.0167,  0.0000]"],
    "gamma_mask": ["0.0105", "[    nan,  0.1416, -0.0243, -0.0167,  0.0000]"],
    "gamma_mask_fixed": ["0.0105", "[ 0.0000,  0.1416, -0.0243, -0.0167,  0.0000]"],
    "division_mask": ["loss 1.0", "[nan, 1.]"],
    "division_mask_fixed": ["loss 1.0", "[0., 1.]"],
    "segmentation_edge": ["loss 0.1556", "100.00%"],
    "segmentation_edge_fixed": ["loss 0.1556", " 0.00%"],
    "custom_backward": ["884.2", "3471", "4.777e+10", "1.742e+33", "inf", "nan"],
    "custom_backward_fixed": ["884.2", "0.0824"],
    "clip_norm": ["[198., 216.]", "[ 6075., 16875.]", "17937.5879"],
    "two_branches": ["loss 0.0", "[nan, nan, nan]"],
    "masked_attention": ["query.weight fine", "value.weight nan"],
    "masked_attention_fixed": ["query.weight fine", "value.weight fine"],
}

# Not right yet, each with what is wrong. An entry that comes out right fails the test.
KNOWN_GAPS: dict[str, str] = {}


def marked(example: Example) -> ParameterSet:
    gap = KNOWN_GAPS.get(example.name)
    marks = [pytest.mark.xfail(reason=gap, strict=True)] if gap else []
    return pytest.param(example, id=example.name, marks=marks)


def missing(parts: list[str], text: str) -> list[str]:
    """The parts that do not follow one another in the text, from the first on."""
    place = 0
    for number, part in enumerate(parts):
        place = text.find(part, place)
        if place < 0:
            return parts[number:]
        place += len(part)
    return []


@pytest.mark.parametrize("name", PRINTED)
def test_plain_python_prints_the_known_numbers(name, capsys):
    import torch

    with torch.random.fork_rng(devices=[]):
        runpy.run_path(str(EXAMPLES[name].path), run_name="__main__")

    assert missing(PRINTED[name], capsys.readouterr().out) == []


@pytest.mark.parametrize("example", [marked(example) for example in EXAMPLES.values()])
def test_the_expected_rule_leads(example):
    report = diagnosed_file(example.path)

    loud = [f.name for f in report.findings if f.severity is not Severity.NOTE]
    assert loud[:1] == ([example.expects] if example.expects else [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "example", [e for e in EXAMPLES.values() if e.expects], ids=lambda example: example.name
)
def test_the_fix_that_leads_is_not_refuted(example):
    first = diagnosed_file(example.path, verify=True).findings[0]

    assert first.fixes[0].verified is not False, first.fixes[0].verdict


def test_breaks_late_is_reported_at_its_step():
    first = diagnosed_file(EXAMPLES["breaks_late"].path).findings[0]

    assert first.step == 17


def test_every_repair_has_its_failure():
    repaired = {name for name in EXAMPLES if name.endswith("_fixed")}

    for name in repaired:
        assert EXAMPLES[name].expects is None
    broken = {name.removesuffix("_fixed") for name in repaired}
    assert {name for name in broken if EXAMPLES[name].expects is None} == set()


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=lambda example: example.name)
def test_title_is_one_line_without_a_full_stop(example):
    assert re.fullmatch(r".{10,100}[^.]", example.title)
