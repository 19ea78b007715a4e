"""A fault of ours while we look at a step costs what we would have said, and never the program."""

from typing import Any

import pytest
import torch

from gradscope.record import Observation
from gradscope.record.broadcasts import Broadcasts
from gradscope.record.events.symptoms import Symptoms
from gradscope.record.names import Names
from gradscope.record.probes.function_checks import FunctionChecks
from gradscope.record.refusals.notes import Notes
from gradscope.record.sizes.account import Account, Fading
from gradscope.record.sizes.clipping import Clipping
from gradscope.record.sizes.flow import Flow
from gradscope.record.sizes.gradients import Sizes

# What looks: by far not all of it, one for each way in.
LOOKS = [
    (Account, "look"),
    (Account, "note_cleared"),
    (Account, "note_pass"),
    (Broadcasts, "after_backward"),
    (Clipping, "_clips"),
    (Fading, "note_graph"),
    (Flow, "note"),
    (FunctionChecks, "before"),
    (Names, "saw_root"),
    (Notes, "note_update"),
    (Sizes, "begin_backward"),
    (Sizes, "end_backward"),
    (Sizes, "optimizer_made"),
    (Symptoms, "after_backward"),
    (Symptoms, "before_optimizer"),
]


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


def program() -> list[float]:
    torch.manual_seed(0)
    parts = torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
    net = torch.nn.Sequential(*parts)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    x, losses = torch.randn(16, 4), []
    for _ in range(12):
        optimizer.zero_grad()
        y = net(x)
        loss = torch.where(y > 0, y, y.exp()).pow(2).mean() + Square.apply(y).mean() * 0.1
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        with torch.no_grad():
            net.eval()
            losses.append(net(x).mean().item())
            net.train()
    return losses


def faulty_run(owner: Any, name: str, full_from: int | None) -> tuple[list[float], int]:
    """The losses where a function of ours raises as soon as the program runs, and how often."""
    count = 0

    def raising(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        raise RuntimeError("a fault of ours")

    with Observation(full_from=full_from), pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, raising)
        return program(), count


@pytest.mark.parametrize("full_from", [0, None])
@pytest.mark.parametrize(("owner", "name"), LOOKS, ids=lambda one: getattr(one, "__name__", one))
def test_a_fault_of_ours_is_not_the_programs(owner, name, full_from):
    losses, _ = faulty_run(owner, name, full_from)

    assert losses == program()


@pytest.mark.slow
def test_each_of_these_is_asked():
    silent = {
        f"{owner.__name__}.{name}"
        for owner, name in LOOKS
        if not sum(faulty_run(owner, name, full_from)[1] for full_from in (0, None))
    }

    assert silent == set()
