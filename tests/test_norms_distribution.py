"""What max_norm the distribution of total norms asks for, and how rows and lines are drawn."""

import math

import pytest

from gradscope.errors import GradscopeError
from gradscope.facts import Activation, LayerSize
from gradscope.norms.bars import bar, lengths, sparkline
from gradscope.norms.distribution import bounds, describe, percentile
from gradscope.norms.facts import NormOptions, Row
from gradscope.norms.rows import arrange, branches, fitting, fold_layers, p_norm

CALM = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02, 0.98, 1.0, 1.0, 1.01]


def test_one_spike_does_not_move_the_bound():
    calm, spiked = bounds(CALM)[0].value, bounds([*CALM, 1e6])[0].value

    assert calm == pytest.approx(spiked, rel=0.1)
    assert describe([*CALM, 1e6]).spikes == ((11, 1e6),)


def test_a_bound_from_few_steps_says_so():
    assert "from 1 step only" in bounds([5.0])[0].reason
    assert "only" not in bounds(CALM)[0].reason


def test_steps_that_are_not_finite_count_as_spikes_and_in_nothing_else():
    found = describe([1.0, math.nan, 1.0, math.inf])

    assert (found.steps, found.finite, found.median) == (4, 2, 1.0)
    assert [step for step, _ in found.spikes] == [1, 3]
    assert describe([math.nan]) is None


def test_the_steps_that_a_bound_would_clip_are_counted():
    autoclip = next(bound for bound in bounds(CALM) if bound.method == "AutoClip")

    assert autoclip.value == pytest.approx(percentile(CALM, 10))
    assert autoclip.clips == sum(value > autoclip.value for value in CALM)
    assert autoclip.steps == len(CALM)


def test_a_bound_that_is_given_comes_last_with_the_steps_that_it_clips():
    *_, given = bounds([1.0, 2.0, 3.0, math.inf], 1.5)

    assert (given.method, given.value, given.clips, given.steps) == ("given", 1.5, 3, 4)


@pytest.mark.parametrize("max_norm", [0.0, -1.0, math.nan, math.inf])
def test_a_max_norm_that_bounds_nothing_is_refused(max_norm):
    with pytest.raises(GradscopeError, match="max-norm"):
        NormOptions(max_norm)


@pytest.mark.parametrize("p", [0.0, -2.0, math.nan])
def test_a_norm_type_that_is_no_norm_is_refused(p):
    with pytest.raises(GradscopeError, match="norm-type"):
        NormOptions(None, p)


def row(name: str, norm: float) -> Row:
    return Row(name, (2,), "float32", 2, norm, norm, 0, 0)


def test_folding_joins_norms_as_one_vector():
    rows = [row("m.a.weight", 3.0), row("m.a.bias", 4.0), row("m.b.weight", 1.0)]
    folded = arrange(rows, 2.0, 1, "norm")

    assert [(one.name, one.norm) for one in folded] == [("m.a.* (2)", 5.0), ("m.b.weight", 1.0)]
    assert p_norm([3.0, 4.0], 1.0) == 7.0 and p_norm([3.0, 4.0], math.inf) == 4.0


def test_bars_and_sparklines_keep_their_width():
    assert bar(1.0) == "█" * 10 and bar(0.0) == "" and bar(1e-9) == "▏"
    assert bar(0.5, plain=True) == "#####"
    assert sparkline([1.0, 10.0, 100.0, math.nan, 0.0], 10) == "▁▅█! "
    assert len(sparkline([float(n) for n in range(1, 1000)], 60)) <= 60
    assert sparkline([1.0, 100.0], 10, plain=True).isascii()


def test_a_scale_makes_no_growth_of_noise():
    assert sparkline([1.0, 1.01, 0.99], 10) == "▅▅▄"
    calm, wide = lengths([1.0, 0.9, None, 0.0]), lengths([1e-6, 1.0, math.inf, math.nan])

    assert list(map(bar, calm)) == ["█" * 10, "█" * 9 + "▊", "", ""]
    assert list(map(bar, wide)) == ["█", "█" * 10, "!" * 10, "!" * 10]


def test_the_tree_joins_what_a_module_holds_and_no_more_lines_than_it_needs():
    rows = [row("m.a.weight", 3.0), row("m.a.bias", 4.0), row("m.b.weight", 12.0)]
    found = [(one.label, one.indent, one.row.norm) for one in branches(rows, 2.0)]

    assert found == [
        ("m", 0, 13.0), ("a", 1, 5.0), ("weight", 2, 3.0), ("bias", 2, 4.0), ("b.weight", 1, 12.0),
    ]  # fmt: skip


def test_a_tensor_named_like_a_module_leaves_the_rows_flat():
    rows = [row("w", 3.0), row("w.bias", 4.0)]

    assert [one.label for one in branches(rows, 2.0)] == ["w", "w.bias"]


def test_layers_of_one_flat_container_stay_apart():
    layers = [LayerSize(f"net.{at}", "mm", Activation(1.0, 1), 1.0) for at in range(30)]

    assert fitting(layers, 24) == layers


def test_layers_are_folded_as_little_as_makes_them_fit():
    size = Activation(1.0, 1)
    names = ["net.in", "net.block.0.a", "net.block.0.b", "net.block.1.a", "net.block.1.b"]
    layers = [LayerSize(name, "mm", size, 1.0) for name in names]
    line = LayerSize("train.py:3", "mean", size, 1.0, in_module=False)

    assert [one.layer for one in fitting([*layers, line], 4)] == [
        "net.in", "net.block.0", "net.block.1", "train.py:3",
    ]  # fmt: skip
    assert [one.layer for one in fold_layers([*layers, line], 0)] == ["net", "train.py:3"]
