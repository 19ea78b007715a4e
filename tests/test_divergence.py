"""GS404 where losses go up and down, leap once, or grow for another reason than training."""

from dataclasses import replace

import pytest
import torch
from corpus import diagnosed_text
from torch import nn

from gradscope.facts import (
    Call,
    Event,
    Kind,
    Leaf,
    Location,
    Magnitudes,
    Phase,
    Root,
    Severity,
    Step,
    Trace,
    Update,
)
from gradscope.record import Observation
from gradscope.rules import RULES

LEAF = Leaf("w", (4,), "float32", 4, "parameter", True, 9.0, (1.0,), start=1.0)
SEEN = Magnitudes((LEAF,), updates=(Update(0, "SGD", 0.1),))
UP_AND_DOWN = (3.0, 4.0, 1.0, 2.0, 90.0, 20.0, 7e2, 3e2, 2e5, 4e4, 3e6, 8e5)
LEAPS = (2.0, 9e7, 8e6, 7e5, 6e5, 5e5, 4e5, 3e5)


def judged(losses: tuple[float, ...], seen: Magnitudes = SEEN):
    steps = tuple(Step(index, loss, 0.0, 0) for index, loss in enumerate(losses))
    return list(RULES["GS404"].check(Trace("t", steps=steps, magnitudes=seen), ()))


def test_a_growth_that_goes_up_and_down_is_a_divergence():
    (found,) = judged(UP_AND_DOWN)

    assert "per step on average from step 0 to 11: 3 to above 40000" in found.message


def test_one_leap_that_is_never_made_good_is_a_divergence():
    (found,) = judged(LEAPS)

    assert found.message.startswith("the loss leaps x4.5e+07 in one step")
    assert "at step 7 is still at 300000" in found.message


@pytest.mark.parametrize(
    "losses",
    [
        (2.0, 1.0, 0.5, 9e7, 0.6, 0.4, 0.3, 0.2),  # one bad batch
        (2.0, 1.0, 0.0, 0.0, 1.0, 2.0, 1.0, 2.0),  # 0 for a while
        (2.0, 1.0, 0.5, 0.2, 0.1, 0.2, 0.1, 9e7),  # the last batch alone
    ],
)
def test_a_spike_is_no_divergence(losses):
    assert judged(losses) == []


def test_where_the_weights_stay_the_data_has_become_harder():
    still = replace(SEEN, leaves=(replace(LEAF, weight=1.02),))

    assert judged(tuple(10.0**n for n in range(8)), still) == []
    assert judged(tuple(10.0**n for n in range(8))) != []


def never_cleared(*, decay: float | None = None) -> list[Severity]:
    """A loop without `zero_grad`, that may decay the gradients instead."""
    torch.manual_seed(0)
    model, x = nn.Linear(3, 1), torch.randn(16, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Observation() as observed:
        for step in range(20):  # a leap at 15 is measured, the steps before it are not
            ((1e3 if step == 15 else 1.0) * model(x).square().mean()).backward()
            optimizer.step()
            for parameter in model.parameters() if decay else ():
                parameter.grad.mul_(decay)
    trace = Trace(
        "t",
        steps=tuple(Step(i, 1.0, 0.0, 0) for i in range(8)),
        magnitudes=observed.sizes.facts(),
    )
    return [found.severity for found in RULES["GS404"].check(trace, ())]


def test_weights_that_have_grown_tenfold_prove_it_of_a_bounded_loss():
    losses = (3.4, 900.0, 1500.0, 690.0, 350.0, 450.0, 500.0, 230.0)
    grown = replace(SEEN, leaves=(replace(LEAF, weight=12 * LEAF.start),))

    assert judged(losses, grown) != []
    assert judged(losses, replace(SEEN, leaves=(replace(LEAF, weight=8.0),))) == []
    assert judged((1.0, 1.2, 0.9, 0.8, 1.1, 2.0, 3.0, 4.0), grown) == []


def test_what_divides_by_the_gradient_is_slowed_by_the_size_of_the_weights():
    """No clipping changes its steps: each moves a weight by the learning rate."""
    adam = replace(SEEN, updates=(Update(0, "Adam", 5.0, blind_to_scale=True),))
    losses = (2.0, 2e4, 1e4, 9e3, 8e3, 7e3, 6e3, 5e3)
    (found,) = judged(losses, adam)
    (descent,) = judged(losses)

    assert "clip-norm" in [fix.kind for fix in descent.fixes]
    assert "clip-norm" not in [fix.kind for fix in found.fixes]
    assert descent.fixes[0].code == "lr=0.001"
    assert found.fixes[0].code == "lr=0.005"  # the 4 weights have a norm of 1, and 1/2 each


def test_gradients_that_are_never_cleared_are_an_error():
    assert never_cleared() == [Severity.ERROR]


def test_gradients_that_the_program_decays_are_kept_on_purpose():
    assert never_cleared(decay=0.9) == []


def test_one_of_two_optimizers_is_enough():
    place = Location("gan.py", 9, 4, 9, 16, "train")
    clean = [Update(step, "SGD", 0.1) for step in range(0, 16, 2)]
    stale = [Update(step, "SGD", 0.1, place, stale=step > 1) for step in range(1, 17, 2)]
    updates = tuple(sorted([*clean, *stale], key=lambda update: update.step))

    (found,) = judged((1.0,) * 16, replace(SEEN, updates=updates))
    assert found.location == place


def test_a_loss_without_a_lower_bound_is_told_as_one():
    root = Root(Event(0, 8, Kind.BIRTH, Phase.FORWARD, Call("pow"), Call("pow")))
    steps = tuple(Step(index, -(9.0**index), 0.0, 0) for index in range(8))
    (found,) = RULES["GS404"].check(Trace("t", steps=steps, magnitudes=SEEN), (root,))

    assert "the loss falls without end, x9 per step from step 0 to 7: -1 to" in found.message
    assert "Nothing bounds this loss from below" in found.why
    # A shorter step gets there later.
    assert [fix.request for fix in found.fixes] == [None]


LIKELIHOOD = """import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
for _ in range(60):
    x = torch.randn(64, 4)
    mean, logarithm = net(x).unbind(1)
    spread = torch.distributions.Normal(mean, logarithm.exp())
    loss = {}spread.log_prob(x.sum(1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_likelihood_that_is_minimised_is_told_and_not_the_op_that_it_ends_in(tmp_path):
    first, *_ = diagnosed_text(LIKELIHOOD.format(""), tmp_path).findings

    leading = first.fixes[0]
    assert (first.rule, leading.title.partition(",")[0]) == ("GS404", "minimise its negative")
    assert "the loss falls without end" in first.message
    assert leading.patch and "+    loss = -spread.log_prob(x.sum(1)).mean()" in leading.patch


FALLING = """import torch
torch.manual_seed(0)
mean = torch.nn.Parameter(torch.zeros(2))
logarithm = torch.nn.Parameter(torch.zeros(2))
optimizer = torch.optim.SGD([mean, logarithm], lr=0.002)
x = torch.randn(256, 2) * 0.7 + 3
for step in range(40):
    loss = torch.distributions.Normal(mean, {scale}).log_prob(x).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {after}
"""


@pytest.mark.long
def test_a_scale_of_0_is_where_a_likelihood_without_its_sign_ends(tmp_path):
    text = FALLING.format(scale="logarithm.exp()", after="")
    first, second = diagnosed_text(text, tmp_path, verify=True).findings

    assert (first.rule, second.rule) == ("GS404", "GS203")
    assert first.fixes[0].verified and "+    loss = -torch" in first.fixes[0].patch


def test_what_raises_by_itself_says_nothing_of_a_loss_that_falls(tmp_path):
    scale, after = "logarithm.clamp(min=-4).exp()", "if step > 30: raise KeyError('another')"
    report = diagnosed_text(FALLING.format(scale=scale, after=after), tmp_path)

    assert not [one for one in report.findings if one.rule == "GS404"]


def test_a_likelihood_that_is_maximised_is_healthy(tmp_path):
    assert diagnosed_text(LIKELIHOOD.format("-"), tmp_path).findings == ()


def test_data_of_another_scale_is_named():
    (found,) = judged(tuple(1e7 * 10.0**n for n in range(8)))

    assert any("targets far from 0" in fix.title for fix in found.fixes)


ADAM = """import torch
rate = float("30")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=rate)
for _ in range(12):
    optimizer.zero_grad()
    (net(torch.ones(8, 4)) - 3.0).square().mean().backward()
    optimizer.step()
"""


def test_a_rate_that_is_no_number_is_lowered_where_the_optimizer_is_made(tmp_path):
    (found,) = diagnosed_text(ADAM, tmp_path).findings

    assert found.rule == "GS404"
    assert "lr=0.00" in (found.fixes[0].patch or "")
