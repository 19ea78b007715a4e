"""Where and how one Function is called in an experiment, and what its backward returned there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradscope.facts import FunctionCheck
from gradscope.record.census import unravel
from gradscope.record.graph import function_name
from gradscope.record.probes.blame import Watcher
from gradscope.record.probes.calls import (
    Calls,
    Cotangent,
    Gradients,
    Made,
    NoVerdict,
    Point,
    as_real,
)
from gradscope.record.probes.slopes import Slope, direction, nudged, signs, slope

# Gradients that two formulas compute in the same precision, where the numbers agree otherwise.
OUTPUT = "the output"  # what the only one is called
ELEMENTWISE = {torch.float64: 1e-4, torch.float32: 2e-3}


class Setting:
    """The point, the slope of the forward there along a random direction, and two random
    grad_outputs. `precision` is what the forward computes in, whatever goes in."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.generator = torch.Generator().manual_seed(0)
        self.precision = calls.dtype
        self.point = calls.start()
        self.base, self.slope = self._first_slope()
        smooth = self.slope.smooth
        if not bool(smooth.any()):
            raise NoVerdict("the forward has a kink in every direction that was tried")
        # An output at a kink has no derivative to compare with: no gradient is sent into it.
        first, second = (signs(self.base.values, self.generator) * smooth for _ in range(2))
        self.cotangents: tuple[Cotangent, Cotangent] = (first, second)
        self.ones: Cotangent = torch.ones_like(self.base.values) * smooth
        self.names = calls.names()
        self.edges: list[Tensor] | None = None  # where neither gradient is finite, nor the slope

    def _first_slope(self) -> tuple[Made, Slope]:
        base = self.calls.forward(self.point)
        found = self.slope_at(base)
        if found.single and self.precision is torch.float64:
            self.precision = torch.float32
            found = self.slope_at(base)
        elif not bool(found.smooth.any()):
            self.point = nudged(self.point, self.generator)
            base = self.calls.forward(self.point)
            found = self.slope_at(base)
        return base, found

    def slope_at(self, base: Made, along: Point | None = None) -> Slope:
        along = along if along is not None else direction(self.point, self.generator)
        return slope(self.calls, self.point, base, along, self.precision)

    # What backward returned

    def fits(self, place: int, raw: Any) -> bool:
        """Whether autograd takes it: of the input's shape, or of one that is summed down to it."""
        shape = self.point[place].shape
        return raw is None or (
            isinstance(raw, Tensor) and _sums_to(self._in_parts(place, raw).shape, shape)
        )

    def adapted(self, place: int, raw: Any) -> Tensor:
        """As autograd would hand it on, in float64."""
        like = self.point[place]
        if raw is None:
            return torch.zeros_like(like, dtype=torch.float64)
        dense = self._in_parts(place, raw.to_dense() if raw.is_sparse else raw)
        return self.inside(place, dense.detach().to(torch.float64).sum_to_size(like.shape))

    def is_complex(self, place: int) -> bool:
        return bool(self.calls.args[self.calls.positions[place]].is_complex())

    def numel(self, place: int) -> int:
        return int(self.calls.args[self.calls.positions[place]].numel())

    def count(self, place: int, marked: Tensor) -> int:
        """How many of an input's elements are marked: of complex ones, in either part."""
        return int((marked.any(-1) if self.is_complex(place) else marked).sum())

    def whereabouts(self, place: int, flat: int) -> dict[str, Any]:
        """An element by its position in the flattened point: its index, and its value there."""
        index = unravel(flat, tuple(self.point[place].shape))
        if self.is_complex(place):
            return {"index": index[:-1]}
        return {"index": index, "at": float(self.point[place].reshape(-1)[flat])}

    def _in_parts(self, place: int, raw: Tensor) -> Tensor:
        """As the point has it: autograd drops the imaginary part for a real input, and takes a
        real gradient of a complex one for one without an imaginary part."""
        if self.is_complex(place):
            return as_real(raw if raw.is_complex() else raw.to(raw.dtype.to_complex()))
        return raw.real if raw.is_complex() else raw

    def inside(self, place: int, gradient: Tensor) -> Tensor:
        """Without the elements at the edge of the forward's domain: there is no right gradient."""
        if self.edges is None:
            return gradient
        return torch.where(self.edges[place], torch.zeros_like(gradient), gradient)

    def doubled(self, gradients: list[Tensor]) -> list[Tensor]:
        return [self.inside(p, g.detach().to(torch.float64)) for p, g in enumerate(gradients)]

    def watched(self) -> tuple[Watcher, Gradients]:
        """The first backward again, with its ops observed."""
        torch.rand(())  # one that draws random numbers must not draw the same again
        watcher = Watcher(self.calls.formula)
        with watcher:
            return watcher, self.calls.backward(self.base, self.cotangents[0])

    def repeats(self, first: Gradients, second: Gradients) -> bool:
        pairs = [
            (self.adapted(p, a), self.adapted(p, b))
            for p, (a, b) in enumerate(zip(first, second, strict=True))
        ]
        return all(torch.allclose(a, b, rtol=1e-6, atol=0.0, equal_nan=True) for a, b in pairs)

    # Names

    def tensors(self) -> dict[str, Tensor]:
        """The Function's inputs and its outputs at the point, by name."""
        found = {}
        for position, arg in enumerate(self.calls.args):
            if isinstance(arg, Tensor) and arg.is_floating_point():  # a factor that is no pair
                inside = position in self.calls.positions
                value = self.point[self.calls.positions.index(position)] if inside else arg.detach()
                found[self.names.get(position, f"argument {position}")] = value.to(torch.float64)
        for place in self.base.live:
            name = OUTPUT if len(self.base.live) == 1 else f"output {place}"
            output = self.base.outputs[place].detach()
            if not output.is_complex():
                found[name] = output.to(torch.float64)
        return found

    def named(self, place: int) -> dict[str, Tensor]:
        shape = self.point[place].shape
        tensors = {name: t for name, t in self.tensors().items() if t.shape == shape}
        own = self.name(place)
        return {**({own: tensors[own]} if own in tensors else {}), **tensors}

    def name(self, place: int) -> str:
        position = self.calls.positions[place]
        return self.names.get(position, f"argument {position}")

    def size(self, factor: float | None, place: int) -> str:
        """What a factor, or one over it, is where that is a size of the problem."""
        if factor is None:
            return ""
        x, outputs = self.point[place], self.base.values.numel()
        out = self.base.outputs[self.base.live[0]] if self.base.values.numel() > 1 else x
        sizes = {
            f"the number of elements of `{self.name(place)}`": x.numel(),
            "the batch size": out.shape[0] if out.ndim else 1,
            f"the first dimension of `{self.name(place)}`": x.shape[0] if x.ndim else 1,
            f"the last dimension of `{self.name(place)}`": x.shape[-1] if x.ndim else 1,
            "the number of outputs": outputs,
        }
        for name, size in sizes.items():
            if size > 3 and min(abs(factor / size - 1), abs(factor * size - 1)) < 1e-3:
                return name
        return ""

    def fact(self, place: int, verdict: str, **facts: Any) -> FunctionCheck:
        calls, cls = self.calls, self.calls.cls
        known: dict[str, Any] = {
            "input": self.name(place),
            "position": calls.positions[place],
            "node": f"{cls.__name__}Backward",
            "shape": tuple(calls.args[calls.positions[place]].shape),
            "numel": self.numel(place),
            "dtype": str(calls.dtype).removeprefix("torch."),
            "epsilon": self.slope.step,
            "tolerance": ELEMENTWISE[self.precision],
            "calls": calls.made,
        }
        return FunctionCheck(function_name(cls), verdict, 0, **{**known, **facts})


def _sums_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    if len(shape) < len(target):
        return False
    tail = shape[len(shape) - len(target) :]
    return all(b in (a, 1) for a, b in zip(tail, target, strict=True))
