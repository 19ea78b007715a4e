"""Broken programs: gradscope finds the line, the op, the cause and the kind of fix."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from corpus import KEYS, Program, diagnosed, programs

from gradscope.facts import Finding, Severity
from gradscope.rules import RULES

CASES = programs("cases")
CODES = ("GS1", "GS2", "GS3", "GS4", "GS5")  # what hurts; not hazards, nor our own troubles
CAUSES = frozenset(rule.name for rule in RULES.values() if rule.code[:3] in CODES)
KINDS = frozenset(
    "masked-branch epsilon clip-norm clamp-domain stable-op dtype loss-scaling lower-lr "
    "backward-rewrite guard-empty init data graph".split()
)

# Not right yet, each with what is wrong. An entry that comes out right fails the test.
KNOWN_GAPS: dict[str, str] = {}

# The right diagnosis, and a first fix that did not survive its trial.
REFUTED: dict[str, str] = {}


def marked(case: Program, gaps: dict[str, str] = KNOWN_GAPS) -> ParameterSet:
    gap = gaps.get(case.name)
    marks = [pytest.mark.xfail(reason=gap, strict=True)] if gap else []
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_the_root_is_named(case: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    findings = diagnosed(case, tmp_path).findings

    assert [misses(case, finding) for finding in findings[:1]] == [[]]
    stray = [f for f in findings[1:] if f.severity is Severity.ERROR and not at_culprit(case, f)]
    assert [f"{finding.name}: {finding.message}" for finding in stray] == []


@pytest.mark.slow
@pytest.mark.parametrize("case", [marked(case, KNOWN_GAPS | REFUTED) for case in CASES])
def test_the_first_fix_has_been_tried(
    case: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fix of the data cannot be tried; every other one that leads must not be refuted."""
    monkeypatch.chdir(tmp_path)

    first = diagnosed(case, tmp_path, verify=True).findings[0]

    assert misses(case, first) == []
    assert first.fixes[0].verified is not False, first.fixes[0].verdict


def misses(case: Program, finding: Finding) -> list[str]:
    """What the finding says that is not so, a line each."""
    said = {
        "symptom": {symptom.kind for symptom in finding.symptoms},
        "phase": {finding.phase.value},
        "op": {finding.op},
        "cause": {finding.name},
        "fix": {fix.kind for fix in finding.fixes[:1]},
    }
    wrong = [
        f"{key}: {', '.join(sorted(said[key])) or 'none'}, not {', '.join(sorted(case.right[key]))}"
        for key in KEYS
        if not said[key] & case.right[key]
    ]
    if not at_culprit(case, finding):
        wrong.append(f"line: {finding.location}, not {sorted(case.culprits)}")
    if finding.severity is not Severity.ERROR:
        wrong.append(f"severity: {finding.severity}")
    return wrong


def at_culprit(case: Program, finding: Finding) -> bool:
    """The finding or a call that led to it stands on a line to blame."""
    places = [finding.location, *(r.location for r in finding.related if r.role == "call")]
    file = f"{case.name}.py"
    lines = {place.line for place in places if place and Path(place.file).name == file}
    return bool(lines & case.culprits)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_truth_is_well_formed(case: Program) -> None:
    assert set(case.right) == set(KEYS)
    assert case.culprits
    assert case.right["cause"] <= CAUSES
    assert case.right["fix"] <= KINDS


def test_every_numeric_cause_has_four_cases() -> None:
    numeric = {rule.name for rule in RULES.values() if rule.code[:3] in ("GS1", "GS2", "GS5")}

    thin = {cause: sum(cause in case.right["cause"] for case in CASES) for cause in numeric}

    assert {cause: count for cause, count in thin.items() if count < 4} == {}


def test_gaps_name_cases() -> None:
    assert set(KNOWN_GAPS | REFUTED) <= {case.name for case in CASES}
