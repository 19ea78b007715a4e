"""Broken programs: gradscope finds the line, the op, the cause and the kind of fix."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from corpus import (
    KEYS,
    Program,
    clamps_pass_on_at_their_edge,
    diagnosed,
    diagnosed_text,
    programs,
)

from gradscope.facts import Finding, Holds, Refuted, Severity
from gradscope.rules import RULES

# Where a clamp has a gradient at its very edge, which that of torch 2.14 has not.
AT_THE_EDGE = {
    "arcface_margin_in_bfloat16",
    "pitch_angle_clamped_edge",
    "poincare_edge_in_bfloat16",
}
MEANT = set() if clamps_pass_on_at_their_edge() else AT_THE_EDGE
CASES = [one for one in programs("cases") if one.name not in MEANT]
CODES = ("GS1", "GS2", "GS3", "GS4", "GS5")  # what hurts; not hazards, nor our own troubles
CAUSES = frozenset(rule.name for rule in RULES.values() if rule.code[:3] in CODES)
KINDS = frozenset(
    "masked-branch epsilon clip-norm clamp-domain stable-op dtype loss-scaling lower-lr "
    "backward-rewrite guard-empty init data graph".split()
)

# Not right yet: what of a case, and what is said instead. What comes out right fails the test.
KNOWN_GAPS: dict[str, dict[str, str]] = {
    "descent_by_hand_on_raw_columns": {"op": "the last op of the loss, and not of the line"},
    "tiny_audio_in_half": dict.fromkeys(
        ("cause", "fix"), "that the square was flushed to 0 is not said of a mean over it"
    ),
}

# The same where no fix is tried: the first one is not what the trial puts first.
UNTRIED = {"fourth_power_of_revenue": {"fix": "a clamp, which takes the loss to 0"}}

# The same of a first fix that did not survive its trial.
_NUMBER = "the epsilon holds, and its number makes the loss: advice comes before that"
REFUTED = {
    "polar_phase_overflows": {"fix": "the patch gives `polar` the complex dtype as modulus"},
    "orthogonal_basis_rank_deficient": {
        "fix": "a column of zeros has any direction, and the diagonal takes another one"
    },
    "spectrogram_decibel": {"fix": _NUMBER},
    "distance_field_at_its_centre": {
        "fix": "the norm is differentiated twice, and its own second derivative is NaN at 0"
    },
}


# No fix that the program tells of is good: what leads is finite, and said to be no more than that.
NOT_GOOD = frozenset((
    "complex_product_overflows",  # 1e42, which float64 holds
    "contrastive_without_positives",  # 1e37
    "crps_ensemble_of_one",  # 1e6, which was 17
    "diffusion_last_timestep",  # the number that it writes makes the loss
    "determinant_of_large_numbers",  # 1e41, which float64 holds
    "hardest_negative_of_one_class",  # the number that it writes makes the loss
    "label_smoothing_over_banned_tokens",  # the number that it writes makes the loss
    "noisy_or_bag",  # nothing to learn
    "normal_scale_underflows",  # 1e21
    "squashed_action_atanh",  # the number that it writes makes the loss
    "temperature_underflow_logits",  # 1e6, which was 10
    "tiny_audio_in_half",  # half of what float64 gives
    "variance_by_two_moments",  # a hundred times what float64 gives
))  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_root_is_named(case, here):
    first, *others = diagnosed(case, here).findings

    stray = [f for f in others if f.severity is Severity.ERROR and line_of(case, f) is None]
    assert [f"{finding.name}: {finding.message}" for finding in stray] == []
    assert_right(case, first, KNOWN_GAPS | UNTRIED)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_first_fix_has_been_tried(case, here):
    """A fix of the data cannot be tried; every other one that leads must not be refuted."""
    first = diagnosed(case, here, verify=True).findings[0]

    verdict = first.fixes[0].verdict

    assert not isinstance(verdict, Refuted), verdict
    assert isinstance(verdict, Holds) == (case.name in NOT_GOOD), verdict
    assert_right(case, first, KNOWN_GAPS | REFUTED)


def assert_right(case: Program, finding: Finding, gaps: Mapping[str, Mapping[str, str]]) -> None:
    """All that is not a known gap is right, and all that is one is not."""
    wrong, gap = misses(case, finding), gaps.get(case.name, {})

    assert {key: said for key, said in wrong.items() if key not in gap} == {}
    assert set(gap) <= set(wrong), "no longer a gap"
    if gap:
        pytest.xfail("; ".join(f"{key}: {reason}" for key, reason in gap.items()))


def misses(case: Program, finding: Finding) -> dict[str, str]:
    """What the finding says that is not so, by key."""
    said = {
        "symptom": finding.symptoms[0].kind,
        "phase": finding.phase.value,
        "op": finding.op,
        "cause": finding.name,
        "fix": finding.fixes[0].kind if finding.fixes else "none",
    }
    wrong = {
        key: f"{said[key]}, not {' or '.join(case.right[key])}"
        for key in KEYS
        if said[key] not in case.right[key]
    }
    if line_of(case, finding) is None:
        wrong["line"] = f"{finding.location}, not {sorted(case.culprits)}"
    if finding.severity is not Severity.ERROR:
        wrong["severity"] = finding.severity.name
    return wrong


def line_of(case: Program, finding: Finding) -> int | None:
    """The line to blame on which the finding stands."""
    place = finding.location
    if place is None or Path(place.file).name != f"{case.name}.py":
        return None
    return place.line if place.line in case.culprits else None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_truth_is_well_formed(case):
    assert set(case.right) == set(KEYS)
    assert len(case.culprits) == 1 + ("line" in case.reasons)
    assert set(case.right["cause"]) <= CAUSES
    assert set(case.right["fix"]) <= KINDS


@pytest.mark.parametrize(
    "header",
    [
        "# cause: log-zero, underflow",
        "# cause: log-zero\n# also: cause=underflow",
        "# cause: log-zero\n# cause: underflow",
        "# cause: log-zero\n# or cause: underflow",
        "# cause: log-zero\n# or cause: underflow ()",
        "# cause: log-zero\n# or cause: (half)",
        "# cause: log-zero\n# or cause: underflow (half)\n# or cause: zero-division (half)",
    ],
)
def test_a_header_gives_one_answer_or_a_second_with_its_reason(header, tmp_path):
    (tmp_path / "case.py").write_text(f"{header}\nimport torch\n", encoding="utf-8")

    with pytest.raises(ValueError, match=r"case: .*(cause|also)"):
        programs(tmp_path)


def test_every_numeric_cause_has_four_cases():
    numeric = {
        rule.name
        for rule in RULES.values()
        if rule.code[:3] in ("GS1", "GS2", "GS5") and rule.severity is Severity.ERROR
    }
    numeric -= {"index-out-of-range"}  # the op raises: tests/test_raised.py

    cases = programs("cases")
    thin = {cause: sum(cause in case.right["cause"] for case in cases) for cause in numeric}

    assert {cause: count for cause, count in thin.items() if count < 4} == {}


def test_gaps_name_cases():
    assert set(KNOWN_GAPS | UNTRIED | REFUTED) <= {case.name for case in CASES}


def test_a_divisor_that_is_spread_out_is_counted_by_its_own_elements(tmp_path):
    text = (
        "import torch\n"
        "x = torch.ones(4, 6, requires_grad=True)\n"
        "count = torch.tensor([[2.0], [0.0], [1.0], [3.0]])\n"
        "(x / count).sum().backward()\n"
    )
    (finding,) = diagnosed_text(text, tmp_path).findings
    assert finding.message == "`div` divides by `count`, which is 0 at 1 of 4 elements"
