"""The derivative of a forward along one direction, by central differences."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradscope.record.probes.calls import Calls, Made, NoVerdict, Point

# The step balances truncation (its square) against rounding (eps over it).
STEPS = {torch.float64: 1e-6, torch.float32: 2e-3}
TOLERANCES = {torch.float64: 1e-4, torch.float32: 2e-2}
# Left and right differences of a smooth function agree to about the step; at a kink they do not.
KINKS = {torch.float64: 1e-3, torch.float32: 8e-2}
_ROUNDINGS = 16  # roundings of the largest value that a forward's result may be off by


@dataclass(frozen=True, slots=True)
class Slope:
    """d outputs / d direction, one number for each output, and what may be trusted of it."""

    direction: Point
    values: Tensor
    smooth: Tensor  # bool: left and right difference agree, and all three values are finite
    noise: float  # by how much rounding alone may move a number in `values`
    flat: bool  # no output moved at all
    step: float
    single: bool  # computed in float32 inside, whatever went in

    def along(self, cotangent: Tensor) -> float:
        return float((self.values * cotangent).sum())


def direction(point: Point, generator: torch.Generator) -> Point:
    """Random signs and sizes. Steps are relative to each element, so that small ones keep their
    sign, and to the whole where an element is (almost) 0."""
    found = []
    for tensor in point:
        size = tensor.abs()
        usual = float(size.square().mean().sqrt()) if size.numel() else 0.0
        usual = usual if 0 < usual < float("inf") else 1.0
        scale = torch.where(
            size > 1e-3 * usual, size.clamp(max=10 * usual), torch.full_like(size, 1e-3 * usual)
        )
        scale = torch.where(size == 0, torch.full_like(size, usual), scale)
        found.append(scale * signs(tensor, generator))
    return found


def signs(like: Tensor, generator: torch.Generator) -> Tensor:
    """Random numbers of either sign with sizes between 0.5 and 1.5: none is near 0."""
    drawn = torch.rand(like.shape, generator=generator, dtype=torch.float64)
    sizes = 0.5 + torch.rand(like.shape, generator=generator, dtype=torch.float64)
    return torch.where(drawn < 0.5, -sizes, sizes).to(like.device, like.dtype)


def slope(calls: Calls, point: Point, base: Made, along: Point, dtype: torch.dtype) -> Slope:
    """Two calls of forward. `dtype` says what precision to expect."""
    step = STEPS[dtype]
    there = calls.forward([x + step * d for x, d in zip(point, along, strict=True)]).values
    back = calls.forward([x - step * d for x, d in zip(point, along, strict=True)]).values
    middle = base.values
    if not there.shape == back.shape == middle.shape:
        raise NoVerdict("the shape of the result depends on the values of the inputs")
    finite = torch.isfinite(there) & torch.isfinite(back) & torch.isfinite(middle)
    there, back, middle = (
        torch.where(finite, t, torch.zeros_like(t)) for t in (there, back, middle)
    )
    right, left = (there - middle) / step, (middle - back) / step
    size = float(middle.abs().max()) if middle.numel() else 0.0
    noise = _ROUNDINGS * torch.finfo(dtype).eps * size / step
    values = (there - back) / (2 * step)
    usual = float(values.abs().mean()) if values.numel() else 0.0
    gap = (right - left).abs()
    curved = 2 * step * size  # what a slope of 0 may differ by on both sides
    allowed = KINKS[dtype] * (right.abs() + left.abs() + usual) + noise + curved
    smooth = finite & (gap <= allowed)
    flat = bool(torch.equal(there, middle) and torch.equal(back, middle))
    single = not flat and bool(torch.equal(there.float().to(there.dtype), there))
    return Slope(along, values, smooth, noise, flat, step, single)


def nudged(point: Point, generator: torch.Generator) -> Point:
    """A point close by, at which ties and zeros are gone."""
    away = direction(point, generator)
    return [x + 3e-3 * d for x, d in zip(point, away, strict=True)]
