"""Gradients that are cleared between backward and the step, and which pass tells of a parameter."""

import copy
import json

import pytest
import torch
from corpus import patched
from torch import nn

from gradscope.facts import Finding, Trace
from gradscope.record import Observation
from gradscope.rules import RULES

X = torch.ones(4, 3)


def judged(observed: Observation) -> list[Finding]:
    trace = Trace("t", magnitudes=observed.sizes.facts())
    return list(RULES["GS403"].check(trace, ()))


def trained(body: str) -> list[Finding]:
    """What is found in five steps of a loop with the given lines after the loss."""
    code = compile(body, "loop.py", "exec")
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with Observation() as observed:
        for _ in range(12):
            loss = model(X).square().mean()
            exec(code, {"loss": loss, "optimizer": optimizer, "model": model})
    return judged(observed)


@pytest.mark.parametrize("clear", ["optimizer.zero_grad()", "optimizer.zero_grad(False)"])
def test_a_step_without_gradients_is_told(clear):
    (found,) = trained(f"loss.backward(); {clear}; optimizer.step()")

    assert "gets no gradient in any of" in found.message
    assert found.evidence["reason"] == "cleared"


@pytest.mark.parametrize(
    "body",
    [
        "optimizer.zero_grad(); loss.backward(); optimizer.step()",
        "loss.backward(); optimizer.step(); optimizer.zero_grad()",
        "loss.backward(); optimizer.step(); model.zero_grad(); (0 * loss).detach()",
        # As LBFGS has it: the step runs its own backward.
        "optimizer.zero_grad()\noptimizer.step(lambda: model(X).mean().backward())\n"
        "loss.backward()".replace("X", "__import__('torch').ones(4, 3)"),
    ],
)
def test_a_step_that_has_gradients_is_not(body):
    assert trained(body) == []


LOOP = """import torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    loss = model(torch.ones(4, 3)).square().mean()
    loss.backward()
    {}
    {}
    print(loss.item())
"""


def test_the_patch_steps_first(gradscope, tmp_path):
    clear, step = "optimizer.zero_grad(set_to_none=True)", "optimizer.step()"
    (tmp_path / "loop.py").write_text(LOOP.format(clear, step))
    done = gradscope("trace", "loop.py", "--format", "json")

    (finding,) = json.loads(done.stdout)["findings"]
    fix = finding["fixes"][0]
    assert done.returncode == 1 and fix["verified"] is True
    assert patched(fix["patch"], tmp_path, "loop.py") == LOOP.format(step, clear)


def test_the_pass_of_its_own_optimizer_tells_of_a_parameter():
    """The critic's target leaves the actor out on purpose, the actor's own loss does not."""
    actor, critic = nn.Linear(3, 3), nn.Linear(3, 1)
    for_actor = torch.optim.SGD(actor.parameters(), lr=0.1)
    for_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
    with Observation() as observed:
        for _ in range(4):
            with torch.no_grad():
                target = critic(actor(X))
            for_critic.zero_grad()
            (critic(X) - target).square().mean().backward()
            for_critic.step()
            for_actor.zero_grad()
            critic(actor(X).detach()).mean().backward()
            for_actor.step()

    (found,) = judged(observed)
    assert found.evidence["reason"] == "detach"
    assert found.evidence["parameters"] == ["actor.weight", "actor.bias"]


class Holder:
    def __init__(self, net: nn.Module) -> None:
        self.scale = torch.ones(3, requires_grad=True)
        self.net = net


def test_a_tensor_that_the_model_lost_is_called_as_the_program_does():
    before, holder = nn.Linear(3, 1), Holder(nn.Linear(3, 1))
    optimizer = torch.optim.SGD([*before.parameters(), holder.scale], lr=0.1)
    model = copy.deepcopy(before)
    with Observation() as observed:
        for _ in range(3):
            optimizer.zero_grad()
            model(X).mean().backward()
            optimizer.step()

    names = [name for found in judged(observed) for name in found.evidence["parameters"]]
    assert names == ["before.weight", "before.bias", "holder.scale"]


def test_what_the_generator_made_before_the_critics_step_is_still_its_own():
    """The sample is cut before one backward, and used again for the next."""
    generator, critic = nn.Linear(3, 3), nn.Linear(3, 1)
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
    with Observation() as observed:
        for _ in range(4):
            sample = generator(X).detach()
            for optimizer, sign in ((of_critic, 1), (of_generator, -1)):
                optimizer.zero_grad()
                (sign * critic(sample).mean()).backward()
                optimizer.step()

    (found,) = judged(observed)
    assert found.evidence["reason"] == "detach" and found.location is not None
