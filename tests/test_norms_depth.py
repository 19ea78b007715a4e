"""Activations and their gradients by depth, against what hooks of torch's own see."""

from typing import Any

import pytest
import torch
from torch import nn

from gradscope.facts import Depth
from gradscope.record import Observation


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return (x * 3) - x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


class Custom(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Doubled.apply(x)


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1).mul_(3)


def norm(values: torch.Tensor) -> float:
    return values.detach().double().norm().item()


def depth_of(model: nn.Module, x: torch.Tensor) -> Depth:
    with Observation(each_op=False) as watch:
        model(x).square().mean().backward()
    assert watch.context.notes == []
    found = watch.sizes.facts().depth
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "layers",
    [
        lambda: [nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)],
        lambda: [nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4)],
        lambda: [nn.Linear(6, 8), Custom(), InPlace(), nn.Linear(8, 4), nn.Softmax(-1)],
    ],
)
def test_sizes_are_those_that_hooks_see(layers, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(*layers()).to(dtype)
    x = torch.randn(5, 6, dtype=dtype)
    found = depth_of(model, x)
    seen: list[torch.Tensor] = []
    for layer in model:
        layer.register_forward_hook(lambda module, args, out: seen.append(out))
    out = model(x)
    for value in seen:
        value.retain_grad()
    out.square().mean().backward()

    sizes = [layer for layer in found.layers if layer.in_module]
    assert [layer.layer for layer in sizes] == [f"model.{at}" for at in range(len(seen))]
    for layer, value in zip(sizes, seen, strict=True):
        assert layer.activation.numel == value.numel()
        assert layer.activation.norm == pytest.approx(norm(value), rel=1e-5)
        assert layer.gradient == pytest.approx(norm(value.grad), rel=1e-2)


def test_a_layer_behind_a_detach_shows_its_activation_and_no_gradient():
    first, second = nn.Linear(4, 4), nn.Linear(4, 1)
    with Observation(each_op=False) as watch:
        second(first(torch.ones(2, 4)).detach()).square().mean().backward()
    sizes = {layer.layer: layer for layer in watch.sizes.facts().depth.layers}

    assert sizes["first"].activation.norm > 0 and sizes["first"].gradient is None
    assert sizes["second"].gradient > 0


def test_ops_outside_of_modules_go_by_their_line():
    w = torch.full((3,), 2.0, requires_grad=True)
    with Observation(each_op=False) as watch:
        h = w * w
        h.sum().backward()
    first = watch.sizes.facts().depth.layers[0]

    assert not first.in_module and "test_norms_depth.py:" in first.layer
    assert (first.activation.norm, first.gradient) == (
        pytest.approx(48**0.5),
        pytest.approx(3**0.5),
    )


def test_a_recurrence_has_its_activations_by_time():
    torch.manual_seed(0)
    cell = nn.RNNCell(3, 8)
    h, seen = torch.zeros(2, 8), []
    with Observation(each_op=False) as watch:
        for _ in range(6):
            h = cell(torch.ones(2, 3), h)
            seen.append(h)
        h.square().mean().backward()
    growth = watch.sizes.facts().growths[-1]

    assert growth.axis == "time"
    assert growth.activations == pytest.approx([norm(h) for h in reversed(seen)], rel=1e-5)
    assert growth.activation_factor is not None


def test_squares_beyond_float32_are_no_inf():
    w = torch.tensor([1e30], requires_grad=True)
    with Observation(each_op=False) as watch:
        h = w * 1.0
        h.log().sum().backward()

    assert watch.sizes.facts().depth.layers[0].activation.norm == pytest.approx(1e30, rel=1e-6)
