"""Steps that go by with a look at their loss alone change nothing of what is told."""

from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gradscope.facts import Ending, Trace
from gradscope.record import Observation, finite, watching
from gradscope.record.coasting import Coasting
from gradscope.record.events import symptoms

STEPS = 600  # so that most go by: the first ones are all looked at
SGD = torch.optim.SGD


def loss_of(*modules: nn.Module) -> torch.Tensor:
    x = torch.randn(8, 4)
    for module in modules:
        x = module(x)
    return x.square().mean()


def plain() -> Iterator[None]:
    net = nn.Linear(4, 4)
    optimizer = SGD(net.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()
        yield


def accumulating() -> Iterator[None]:
    net = nn.Linear(4, 4)
    optimizer = SGD(net.parameters(), lr=1e-3)
    for number in range(STEPS):
        (loss_of(net) / 4).backward()
        if number % 4 == 3:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        yield


def scheduled() -> Iterator[None]:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1))
    optimizer = SGD(net.parameters(), lr=1e-3, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    for _ in range(STEPS):
        net.zero_grad(set_to_none=False)
        loss_of(net).backward()
        optimizer.step()
        schedule.step()
        yield


def adversarial() -> Iterator[None]:
    maker, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    makes, judges = SGD(maker.parameters(), lr=1e-3), SGD(critic.parameters(), lr=1e-3)
    for number in range(STEPS):
        judges.zero_grad()
        loss_of(maker, critic).backward()
        judges.step()
        if number % 3 == 0:
            makes.zero_grad()
            loss_of(maker, critic).backward()
            makes.step()
        yield


def by_hand() -> Iterator[None]:
    weight = torch.randn(4, 4, requires_grad=True)
    for _ in range(STEPS):
        weight.grad = None
        (torch.randn(8, 4) @ weight).square().mean().backward()
        with torch.no_grad():
            weight -= 1e-3 * weight.grad
        yield


def several_leaves() -> Iterator[None]:
    first, second = (torch.ones(4, requires_grad=True) for _ in range(2))
    for number in range(STEPS):
        used = first if number % 50 else second  # now and then another graph
        (used * torch.randn(4)).square().sum().backward()
        yield


def stepping_later() -> Iterator[None]:
    """A second optimizer that is made, and one that first steps, while steps go by."""
    net, late = nn.Linear(4, 4), nn.Linear(4, 4)
    optimizer, waiting = SGD(net.parameters(), lr=1e-3), SGD(late.parameters(), lr=1e-3)
    for number in range(STEPS):
        if number == 205:
            optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        optimizer.zero_grad()
        loss_of(net, late).backward()
        optimizer.step()
        if number > 250:
            waiting.step()
            waiting.zero_grad()
        yield


def reentrant() -> Iterator[None]:
    """A checkpoint that runs backward within backward."""
    net = nn.Linear(4, 4)
    optimizer = SGD(net.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        x = torch.randn(8, 4, requires_grad=True)
        checkpoint(net, x, use_reentrant=True).square().mean().backward()
        optimizer.step()
        yield


def stepping_in_hooks() -> Iterator[None]:
    """An optimizer for each parameter, that steps as soon as the gradient is there."""
    net = nn.Linear(4, 4)
    optimizers = {one: SGD([one], lr=1e-3) for one in net.parameters()}

    def step(one: torch.Tensor) -> None:
        optimizers[one].step()
        optimizers[one].zero_grad()

    hooks = [one.register_post_accumulate_grad_hook(step) for one in net.parameters()]
    for _ in range(STEPS):
        loss_of(net).backward()
        yield
    for hook in hooks:  # a cycle that Python does not see: the optimizers would stay
        hook.remove()


PROGRAMS = [
    plain,
    accumulating,
    scheduled,
    adversarial,
    by_hand,
    several_leaves,
    stepping_later,
    reentrant,
    stepping_in_hooks,
]


def seen(program: Callable[[], Iterator[None]], *, coasts: bool = True) -> tuple[Trace, int]:
    """What a program shows, and how many of its passes went by."""
    passed: list[int] = []
    run = Coasting.run

    def count(*given: object) -> object:
        result = run(*given)  # type: ignore[arg-type]
        passed.extend([1] * (result is not NotImplemented))
        return result

    torch.manual_seed(0)
    with patch.object(Coasting, "run", count), Observation(full_from=None) as observation:
        if not coasts:
            observation.coasting.begin = lambda *given: None  # type: ignore[method-assign]
        for _ in program():
            pass
    return observation.trace("program", Ending("finished")), len(passed)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_what_is_told_is_what_a_look_at_each_step_tells(program: Callable[[], Iterator[None]]):
    (each, none), (some, passed) = seen(program, coasts=False), seen(program)

    assert none == 0
    assert passed > STEPS // 6 or program is stepping_in_hooks
    assert [step.loss for step in some.steps] == [step.loss for step in each.steps]
    assert [step.backward_at for step in some.steps] == [step.backward_at for step in each.steps]
    assert some.updates == each.updates
    for usage, wanted in zip(some.magnitudes.usages, each.magnitudes.usages, strict=True):
        assert usage.updates == wanted.updates
        assert usage.discards == wanted.discards
        assert usage.schedule == wanted.schedule
        assert usage.rates == wanted.rates
    assert len(some.magnitudes.updates) == len(each.magnitudes.updates)
    assert some.magnitudes.modes == each.magnitudes.modes
    assert [one.norms for one in some.magnitudes.leaves] == [
        one.norms for one in each.magnitudes.leaves
    ]


def test_a_bad_gradient_of_a_leaf_that_nobody_knew_is_seen_in_its_step(monkeypatch):
    for module in (
        watching,
        symptoms,
    ):  # an optimizer that another test keeps is not this program's
        monkeypatch.setattr(module, "any_alive", lambda kind: False)
    with Observation(full_from=None) as observation:
        for number in range(STEPS):
            leaf = torch.full((3,), float(number != 333), requires_grad=True)
            leaf.sqrt().sum().backward()
    unexamined = observation.trace("program", Ending("finished")).unexamined

    assert unexamined is not None and unexamined.step == 333


def test_each_pass_is_counted():
    counted: list[int] = []
    with Observation(full_from=None, on_pass=counted.append):
        for _ in plain():
            pass

    assert set(range(200, 255)) - set(counted)  # some are looked at, which `on_step` tells
    assert counted == sorted(set(counted))
    assert len(counted) > STEPS // 3


class Later:
    """Numbers that are there when they are waited for, as a GPU's are, and not before."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def ask(self, tensor: torch.Tensor) -> tuple[torch.Tensor, "Later"]:
        self.number = tensor.detach().clone().reshape(()).double()
        later, later.there = Later(self.device), torch.full((), 1e30, dtype=torch.float64)
        later.number = self.number
        return later.there, later

    def synchronize(self) -> None:
        self.there.copy_(self.number)


@pytest.fixture
def told_later(monkeypatch):
    monkeypatch.setattr(finite, "runs_later", torch.is_tensor)
    monkeypatch.setattr(finite, "_slots", Later)


def test_of_a_device_that_tells_later_the_same_is_told(monkeypatch):
    at_once, _ = seen(plain)
    monkeypatch.setattr(finite, "runs_later", torch.is_tensor)
    monkeypatch.setattr(finite, "_slots", Later)
    later, passed = seen(plain)

    assert passed > STEPS // 6
    assert [step.loss for step in later.steps] == [step.loss for step in at_once.steps]
    assert later.surged is at_once.surged is None


@pytest.mark.parametrize("bad", [torch.nan, 1e9])
def test_a_loss_that_leaps_on_such_a_device_is_that_of_its_step(told_later, bad):
    net = nn.Linear(4, 1)
    optimizer = SGD(net.parameters(), lr=1e-6)
    with Observation(full_from=None) as observation:
        for number in range(STEPS):
            optimizer.zero_grad()
            scale = bad if number == 333 else 1.0
            (net(torch.ones(2, 4)).square() * scale).sum().backward()
            optimizer.step()
            if number == 333 and bad != bad:
                break
    trace = observation.trace("program", Ending("finished"))

    if bad != bad:
        assert trace.unexamined is not None and trace.unexamined.step == 333
    else:
        assert trace.surged == 333
