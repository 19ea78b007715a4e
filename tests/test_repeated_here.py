"""Where a process cannot be copied, as with a GPU, a callback's failing step is made again in the
process itself, which is then as it was."""

import random

import pytest
import torch
from torch import nn

from gradscope.facts import NotTried, Origin, Reason
from gradscope.integrations import in_place
from gradscope.integrations.training_session import Session

BAD = 5


@pytest.fixture(autouse=True)
def no_copies(monkeypatch):
    monkeypatch.setattr(in_place, "can_fork", lambda: False)


def step(model: nn.Module, x: torch.Tensor) -> None:
    score = model(x).squeeze(-1)
    (score.square() / x.square().sum(-1).sqrt()).mean().backward()


def trained(*, stop: bool = True) -> Session:
    """As a framework's callback sees it. Looking at the bad update changes nothing of what a step
    changes."""
    torch.manual_seed(0)
    random.seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    session = Session("training", select=None, ignore=None)
    with session:
        for number in range(BAD + 3):
            x = torch.randn(6, 4)
            x[0] *= float(number != BAD)
            optimizer.zero_grad()
            session.step(lambda x=x: step(model, x))
            step(model, x)
            before = [one.clone() for one in model.state_dict().values()]
            grads = [one.grad for one in model.parameters()]
            state = torch.get_rng_state()
            is_bad = session.before_update(model.parameters())
            assert is_bad == (number == BAD)
            if is_bad:
                after = [one.grad for one in model.parameters()]
                assert all(a is b for a, b in zip(grads, after, strict=True))
                assert all(map(torch.equal, before, model.state_dict().values()))
                assert torch.equal(state, torch.get_rng_state())
                if stop:
                    break
            optimizer.step()
            session.after_update()
    return session


def test_the_op_is_named_and_nothing_has_changed():
    session = trained()
    report = session.report()
    (found,) = report.findings

    assert found.rule == "GS201" and "square().sum(-1).sqrt()" in found.message
    assert report.replay.origin is Origin.IN_PLACE and report.replay.step == BAD
    assert report.replay.identical
    assert all(fix.verdict == NotTried(Reason.NOT_REPEATED) for fix in found.fixes if fix.patch)
    assert not report.not_searched


def test_a_step_that_updates_by_itself_is_left_alone(monkeypatch):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = Session("training", select=None, ignore=None)

    def whole() -> None:
        (model(torch.zeros(1, 2)).sum() / torch.zeros(())).backward()
        session.before_update(model.parameters())
        optimizer.step()

    with session:
        session.step(whole)
        before = model.weight.clone()
        (model(torch.zeros(1, 2)).sum() / torch.zeros(())).backward()
        assert session.before_update(model.parameters())

    assert torch.equal(model.weight, before)
    (left,) = session.report().not_searched
    assert left.why.startswith("it updates parameters itself")


def test_what_comes_after_it_is_told_to_be_unseen():
    session = trained(stop=False)

    (missed,) = session.report().not_searched
    assert missed.what == "the 3 updates after the failing step"


def test_a_step_that_raises_the_second_time_is_told(monkeypatch):
    calls: list[int] = []

    def once() -> None:
        calls.append(1)
        if len(calls) > BAD + 1:
            raise KeyError("only once")

    monkeypatch.setattr(torch.nn.Dropout, "forward", lambda self, x: once() or x)
    session = trained()

    (left,) = session.report().not_searched
    assert left.why == "it raised KeyError when it was made again"
