"""What is positive by construction, and of which a constant is subtracted where an op needs what is
above 0."""

import pytest
from corpus import diagnosed_text

HEAD = """import torch
import torch.nn.functional as F

torch.manual_seed(0)
layer = torch.nn.Linear(3, 2)


def head(x):
    a, b = layer(x).chunk(2, -1)
    return {made}, b


def spread(alpha, b):
    return {used}


alpha, b = head(torch.randn(8, 3))
loss = spread(alpha, b).mean() + torch.lgamma(alpha + 0.5).mean()
loss.backward()
"""


def written(made: str, used: str) -> str:
    return HEAD.format(made=made, used=used)


@pytest.mark.parametrize(
    ("made", "used"),
    [
        ("F.softplus(a)", "torch.log(alpha - 1)"),
        ("F.softplus(a)", "b * (alpha.squeeze(-1) - 1 + 1e-6).sqrt()"),
        ("torch.exp(a)", "torch.pow(alpha.sub(1), 1.5)"),
        ("F.relu(a)", "(alpha - 1) ** 1.5"),
        ("F.softplus(a)", "torch.sqrt(b.exp() / (alpha - 1))"),
        ("F.softplus(a)", "torch.log(2 * (b.exp() * (alpha - 1).squeeze(-1)[:, None] + 1e-6))"),
        ("a.square()", "torch.rsqrt(alpha - 1)"),
    ],
)
@pytest.mark.long
def test_the_place_is_where_it_is_made_positive_and_the_patch_lifts_it(made, used, tmp_path):
    found = diagnosed_text(written(made, used), tmp_path, verify=True).findings[0]

    assert found.rule == "GS203" and found.location.line == 10
    assert found.related[-1].location.line == 14
    leading = found.fixes[0]
    assert leading.verified and f"+    return {made} + 1, b\n" in leading.patch


@pytest.mark.parametrize(
    ("made", "used"),
    [
        ("a", "torch.log(torch.exp(alpha) - 1)"),
        ("F.softplus(a)", "torch.log(alpha - b)"),
        ("F.softplus(a)", "torch.log(alpha - 1e-3 - b.square() - 1)"),
        ("torch.sigmoid(a)", "torch.log(alpha - 0.5)"),
        ("torch.sigmoid(40 * a)", "torch.log(1 - alpha - 0.2)"),
        ("torch.tanh(a)", "torch.log(alpha - 1)"),
        ("a.pow(3)", "torch.log(alpha - 1)"),
        ("(x - 3).pow(2)[:, :1] * a.detach()", "torch.log(alpha + b - 1)"),
        ("F.softplus(a)", "torch.acos(alpha - 2)"),
        ("F.softplus(a)", "torch.log(b * (alpha - 1))"),
        ("F.softplus(a)", "torch.sqrt(b / (alpha + 1))"),
    ],
)
def test_what_a_constant_would_not_lift_is_told_where_it_is_used(made, used, tmp_path):
    found = diagnosed_text(written(made, used), tmp_path).findings[0]

    assert found.location.line == 14


@pytest.mark.parametrize(
    ("made", "used"),
    [
        ("F.softplus(a) + 1", "torch.log(alpha - 1)"),
        ("F.softplus(a) + 2", "torch.log(alpha - 1)"),
        ("F.softplus(a)", "torch.log(alpha - 1e-6)"),
        ("F.softplus(a)", "torch.log((alpha - 1).abs() + 1)"),
        ("torch.exp(a.square() + 1e-3)", "torch.log(alpha - 1)"),
    ],
)
def test_what_is_lifted_already_is_right(made, used, tmp_path):
    assert not diagnosed_text(written(made, used), tmp_path).findings


def test_a_logarithm_of_exactly_0(tmp_path):
    text = written("torch.exp(0 * a)", "torch.log(alpha - 1)")
    found = diagnosed_text(text, tmp_path).findings[0]

    assert found.rule == "GS202" and found.location.line == 10
    assert found.fixes[0].title == "keep the result of `exp` above 1"


@pytest.mark.long
def test_of_a_function_for_several_values_one_is_lifted(tmp_path):
    text = written("positive(a)", "torch.log(alpha - 1) + torch.log(positive(b))")
    text = text.replace("def head", "def positive(x):\n    return F.softplus(x)\n\n\ndef head")

    leading = diagnosed_text(text, tmp_path, verify=True).findings[0].fixes[0]

    assert leading.verified and "+    return positive(a) + 1, b\n" in leading.patch
