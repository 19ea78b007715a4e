"""A layer that is replaced while an optimizer holds the parameters of the one before."""

from collections.abc import Callable

import pytest
import torch
from corpus import diagnosed_text, patched
from torch import nn

from gradscope.diagnose import diagnose
from gradscope.facts import Ending, Finding
from gradscope.record import Observation


def trained(change: Callable[[nn.Sequential, torch.optim.Optimizer], object]) -> list[Finding]:
    """What is found where a model is changed after some steps; `change` may give an optimizer."""
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer: torch.optim.Optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with Observation() as observed:
        for step in range(12):
            if step == 4:
                made = change(net, optimizer)
                optimizer = made if isinstance(made, torch.optim.Optimizer) else optimizer
            optimizer.zero_grad()
            net(torch.ones(4, 4)).square().mean().backward()
            optimizer.step()
    return list(diagnose(observed.trace("t", Ending("finished"))))


def replaced(net: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    net[2] = nn.Linear(8, 1)


def test_the_new_layer_is_told():
    (found,) = trained(replaced)

    assert (found.rule, found.evidence["reason"]) == ("GS403", "replaced")
    assert found.evidence["parameters"] == ["net.2.weight", "net.2.bias"]
    assert found.severity == "error"


def given(net: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    replaced(net, optimizer)
    optimizer.add_param_group({"params": net[2].parameters()})


def made_anew(net: nn.Sequential, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    replaced(net, optimizer)
    return torch.optim.SGD(net.parameters(), lr=1e-2)


def frozen(net: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    replaced(net, optimizer)
    net[2].requires_grad_(False)


def loaded(net: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    net.load_state_dict(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).state_dict())


def written(net: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    net[2].weight.data = torch.ones(1, 8)


@pytest.mark.parametrize("change", [given, made_anew, frozen, loaded, written])
def test_what_an_optimizer_gets_is_silent(change):
    assert [one for one in trained(change) if one.severity == "error"] == []


@pytest.mark.parametrize(("beside", "reasons"), [(True, ["remade"]), (False, [])])
def test_a_layer_that_is_made_at_each_step_beside_what_is_trained_is_noted(beside, reasons):
    torch.manual_seed(0)
    body = nn.Linear(4, 8).requires_grad_(beside)
    optimizer = torch.optim.SGD(body.parameters(), lr=1e-2)
    with Observation() as observed:
        for _ in range(6):
            head = nn.Linear(8, 1)
            optimizer.zero_grad()
            head(body(torch.ones(4, 4))).square().mean().backward()
            optimizer.step()
    found = diagnose(observed.trace("t", Ending("finished")))

    assert [one.evidence["reason"] for one in found] == reasons
    assert {one.severity for one in found} <= {"note"}


def learnt(reads: Callable[[torch.Tensor, nn.Linear], torch.Tensor]) -> tuple[Finding, ...]:
    """Training of a layer that a function uses, with what the function makes itself."""
    layer = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-2)
    with Observation() as observed:
        for _ in range(8):
            optimizer.zero_grad()
            reads(torch.ones(4, 4), layer).square().mean().backward()
            optimizer.step()
    found = diagnose(observed.trace("t", Ending("finished")))
    return tuple(one for one in found if one.severity != "note")


def scaled(x: torch.Tensor, layer: nn.Linear) -> torch.Tensor:
    scale = nn.Parameter(torch.ones(4))
    return layer(x) * scale


def test_a_parameter_that_is_made_in_each_forward_is_told_where_it_is_read():
    (found,) = learnt(scaled)

    assert (found.rule, found.evidence["reason"], found.severity) == ("GS403", "passing", "warning")
    assert found.location.line == scaled.__code__.co_firstlineno + 2


SCALE = nn.Parameter(torch.ones(4))


def kept(x: torch.Tensor, layer: nn.Linear) -> torch.Tensor:
    return layer(x) * SCALE


def constant(x: torch.Tensor, layer: nn.Linear) -> torch.Tensor:
    return layer(x) * nn.Parameter(torch.ones(4), requires_grad=False)


def slope(x: torch.Tensor, layer: nn.Linear) -> torch.Tensor:
    at = nn.Parameter(x)
    return torch.autograd.grad(layer(at).square().sum(), at, create_graph=True)[0]


@pytest.mark.parametrize("reads", [kept, constant, slope])
def test_what_a_function_makes_to_read_its_slope_or_no_gradient_of_is_silent(reads):
    assert learnt(reads) == ()


def test_models_that_share_a_name_in_turn_are_silent():
    def step(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        net(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()

    def ensemble() -> None:
        held = []
        for _ in range(2):
            one = nn.Linear(3, 1)
            held.append((one, torch.optim.SGD(one.parameters(), lr=1e-2)))
        for _ in range(8):
            for one, optimizer in held:
                step(one, optimizer)

    with Observation() as observed:
        ensemble()

    assert diagnose(observed.trace("t", Ending("finished"))) == ()


MADE_OUT_OF_SIGHT = """
import torch
from torch import nn

class Slow(torch.optim.SGD):
    def __init__(self, parameters):
        super().__init__(parameters, lr=1e-3)

net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizers = [
    Slow(net.parameters()),
]
net[2] = nn.Linear(8, 1)
for _ in range(3):
    for optimizer in optimizers:
        optimizer.zero_grad()
    net(torch.ones(4, 4)).square().mean().backward()
    for optimizer in optimizers:
        optimizer.step()
"""


def test_the_line_that_constructed_the_optimizer_is_named(tmp_path):
    """However the program gets from there to its step."""
    (found,) = diagnosed_text(MADE_OUT_OF_SIGHT, tmp_path).findings

    lines = MADE_OUT_OF_SIGHT.splitlines()
    assert lines[found.location.line - 1] == "net[2] = nn.Linear(8, 1)"
    assert lines[found.related[-1].location.line - 1].strip().startswith("Slow(net")


LATER = """\
import copy
import torch
from torch import nn

net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
{}optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
{}for step in range(6):
    optimizer.zero_grad()
    net(torch.ones(4, 4)).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("line", ["net[2] = nn.Linear(8, 1)\n", "net = copy.deepcopy(net)\n"])
def test_the_optimizer_is_made_after_the_model(line, here):
    found, *_ = diagnosed_text(LATER.format("", line), here, verify=True).findings

    assert (found.rule, found.fixes[0].verified) == ("GS403", True)
    assert patched(found.fixes[0].patch, here) == LATER.format(line, "")


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor, remake: bool) -> torch.Tensor:
        if remake:
            self.scale = nn.Parameter(torch.ones(4))
        return x * self.scale


@pytest.mark.parametrize("looks", [0, 2])  # without a backward pass
@pytest.mark.parametrize("remakes", [[True] * 6, [True] + [False] * 5, [False] * 6])
def test_a_parameter_that_forward_makes_is_told_where_it_is_made(remakes, looks):
    net, head = Scaled(), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=1e-2)
    with Observation() as observed:
        for _ in range(looks):
            net(torch.ones(4, 4), any(remakes))
        for remake in remakes:
            optimizer.zero_grad()
            head(net(torch.ones(4, 4), remake)).square().mean().backward()
            optimizer.step()
    errors = [
        one for one in diagnose(observed.trace("t", Ending("finished"))) if one.severity == "error"
    ]

    assert len(errors) == any(remakes)
    for found in errors:
        assert found.evidence["reason"] == ("remade" if all(remakes) else "swapped")
        assert found.location is not None and found.location.function == "Scaled.forward"
