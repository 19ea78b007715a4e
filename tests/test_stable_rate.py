"""The learning rate at which training stops diverging, found by trying."""

import re

import pytest

from gradscope.config import Config
from gradscope.facts import Ending, Location, Step, Trace
from gradscope.pipeline import trace
from gradscope.programs import parse_target
from gradscope.repair.rates import Border, search, settles
from gradscope.source import Source
from gradscope.source.hand_updates import rate_by_hand

LOOP = """
import torch
w = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([w], lr=max(3.0, 1.0))  # no literal: nothing to edit
for _ in range(60):
    optimizer.zero_grad()
    w.square().sum().backward()
    optimizer.step()
"""


@pytest.mark.long
def test_the_border_of_a_quadratic_lies_where_theory_has_it(tmp_path):
    file = tmp_path / "loop.py"
    file.write_text(LOOP)
    report = trace(parse_target(str(file)), Config(steps=60, verify_time=600.0), silent=True)
    (found,) = report.findings

    assert found.rule == "GS404"
    assert found.evidence["stable_lr"] <= 1.0 < found.evidence["diverging_lr"] <= 1.5
    said = next(line for line in found.numbers if line.startswith("stops diverging"))
    assert re.search(r"between lr 0\.75 and 1\.06 \(found by running again 3 times\)", said)


BY_HAND = """
import torch
def settle(energy, x, length=3.0, noise=0.0):
    for _ in range(30):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(energy(x), x)
        x = x - length * slope + noise * 0.1 * torch.randn_like(x)
    return x
settle(lambda x: x.square().sum(), torch.ones(2))
"""


def test_so_does_that_of_an_update_by_hand(tmp_path):
    """Its rate is what the gradient is multiplied by: here the default of a parameter."""
    file = tmp_path / "chain.py"
    file.write_text(BY_HAND)
    report = trace(parse_target(str(file)), Config(steps=60, verify_time=600.0), silent=True)
    (found,) = report.findings

    assert (found.rule, found.location.line) == ("GS404", 7)
    assert found.evidence["stable_lr"] <= 1.0 < found.evidence["diverging_lr"] <= 1.5
    assert "length=0.5, noise=0.0" in found.fixes[0].patch
    assert found.fixes[0].verified is True


def test_what_a_call_gives_a_method_is_no_default():
    text = (
        "class Chain:\n"
        "    def move(self, w, rate=0.5):\n"
        "        return w - rate * w.grad\n"
        "Chain().move(w, 0.1)\n"
    )

    assert rate_by_hand(Source("a.py", text), Location("a.py", 3, 8, 3, 10, "move")) is None


@pytest.mark.parametrize(
    ("update", "rate"),
    [
        ("w = w - 0.5 * w.grad", 0.5),
        ("w = w - 2 * step * g + 0.1 * torch.randn(2)", 0.25),
        ("w.sub_(g, alpha=0.5)", 0.5),
        ("w = w - given * g", None),  # somebody gives it
        ("w = w - usual * g", 0.125),
    ],
)
def test_the_rate_is_what_the_gradient_is_multiplied_by(tmp_path, update, rate):
    text = (
        "import torch\nstep = 0.25\n"
        "def move(w, loss, given=0.01, *, usual=0.125):\n"
        "    g = torch.autograd.grad(loss, w)[0]\n"
        f"    {update}\n"
        "    return w\n"
        "move(w, loss, 0.02)\n"
    )
    place = Location("a.py", 5, 4, 5, 10, "move")

    found = rate_by_hand(Source("a.py", text), place)

    assert (found.value if found is not None else None) == rate


def test_the_search_is_bounded():
    tried: list[float] = []

    def never(factor: float) -> bool:
        tried.append(factor)
        return False

    assert search(never) == Border(None, 4.0**-8, 4) and len(tried) == 4
    assert search(lambda factor: factor <= 0.3).runs == 3


def test_what_was_known_when_the_time_ended_is_kept():
    def slow(factor: float) -> bool:
        if factor > 0.25:
            raise TimeoutError
        return True

    assert search(slow) == Border(0.25, 1.0, 1)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ((4.0, 2.0, 1.0, 0.5), True),
        ((1.0, 2.0, 4.0, 8.0), False),
        ((4.0, 2.0, float("nan")), False),
        ((4.0, 5e17, 120.0, 119.0, 118.0, 118.0), False),  # thrown out to where it is flat
        ((0.002, 0.9, 0.01, 0.001), True),
        ((), False),
    ],
)
def test_settling_is_falling_and_finite(losses, expected):
    steps = tuple(Step(index, loss, 0.0, 0) for index, loss in enumerate(losses))

    assert settles(Trace("t", steps=steps, ending=Ending("finished"))) is expected


def test_where_a_step_divides_by_its_gradient_the_weights_tell_how_long_it_may_be(tmp_path):
    """By how much the loss leapt tells nothing: the rate moves every weight, however flat it is."""
    file = tmp_path / "loop.py"
    file.write_text("""
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=250.0)
x = torch.randn(32, 4)
for _ in range(40):
    optimizer.zero_grad()
    (net(x)[:, 0] - x.sum(1)).square().mean().backward()
    optimizer.step()
""")
    report = trace(parse_target(str(file)), Config(steps=60, verify_time=600.0), silent=True)
    (found,) = report.findings

    assert (found.rule, found.location.line) == ("GS404", 11)
    assert "about the learning rate itself, 250:" in found.why
    (line,) = [one for one in found.fixes[0].patch.splitlines() if one.startswith("+optimizer")]
    assert 3e-4 <= float(re.search(r"lr=([\de.-]+)\)", line)[1]) <= 1e-2
    assert found.fixes[0].verified


@pytest.mark.long
def test_what_diverges_at_any_rate_is_not_answered_with_one(tmp_path):
    """A rate that is small enough to hide it trains nothing."""
    file = tmp_path / "loop.py"
    file.write_text("""
import torch
torch.manual_seed(0)
w = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([w], lr=0.5)
x = torch.rand(8, 4)
for step in range(40):
    loss = (x @ w - 3.0).square().mean() * 2.0**step
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""")
    report = trace(parse_target(str(file)), Config(steps=60, verify_time=600.0), silent=True)
    (found,) = report.findings

    assert found.rule == "GS404"
    assert any("still diverges at lr 7.63e-06" in line for line in found.numbers)
    assert not any(fix.kind == "lower-lr" or fix.verified for fix in found.fixes)
