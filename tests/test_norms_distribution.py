"""What max_norm the distribution of total norms asks for, and how rows and lines are drawn."""

from __future__ import annotations

import math

import pytest

from gradscope.errors import GradscopeError
from gradscope.norms.distribution import bounds, describe, percentile
from gradscope.norms.facts import NormOptions, Row
from gradscope.norms.rows import arrange, p_norm
from gradscope.norms.terminal import bar, sparkline

CALM = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02, 0.98, 1.0, 1.0, 1.01]


def test_one_spike_does_not_move_the_bound() -> None:
    calm, spiked = bounds(CALM)[0].value, bounds([*CALM, 1e6])[0].value

    assert calm == pytest.approx(spiked, rel=0.1)
    assert describe([*CALM, 1e6]).spikes == ((11, 1e6),)


def test_a_bound_from_few_steps_says_so() -> None:
    assert "from 1 step only" in bounds([5.0])[0].reason
    assert "only" not in bounds(CALM)[0].reason


def test_steps_that_are_not_finite_count_as_spikes_and_in_nothing_else() -> None:
    found = describe([1.0, math.nan, 1.0, math.inf])

    assert (found.steps, found.finite, found.median) == (4, 2, 1.0)
    assert [step for step, _ in found.spikes] == [1, 3]
    assert describe([math.nan]) is None


def test_the_share_that_a_bound_would_clip_is_counted() -> None:
    autoclip = next(bound for bound in bounds(CALM) if bound.method == "AutoClip")

    assert autoclip.value == pytest.approx(percentile(CALM, 10))
    assert autoclip.share == sum(value > autoclip.value for value in CALM) / len(CALM)


@pytest.mark.parametrize("max_norm", [0.0, -1.0, math.nan, math.inf])
def test_a_max_norm_that_bounds_nothing_is_refused(max_norm: float) -> None:
    with pytest.raises(GradscopeError, match="max-norm"):
        NormOptions(max_norm)


@pytest.mark.parametrize("p", [0.0, -2.0, math.nan])
def test_a_norm_type_that_is_no_norm_is_refused(p: float) -> None:
    with pytest.raises(GradscopeError, match="norm-type"):
        NormOptions(None, p)


def row(name: str, norm: float) -> Row:
    return Row(name, (2,), "float32", 2, norm, norm, 0, 0)


def test_folding_joins_norms_as_one_vector() -> None:
    rows = [row("m.a.weight", 3.0), row("m.a.bias", 4.0), row("m.b.weight", 1.0)]
    folded = arrange(rows, 2.0, 1, "norm")

    assert [(one.name, one.norm) for one in folded] == [("m.a.* (2)", 5.0), ("m.b.weight", 1.0)]
    assert p_norm([3.0, 4.0], 1.0) == 7.0 and p_norm([3.0, 4.0], math.inf) == 4.0


def test_bars_and_sparklines_keep_their_width() -> None:
    assert bar(1.0) == "█" * 10 and bar(0.0) == "" and bar(1e-9) == "▏"
    assert bar(0.5, plain=True) == "#####"
    assert sparkline([1.0, 10.0, 100.0, math.nan, 0.0], 10) == "▁▅█! "
    assert len(sparkline([float(n) for n in range(1, 1000)], 60)) <= 60
    assert sparkline([1.0, 100.0], 10, plain=True).isascii()
