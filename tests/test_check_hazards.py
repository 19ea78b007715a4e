"""Hazards: warnings in runs that are still healthy, and silence elsewhere."""

from pathlib import Path

import pytest
from apart import forgiving
from corpus import programs
from test_rule_docs import snippet

from gradscope.diagnose import diagnose
from gradscope.facts import Finding, Severity
from gradscope.programs import RunOptions, parse_target, run
from gradscope.rules import RULES

HAZARDS = [rule for rule in RULES.values() if rule.of_hazards]


def findings(source: str, folder: Path) -> tuple[Finding, ...]:
    file = folder / "program.py"
    file.write_text(source)
    with forgiving():
        seen = run(parse_target(str(file)), RunOptions(hazards=True), silent=True)

    assert seen.steps and not seen.symptoms
    return diagnose(seen)


@pytest.mark.parametrize("rule", HAZARDS, ids=lambda rule: rule.name)
def test_the_example_warns_and_its_repair_does_not(rule, tmp_path):
    found = findings(snippet(rule, "Example"), tmp_path)
    after = findings(snippet(rule, "Use instead"), tmp_path)

    (finding,) = [one for one in found if one.rule == rule.code]
    assert finding.severity is Severity.WARNING
    assert finding.location is not None
    assert rule.code not in {one.rule for one in after}


def test_the_mask_and_the_hidden_op_are_named(tmp_path):
    finding, *_ = findings(snippet(RULES["GS601"], "Example"), tmp_path)

    assert finding.message == (
        "`add` gives inf at 1 of 2 elements, which `clamp` hides from the loss"
    )
    assert [one.role for one in finding.related] == ["mask"]
    assert finding.evidence["operands"] == {"self": 60000.0, "other": 30000.0}


@pytest.mark.parametrize(
    "loss",
    [
        "(x + 3e4).detach().clamp(max=5e4).float().sum() + x.float().sum()",  # no gradient there
        "x.float().sum(); metric = (x + 3e4).clamp(max=5e4)",  # not on the way to the loss
        "x.masked_fill(x > 10, -torch.inf).exp().float().sum()",  # meant
    ],
)
def test_what_no_gradient_passes_is_silent(tmp_path, loss):
    source = (
        "import torch\n"
        "x = torch.tensor([1.0, 6e4], dtype=torch.float16, requires_grad=True)\n"
        f"loss = {loss}\n"
        "loss.backward()\n"
    )

    assert "GS601" not in {finding.rule for finding in findings(source, tmp_path)}


def about(code: str, loss: str, folder: Path, values: str = "[1.0, 1e-20, 0.5]") -> list[Finding]:
    source = (
        "import torch\n"
        f"x = torch.tensor({values}, requires_grad=True)\n"
        "half = x.half()\n"
        f"loss = {loss}\n"
        "loss.backward()\n"
    )
    return [finding for finding in findings(source, folder) if finding.rule == code]


@pytest.mark.parametrize(
    ("loss", "values", "margin"),
    [
        ("x.sqrt().sum()", "[1.0, 1e-20]", 1e-20),
        ("x.log().sum()", "[1.0, 1e-20]", 1e-20),
        ("(1 / (x + 1e-6)).sum()", "[1.0, 1e-9 - 1e-6]", 1e-9),  # an epsilon added to a minus
        ("(1 - x).log().sum()", "[0.5, 1 - 6e-8]", 5.96e-8),
        ("(2 / x.clamp(min=0)).sum()", "[1.0, 1e-10]", 1e-10),
        ("(x / (x - 1)).sum()", "[0.5, 1 + 1.2e-7]", 1.19e-7),
        ("x.acos().sum()", "[0.5, 1 - 6e-8]", 5.96e-8),
        ("x.pow(-0.5).sum()", "[0.5, 1e-15]", 1e-15),
        ("x.clone().sqrt_().sum()", "[1.0, 1e-20]", 1e-20),
    ],
)
def test_an_operand_near_its_singular_point_is_told_with_its_margin(tmp_path, loss, values, margin):
    (finding,) = about("GS602", loss, tmp_path, values)

    assert finding.evidence["margin"] == pytest.approx(margin, rel=0.02)
    assert finding.location.line == 4
    assert "unguarded (1 of 2 elements)" in finding.message


@pytest.mark.parametrize(
    "loss",
    [
        "(x + 1e-12).sqrt().sum()",
        "(x.clamp_min(1e-30) / 2).log().sum()",
        "(2 / (x.square() + 1e-20).sqrt()).sum()",
        "(1 / (x + 1e-12)).sum()",
        "torch.where(x > 1e-9, x, 1.0).log().sum()",
        "x.clamp(-1 + 1e-7, 1 - 1e-7).acos().sum()",
        "torch.nn.functional.normalize(x * 1e-9, dim=0).sum()",
        "(3 / x.detach()).sum() + x.sum()",  # no gradient moves it
        "x.sum(); metric = x.log()",  # not on the way to the loss
        "x.logit(1e-6).sum()",
        "x.pow(2).sum() + x.pow(1.5).sum() + x.pow(0).sum()",
    ],
)
def test_a_guarded_operand_is_silent(tmp_path, loss):
    assert about("GS602", loss, tmp_path) == []


# Matrices, with what is said of them. ROOM is ordinary; SINGULAR has rank 1 but for rounding.
ROOM = "[[2.0, 0.5], [0.5, 1.0]]"
SINGULAR = "[[1.0, 2.0], [2.0, 4.0000005]]"


@pytest.mark.parametrize(
    ("loss", "values", "says"),
    [
        ("x.inverse().mean()", SINGULAR, "the matrix of `inv` comes within"),
        ("torch.linalg.solve(x, torch.ones(2)).mean()", SINGULAR, "the matrix of `solve`"),
        ("torch.linalg.slogdet(x)[1]", SINGULAR, "the matrix of `slogdet`"),
        ("torch.linalg.cholesky(x).sum()", SINGULAR, "the matrix of `cholesky`"),
        (
            "torch.linalg.eigh(x)[1].sum()",
            "[[1.0, 6e-8], [6e-8, 1.0]]",
            "two eigenvalues of `eigh`",
        ),
        (
            "torch.linalg.svd(x)[0].sum()",
            "[[1.0, 0], [0, 1.0000001]]",
            "two singular values of `svd`",
        ),
    ],
)
def test_a_matrix_near_a_degenerate_one_is_told(tmp_path, loss, values, says):
    (finding,) = about("GS602", loss, tmp_path, values)

    assert finding.message.startswith(says)
    assert 0 < finding.evidence["margin"] < finding.evidence["reach"] < 1e-6


@pytest.mark.parametrize(
    ("loss", "values"),
    [
        ("x.inverse().mean() + torch.linalg.slogdet(x)[1]", ROOM),
        ("torch.linalg.cholesky(x).sum() + torch.linalg.eigh(x)[1].sum()", ROOM),
        ("(x + 1e-7 * torch.eye(2)).inverse().mean()", SINGULAR),  # a choice was made
        ("torch.linalg.eigh(x)[0].square().sum()", "[[1.0, 6e-8], [6e-8, 1.0]]"),  # values alone
        ("torch.linalg.inv(x.detach()).sum() + x.sum()", SINGULAR),
    ],
)
def test_a_matrix_with_room_or_a_guard_is_silent(tmp_path, loss, values):
    assert about("GS602", loss, tmp_path, values) == []


def test_a_pair_is_measured_from_the_origin(tmp_path):
    (finding,) = about("GS602", "torch.atan2(x, x.flip(0) * 2).sum()", tmp_path, "[3e-12, 2e-12]")

    assert finding.message == (
        "the point of `atan2` comes within 5e-12 of the origin, unguarded (2 of 2 elements)"
    )
    assert about("GS602", "torch.atan2(x, x.flip(0)).sum()", tmp_path, "[1e-20, 1.0]") == []


def test_a_power_counts_where_its_exponent_is_below_1(tmp_path):
    near = "x.pow(torch.tensor([0.5, 2.0])).sum()"

    assert about("GS602", near, tmp_path, "[1.0, 1e-20]") == []
    (finding,) = about("GS602", near, tmp_path, "[1e-20, 1.0]")
    assert finding.evidence["margin"] == pytest.approx(1e-20)


def test_the_slope_of_a_norm_is_near_its_end_only_where_it_is_a_divisor(tmp_path):
    assert about("GS602", "x.norm()", tmp_path, "[1e-12, 1e-12]") == []
    (finding,) = about("GS602", "(x / x.norm()).sum()", tmp_path, "[1e-12, 1e-12]")
    assert finding.op == "div"


HEALTHY = {program.name: program for program in programs("healthy")}
# Hidden for good, or just inside the range: true, and worth a warning.
TRUE = {
    "isolated_nodes_not_gathered": ["GS601"],
    "large_but_finite_half": ["GS603"],
    "mean_of_empty_nodes_unread": ["GS601"],
    "padding_embedding_divided_by_zero": ["GS601"],
}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.long
def test_healthy_programs_have_few_hazards_and_true_ones(name, here):
    found = findings(HEALTHY[name].source, here)

    hazards = [one.rule for one in found if one.rule.startswith("GS6")]
    assert hazards == TRUE.get(name, [])


def test_the_nearest_are_told_first_and_few(tmp_path):
    loss = "sum((\n" + "\n".join(f"(x * 1e-{n}).log().sum()," for n in range(5)) + "\n))"

    found = about("GS602", loss, tmp_path)

    assert [finding.location and finding.location.line for finding in found] == [9, 8, 7]


def test_half_precision_is_told_of_at_both_ends(tmp_path):
    (high,) = about("GS603", "(half * 4).float().sum()", tmp_path, "[1.0, 1e4]")
    (low,) = about("GS603", "(half * 1e-4).float().sum()", tmp_path, "[0.1, 0.2]")

    assert (high.evidence["margin"], high.evidence["near"]) == (pytest.approx(1.6376), 1)
    assert "all is subnormal (2 of 2 elements)" in low.message
    assert about("GS603", "(half * 2).float().sum()", tmp_path, "[1e-5, 1e3]") == []


def test_a_trace_does_not_measure_margins(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(snippet(RULES["GS602"], "Example"))

    seen = run(parse_target(str(file)), silent=True)

    assert seen.approaches == seen.headroom == ()
