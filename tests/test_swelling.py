"""A recurrence, or a deep model, whose values leave their range before there is a gradient."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from gradscope.config import Config
from gradscope.facts import Event, Finding, Growth, Kind, Magnitudes, Phase, Root, Trace
from gradscope.pipeline import trace
from gradscope.programs import parse_target
from gradscope.record import Observation
from gradscope.rules import by_name


def observed(run: Callable[[], torch.Tensor]) -> Growth | None:
    """What is seen of one step."""
    torch.manual_seed(0)
    with Observation() as seen:
        run().backward()
    return seen.sizes.facts().swelling


def recurrence(steps: int, std: float) -> torch.Tensor:
    weight = (torch.randn(16, 16) * std).requires_grad_()
    h = torch.ones(4, 16)
    for _ in range(steps):
        h = torch.relu(h @ weight)
    return h.square().mean()


def test_the_growth_is_measured_up_to_the_overflow():
    growth = observed(lambda: recurrence(90, 2.0))

    assert growth.axis == "time"
    assert 3 < growth.factor < 8
    assert len(growth.norms) < 90 and growth.norms == tuple(sorted(growth.norms))


def test_of_the_ops_of_a_repeat_the_one_that_grows_is_named():
    """The others repeat as often on the same line."""
    layer = nn.Linear(12, 8)
    nn.init.constant_(layer.weight, 3.0)

    def run() -> torch.Tensor:
        h = torch.ones(4, 8)
        for x in torch.ones(60, 4, 4):
            h = layer(torch.cat([x, h], -1)).relu()
        return h.square().mean()

    assert observed(run).call.op == "addmm"


def test_what_stays_finite_has_not_swollen():
    assert observed(lambda: recurrence(10, 2.0)) is None


def deep(std: float) -> torch.Tensor:
    layers = [module for _ in range(40) for module in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(64, 1))
    for layer in layers[::2]:
        nn.init.normal_(layer.weight, std=std)
    return model(torch.randn(4, 64)).square().mean()


def test_layers_swell_by_depth():
    growth = observed(lambda: deep(3.0))

    assert growth.axis == "depth" and growth.factor > 5


SCRIPT = """import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.keep = nn.Linear(32, 32)
        nn.init.normal_(self.keep.weight, std={std})

    def forward(self, x):
        h = torch.zeros(8, 32)
        for _ in range(60):
            h = torch.relu(x + self.keep(h)){after}
        return h.{end}


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for _ in range(2):
    loss = net(torch.ones(8, 32)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def told(folder: Path, **parts: object) -> tuple[Finding, ...]:
    file = folder / "net.py"
    file.write_text(SCRIPT.format(**{"after": "", "end": "mean(1)", "std": 3.0, **parts}))
    return trace(parse_target(str(file)), Config(), silent=True).findings


@pytest.mark.long
def test_it_is_told_as_an_explosion_with_the_weights_as_the_repair(tmp_path):
    (found,) = told(tmp_path)

    assert found.rule == "GS401" and "the values grow x" in found.message
    assert found.fixes[0].kind == "init" and found.fixes[0].verified
    assert "orthogonal_(self.keep.weight)" in found.fixes[0].code
    assert {symptom.kind for symptom in found.symptoms} >= {"nan-loss"}


@pytest.mark.long
def test_the_square_after_it_is_only_where_it_ends(tmp_path):
    (found,) = told(tmp_path, std=1.2)

    assert found.rule == "GS401" and "overflows float32" in found.message
    assert found.related[0].message == "leaves the range"


@pytest.mark.long
def test_an_op_that_overflows_after_the_recurrence_is_its_own_cause(tmp_path):
    found = told(tmp_path, std=0.05, after=" * 1.05", end="mul(1e3).exp().mean(1)")

    assert found[0].rule == "GS204"


def test_what_one_repeat_does_alone_is_no_growth():
    growth = observed(lambda: recurrence(90, 2.0))
    call, birth, forward = growth.call, Kind.BIRTH, Phase.FORWARD
    roots = (Root(Event(1, growth.step, birth, forward, call, call)),)

    def explained(growth: Growth) -> list[Finding]:
        seen = Trace("t", magnitudes=Magnitudes(swelling=growth))
        return list(by_name("exploding-gradient").check(seen, roots))

    assert len(explained(growth)) == 1
    assert explained(replace(growth, high=1e30)) == []


EXPLODES = """import torch
from torch import nn

torch.manual_seed(0)
layers = [module for _ in range(16) for module in (nn.Linear(64, 64), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(64, 1))
for layer in layers[::2]:
    nn.init.normal_(layer.weight, std=1.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.randn(4, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.long
def test_what_overflows_after_a_step_along_an_exploding_gradient_follows_from_it(tmp_path):
    (tmp_path / "deep.py").write_text(EXPLODES)
    (found,) = trace(parse_target(str(tmp_path / "deep.py")), Config(), silent=True).findings

    assert found.rule == "GS401" and found.step == 0
    assert any("follows at step 1" in line for line in found.numbers)
    assert found.fixes[0].kind == "init" and found.fixes[0].verified
