"""A model that stops learning in the middle of training, at a loss that is not 0."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from gradscope.facts import Finding, Step, Trace
from gradscope.record import Observation
from gradscope.rules import RULES


def trained(forward: Callable[[nn.Module, torch.Tensor], torch.Tensor], lr: float) -> list[Finding]:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), torch.rand(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    steps = []
    with Observation() as observed:
        for step in range(10):
            optimizer.zero_grad()
            loss = forward(model, x)
            loss.backward()
            optimizer.step()
            steps.append(Step(step, loss.item(), 0.0, 0))
    trace = Trace("t", steps=tuple(steps), magnitudes=observed.sizes.facts())
    return list(RULES["GS403"].check(trace, ()))


def test_a_rectifier_at_the_output_dies_for_negative_targets():
    (found,) = trained(lambda model, x: (torch.relu(model(x) + 1) + 8).square().mean(), 0.05)

    assert found.op == "relu" and found.evidence["reason"] == "died"
    assert "every gradient is exactly 0 from step" in found.message
    assert "all inputs are negative" in found.label


@pytest.mark.parametrize(
    "forward",
    [
        lambda model, x: torch.relu(model(x) + 1).mean(),  # a margin that is met: the loss is 0
        lambda model, x: (model(x) + 8).square().mean(),
    ],
)
def test_training_that_goes_on_or_is_done_is_left_alone(forward):
    assert trained(forward, 0.05) == []
