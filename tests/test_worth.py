"""A fix is verified if its values are good to train with; what is merely finite holds, but."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from corpus import diagnosed_text

from gradscope.facts import (
    Cause,
    Disturbs,
    Effects,
    Finding,
    Follows,
    Gradient,
    GradientMove,
    Holds,
    HugeElements,
    HugeGradient,
    HugeLoss,
    Leaf,
    LossMove,
    Magnitudes,
    Move,
    NothingToLearn,
    NumberDecides,
    OffTruth,
    Phase,
    Severity,
    Step,
    Trace,
    Truth,
    Verified,
)
from gradscope.repair.compare import Seen
from gradscope.repair.worth import gone_on, is_sound, may_be_decided, undecided, weighed

NAN = float("nan")
VERIFIED = Verified(Effects())


def seen(*losses: float, gradient: tuple[float, ...] = (1.0, 2.0), norms=()) -> Trace:
    """A run with these losses; `gradient` is that of the last step, `norms` those of all steps."""
    finite = [value for value in gradient if abs(value) < float("inf")]
    bad = len(gradient) - len(finite)
    one = Gradient("x", (len(gradient),), len(gradient), bad, sum(finite), str(gradient), gradient)
    leaf = Leaf("x", (2,), "float32", 2, "parameter", True, 1.0, tuple(norms))
    return Trace(
        "",
        steps=tuple(Step(index, loss, 0.1, 9) for index, loss in enumerate(losses)),
        gradients=(one,),
        magnitudes=Magnitudes((leaf,) if norms else ()),
    )


def but(before: Trace, after: Trace, exact: Trace | None = None, kind: str = "epsilon"):
    found = weighed(VERIFIED, before, after, len(before.steps) - 1, exact, kind)
    return found.but if isinstance(found, Holds) else None


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # Beside what other steps had, or without any.
        (seen(0.5, 0.7, NAN), seen(0.5, 0.7, 123.9), HugeLoss(0.5)),
        # Not beside those that had begun to grow.
        (seen(0.5, 0.7, 2e6, NAN), seen(0.5, 0.7, 2e6, 1e7), HugeLoss(0.7)),
        (seen(0.5, 0.7, NAN), seen(0.5, 0.7, 9.9), None),
        (seen(50.0, NAN), seen(50.0, 123.9), None),
        (seen(0.7), seen(123.9), HugeLoss(0.7)),
        (seen(NAN), seen(-1e9), HugeLoss(None)),
        (seen(NAN), seen(123.9), None),
        (seen(1.0, NAN, norms=(3.0, 0.0)), seen(1.0, 1.0, gradient=(2e21,)), HugeGradient(3.0)),
        (seen(1.0, NAN, norms=(3.0, 0.0)), seen(1.0, 1.0, gradient=(90.0,)), None),
        # Beside the elements that were finite.
        (
            seen(1.0, gradient=(NAN, 0.5)),
            seen(1.0, gradient=(1e8, 0.5)),
            HugeElements("x", 2e8),
        ),
        (seen(1.0, gradient=(NAN, 0.5)), seen(1.0, gradient=(1e4, 0.5)), None),
        # Nothing is left to learn of what a mask keeps out of the loss, and at its minimum.
        (seen(NAN, gradient=(NAN,)), seen(1.0, gradient=(0.0,)), NothingToLearn()),
        (seen(NAN, gradient=(NAN,)), seen(0.0, gradient=(0.0,)), None),
        (seen(1.0, gradient=(NAN,)), seen(1.0, gradient=(0.0,)), None),
    ],
)
def test_values_of_another_size_are_not_good(before: Trace, after: Trace, expected: object):
    assert but(before, after) == expected


def test_elements_beside_which_all_others_are_0_but_for_rounding_are_not_huge():
    def run(healed: float, query: float) -> Trace:
        leaves = {"key": (healed, 1e-9), "query": (query, query)}
        found = [(name, seen(1.0, gradient=one).gradients[0]) for name, one in leaves.items()]
        gradients = tuple(replace(one, name=name) for name, one in found)
        return replace(seen(1.0), gradients=gradients)

    assert but(run(NAN, 0.03), run(0.1, 0.03)) is None
    assert isinstance(but(run(NAN, 1e-9), run(1e3, 1e-9)), HugeElements)


@pytest.mark.parametrize(
    ("after", "met", "off"),
    [
        (seen(100.16, gradient=(-0.5, 0.1)), True, False),
        (seen(100.10, gradient=(-0.5, 0.1)), True, False),
        (seen(99.5, gradient=(-0.48, 0.1)), False, False),
        (seen(98.0, gradient=(-0.45, 0.1)), False, True),
        (seen(13.97, gradient=(-0.5, 0.1)), False, True),
        (seen(100.16, gradient=(0.0, 0.0)), False, True),
    ],
)
def test_what_float64_gives_is_the_judge(after: Trace, met: bool, off: bool):
    exact = seen(100.16, gradient=(-0.5, 0.1))
    found = weighed(VERIFIED, seen(float("inf")), after, 0, exact, "epsilon")

    assert found.effects.truth is not None and found.effects.truth.is_met is met
    assert (found.but if isinstance(found, Holds) else None) == (OffTruth() if off else None)


def test_a_parameter_that_a_quotient_leaves_without_a_gradient_is_told():
    before, after = seen(NAN, gradient=(NAN, NAN)), seen(0.5, gradient=(0.0, 0.0))

    for of_quotient, expected in (
        (True, Holds(VERIFIED.effects, NothingToLearn("x"))),
        (False, VERIFIED),
    ):
        found = weighed(VERIFIED, before, after, 0, None, "guard-empty", of_quotient=of_quotient)
        assert found == expected


@pytest.mark.parametrize("at_pole", [False, True])
def test_behind_a_bound_at_a_pole_a_loss_of_0_is_no_minimum(at_pole):
    before, after = seen(NAN, gradient=(NAN,)), seen(0.0, gradient=(0.0,))

    found = weighed(VERIFIED, before, after, 0, None, "epsilon", at_pole=at_pole)

    assert found == (Holds(VERIFIED.effects, NothingToLearn()) if at_pole else VERIFIED)


def test_a_loss_and_gradients_that_are_0_but_for_rounding_are_the_true_ones():
    exact, after = seen(9e-15, gradient=(7e-15,)), seen(2.5e-6, gradient=(0.0,))

    found = weighed(VERIFIED, seen(NAN), after, 0, exact, "stable-op")

    assert isinstance(found, Verified) and found.effects.truth is not None
    assert found.effects.truth.is_met


def test_half_precision_leaves_fewer_digits_to_judge_by():
    after, exact = seen(98.0, gradient=(-0.45, 0.1)), seen(100.16, gradient=(-0.5, 0.1))
    found = weighed(VERIFIED, seen(NAN), after, 0, exact, "epsilon", in_half=True)

    assert isinstance(found, Verified)


def test_a_form_that_computes_the_same_may_give_a_large_loss():
    assert but(seen(0.5, NAN), seen(0.5, 619.9), kind="stable-op") is None
    assert but(seen(0.5, NAN), seen(0.5, 619.9)) == HugeLoss(0.5)


@pytest.mark.parametrize(("wider", "decided"), [(4.2, True), (4.57, False)])
def test_what_a_number_alone_decides_is_not_verified(wider: float, decided: bool):
    found = undecided(VERIFIED, seen(4.58), seen(wider), 0)

    assert (found.but if isinstance(found, Holds) else None) == (
        NumberDecides(wider) if decided else None
    )
    assert isinstance(undecided(VERIFIED, seen(4.58), seen(4.57), 0, share=1 / 32), Holds)
    # Where other terms make most of the loss, and where it is large by itself.
    assert isinstance(undecided(VERIFIED, seen(214.5), seen(209.7), 0), Holds)
    assert undecided(VERIFIED, seen(1e6), seen(1e6 + 500), 0) == VERIFIED
    assert may_be_decided(seen(NAN), 0, "epsilon")
    assert may_be_decided(seen(NAN), 0, "guard-empty")
    assert not may_be_decided(seen(0.5), 0, "epsilon")  # the loss does not depend on it
    assert not may_be_decided(seen(NAN), 0, "stable-op")


def test_numbers_that_all_stand_for_0_decide_nothing():
    assert undecided(VERIFIED, seen(1.4e-3), seen(4.5e-3), 0) == VERIFIED


@pytest.mark.parametrize(
    ("move", "disturbs"),
    [
        (LossMove(0, 1e-6), False),
        (LossMove(0, 0.1), True),
        (GradientMove("x", 0.01), False),
        (GradientMove("x", None), False),
        (GradientMove("x", 1.5), True),
    ],
)
def test_what_stands_in_for_a_few_elements_moves_no_others(move: Move, disturbs: bool):
    verdict = Verified(Effects(moves=(move,)))
    found = weighed(verdict, seen(1.0, NAN), seen(1.0, 1.0), 1, None, "masked-branch")
    assert found == (Holds(verdict.effects, Disturbs(move)) if disturbs else verdict)


@pytest.mark.parametrize(("loss", "but"), [(0.6, None), (0.02, OffTruth())])
def test_a_loss_in_float64_is_a_judge_though_its_gradients_break(loss: float, but: object):
    exact = seen(0.5, 0.6, gradient=(NAN, 2.0))

    found = weighed(VERIFIED, seen(0.5, NAN), seen(0.5, loss), 1, exact, "epsilon")

    assert found.effects.truth == Truth(0.6, None, False)
    assert (found.but if isinstance(found, Holds) else None) == but


def test_a_loss_that_is_0_but_for_rounding_is_the_truth():
    found = weighed(VERIFIED, seen(NAN), seen(0.0), 0, seen(7.2e-8), "stable-op")

    assert isinstance(found, Verified) and found.effects.truth.is_met


@pytest.mark.parametrize(
    ("exact", "sound"),
    [
        (seen(0.5, 0.6, gradient=(3.0, 2.0)), True),
        (seen(0.5, 0.6, gradient=(NAN, 2.0)), True),  # of the loss alone
        (seen(0.9, 0.6, gradient=(3.0, 2.0)), False),  # another run
        (seen(0.5, 0.6, gradient=(3.0, 9.0)), False),
        (seen(0.5, 1e9, gradient=(3.0, 2.0)), False),  # 0 but for rounding, inverted
        (seen(0.5, 0.6, gradient=(1e15, 2.0)), False),
        (seen(0.5), False),
    ],
)
def test_float64_is_a_judge_where_it_shows_the_same_run_in_good_health(exact: Trace, sound: bool):
    assert is_sound(seen(0.5, NAN, gradient=(NAN, 2.0)), exact, 1) is sound


def test_gradients_behind_an_infinite_loss_are_none_of_the_run():
    """The slope of log(1 + inf) is 0."""
    assert is_sound(
        seen(0.5, float("inf"), gradient=(0.0, 2.0)), seen(0.5, 0.6, gradient=(3.0, 2.9)), 1
    )


@pytest.mark.parametrize(("left", "sound"), [(0.0, True), (1e-60, False), (1e-30, True)])
def test_float64_is_no_judge_where_its_gradient_is_below_what_float32_holds(left, sound):
    exact = seen(0.5, 0.6, gradient=(left, 0.0))

    assert is_sound(seen(0.5, NAN, gradient=(NAN, NAN)), exact, 1) is sound


def finding(step: int, name: str) -> Finding:
    return Finding("GS2", name, Severity.ERROR, Phase.FORWARD, step, "mul", "", "")


@pytest.mark.parametrize(
    ("ahead", "findings", "expected"),
    [
        (seen(0.5, 0.6, 0.5, 0.4), (), None),
        (seen(0.5, 0.6, 0.5, 300.0), (), Follows(3, loss=300.0)),
        (seen(0.5, 0.6, 0.5, norms=(1.0, 1.0, 9e6)), (), Follows(2, norm=9e6)),
        (
            seen(0.5, 0.6, NAN),
            (finding(2, "overflow"),),
            Follows(2, Cause("GS2", "overflow")),
        ),
        (seen(0.5, 0.6, NAN), (finding(2, "zero-division"),), None),  # it came anyway
    ],
)
def test_training_goes_on(ahead: Trace, findings: tuple[Finding, ...], expected: object):
    found = gone_on(VERIFIED, seen(0.5, NAN), Seen(ahead, findings), 1)

    assert (found.but if isinstance(found, Holds) else None) == expected


SATURATED = """
import torch
z = torch.tensor([-100.0, 2.0], requires_grad=True)
loss = -torch.sigmoid(z).clamp(max=1.0).log().mean()
loss.backward()
"""


@pytest.mark.long
def test_a_bound_that_loses_the_true_value_is_not_verified(tmp_path: Path):
    fixes = diagnosed_text(SATURATED, tmp_path, verify=True).findings[0].fixes
    tried = [fix.verdict for fix in fixes if isinstance(fix.verdict, Verified | Holds)]

    assert {round(one.effects.truth.loss, 3) for one in tried} == {50.063}
    assert tried and all(one.effects.truth.is_met == isinstance(one, Verified) for one in tried)


def freed() -> object:
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


def wrapped() -> object:
    held: list[torch.Tensor] = []
    torch.func.grad(lambda x: (held.append(x), x.sum())[1])(torch.ones(3))
    return held


@pytest.mark.parametrize("made", [freed, wrapped])
@pytest.mark.long
def test_a_tensor_without_memory_of_its_own_does_not_keep_a_run_from_float64(made, tmp_path: Path):
    """It lives in the process that the run is forked from."""
    held = made()
    fixes = diagnosed_text(SATURATED, tmp_path, verify=True).findings[0].fixes
    tried = [fix.verdict for fix in fixes if isinstance(fix.verdict, Verified | Holds)]

    assert held is not None and {round(one.effects.truth.loss, 3) for one in tried} == {50.063}


CANCELLED = """
import torch
scale = torch.tensor(1.0, requires_grad=True)
density = scale * torch.tensor([[0.3, 0.2, 0.5], [0.1, 0.4, -0.2]])
colour = torch.tensor([0.2, 0.9, 0.4])
passed = torch.exp(-torch.relu(density) * torch.tensor([0.5, 0.5, 1e10]))
before = torch.cumprod(passed, -1) / (2 * passed) * 2
bias = torch.tensor([0.1, 0.2], requires_grad=True)
loss = ((1 - passed) * before * colour).sum() + bias.square().sum()
loss.backward()
"""


@pytest.mark.long
def test_a_stable_form_that_rounding_takes_the_value_from_is_not_verified(tmp_path: Path):
    fixes = diagnosed_text(CANCELLED, tmp_path, verify=True).findings[0].fixes
    form = next(fix for fix in fixes if fix.kind == "stable-op")

    assert isinstance(form.verdict, Holds) and form.verdict.but == OffTruth()
    verified = [fix.verdict.effects.truth for fix in fixes if isinstance(fix.verdict, Verified)]
    assert verified and all(truth is not None and truth.is_met for truth in verified)


@pytest.mark.long
def test_a_form_that_never_divides_is_verified_in_its_place(tmp_path: Path):
    text = CANCELLED.replace("(2 * passed) * 2", "passed")
    form = diagnosed_text(text, tmp_path, verify=True).findings[0].fixes[0]

    assert form.kind == "stable-op" and isinstance(form.verdict, Verified)


ROUNDED = """
import torch
scale = torch.tensor(1.0, requires_grad=True)
near = scale * torch.tensor([[89.3, 82.1], [10.1, 17.4]])
ratio = torch.exp(near)
loss = -torch.log(ratio.diag() / ratio.sum(1)).mean()
loss.backward()
"""


@pytest.mark.long
def test_a_stable_form_that_is_off_by_its_own_rounding_comes_before_another_dtype(tmp_path: Path):
    """Of a loss near 0 float32 leaves two digits, of whichever form."""
    first, *others = diagnosed_text(ROUNDED, tmp_path, verify=True).findings[0].fixes

    assert (first.kind, first.safety) == ("stable-op", "safe")
    assert isinstance(first.verdict, Verified)
    truth = first.verdict.effects.truth
    assert truth is not None and truth.is_met
    assert not any(fix.verified for fix in others)


AT_A_RATE = """
import torch
w = torch.tensor([1.0, 1.0], requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for count in (2.0, 0.0, 1.0, 3.0, 2.0):
    share = (w * torch.tensor([1.0, 1e-6])).sum() / count
    loss = share.square()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_fix_after_which_training_explodes_is_not_verified(tmp_path: Path):
    fixes = diagnosed_text(AT_A_RATE, tmp_path, verify=True).findings[0].fixes

    assert any(isinstance(fix.verdict, Holds) for fix in fixes)
    assert all(fix.kind != "epsilon" for fix in fixes if fix.verified)
