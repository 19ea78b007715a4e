"""GS303: an optimizer that is loaded with the state of others' parameters."""

import pytest
from corpus import diagnosed_text

RESUMED = """\
import copy

import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(32, 3), torch.randn(32, 1)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def train(optimizer, steps):
    for step in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()


first = torch.optim.{optimizer}
train(first, 3)
second = torch.optim.{optimizer}
second.load_state_dict(copy.deepcopy(first.state_dict()))
train(second, 3)
"""
REVERSED = "[*model.parameters()][::-1]"
STATES = {"Adam": "exp_avg", "SGD": "momentum_buffer", "RMSprop": "square_avg"}


def resumed(kind: str, given: str) -> str:
    momentum = ", momentum=0.9" if kind == "SGD" else ""
    made = f"{kind}({{}}, lr=0.01{momentum})"
    text = RESUMED.replace("torch.optim.{optimizer}", f"torch.optim.{made}")
    return text.format("model.parameters()", given)


@pytest.mark.parametrize("kind", STATES)
def test_a_state_that_was_saved_in_another_order_is_told(kind, tmp_path):
    (found,) = diagnosed_text(resumed(kind, REVERSED), tmp_path).findings

    assert (found.rule, found.location.line) == ("GS303", 21)
    assert found.evidence["key"] == STATES[kind]
    assert found.evidence["in_order"]
    assert found.evidence["name"].startswith("model.")


def test_a_state_of_another_model_is_told(tmp_path):
    text = resumed("Adam", "model.parameters()")
    smaller = "model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))"
    text = text.replace("second =", f"{smaller}\nsecond =")
    (found,) = diagnosed_text(text, tmp_path).findings

    assert (found.rule, found.evidence["in_order"]) == ("GS303", False)


def test_a_state_in_the_same_order_is_right(tmp_path):
    assert diagnosed_text(resumed("Adam", "model.parameters()"), tmp_path).findings == ()


def test_another_error_in_a_step_is_no_state_of_another(tmp_path):
    text = resumed("Adam", "model.parameters()").replace(
        "train(second, 3)", "second.param_groups[0]['lr'] = 'fast'\ntrain(second, 3)"
    )
    report = diagnosed_text(text, tmp_path)

    assert all(one.evidence.get("reason") != "state-of-another" for one in report.findings)


CLOSURE = """\
import torch

model = torch.nn.Linear(3, 1)
x, y = torch.randn(8, 3), torch.randn(8, 1)
optimizer = torch.optim.LBFGS(model.parameters())


def closure():
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    if optimizer.state[model.weight].get("func_evals", 0) > 2:
        raise RuntimeError("the sensor is gone")
    return loss


for step in range(4):
    optimizer.step(closure)
"""


def test_what_a_closure_raises_is_not_the_optimizers(tmp_path):
    report = diagnosed_text(CLOSURE, tmp_path)

    assert report.findings == ()
