"""The right gradient of a Function at one point: by autograd through its forward where central
differences confirm it, else by differences alone."""

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from gradscope.dataclass import dataclass
from gradscope.record.census import unravel
from gradscope.record.finite import ends_of
from gradscope.record.graph import consumers, leaves
from gradscope.record.probes.calls import Calls, Made, NoVerdict, Point, as_real
from gradscope.record.probes.relations import Evidence, rows, wrong_at

OUTPUT = "the output"  # what the only one is called
# The step balances truncation (its square) against rounding (eps over it).
STEPS = {torch.float64: 1e-6, torch.float32: 2e-3}
TOLERANCES = {torch.float64: 1e-4, torch.float32: 2e-2}  # of a difference quotient
# Gradients that two formulas compute in the same precision, where the numbers agree otherwise.
ELEMENTWISE = {torch.float64: 1e-4, torch.float32: 2e-3}
# Left and right differences of a smooth function agree to about the step; at a kink they do not.
KINKS = {torch.float64: 1e-3, torch.float32: 8e-2}
_ROUNDINGS = 16  # roundings of the largest value that a forward's result may be off by

_SPREAD = 0.05  # of the value of an input that is the same everywhere

# For each input of the point, the gradients for two grad_outputs: float64, of shape (2, *shape).
Gradients = list[Tensor]


@dataclass(frozen=True, slots=True)
class Slope:
    """d outputs / d direction, one float64 number for each output, and what to trust of it."""

    direction: Point
    values: Tensor
    smooth: Tensor  # bool: left and right difference agree, and all three values are finite
    noise: float  # by how much rounding alone may move a number in `values`
    step: float
    single: bool  # computed in float32 inside, whatever went in


def _is_uniform(tensor: Tensor) -> bool:
    least, greatest = ends_of(tensor)
    return least == greatest


class Sample:
    """The point, the slope of the forward there along a random direction, and two random
    grad_outputs, of shape (2, outputs). `precision` is what the forward computes in, whatever goes
    in. `edges` mark the elements that have no right gradient, once they are known: those at the
    edge of the forward's domain, and those that it writes over and that depend on no leaf. `others`
    are ones for the outputs that are flat, where there are more."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.precision = calls.dtype
        self.edges: list[Tensor] | None = None
        self._generator = torch.Generator().manual_seed(0)
        self.point, self.base = self._start()
        self.slope = self.slope_along(self.direction())
        if self.slope.single and self.precision is torch.float64:
            self.precision = torch.float32
            self.slope = self.slope_along(self.direction())
        elif not bool(self.slope.smooth.any()):
            # A point close by, at which ties and zeros are gone.
            pairs = zip(self.point, self.direction(), strict=True)
            self.point = [x + 3e-3 * d for x, d in pairs]
            self.base = calls.forward(self.point)
            self.slope = self.slope_along(self.direction())
        if not bool(self.slope.smooth.any()):
            raise NoVerdict("the forward has a kink in every direction that was tried")
        # An output at a kink has no derivative to compare with: no gradient is sent into it.
        moving = self._moving()
        sent = self.slope.smooth & moving
        drawn = [self._signs(self.base.values) * sent for _ in range(2)]
        self.cotangents = torch.stack(drawn).double()
        self.others = None if bool(moving.all()) else (~moving).double()

    def _moving(self) -> Tensor:
        """Not the outputs that are flat beside others, as a spike is beside its potential: what
        their gradient gives is somebody's choice."""
        sizes = [as_real(self.base.outputs[one]).numel() for one in self.base.live]
        moving = [one.any().expand_as(one) for one in self.slope.values.split(sizes)]
        return torch.cat(moving) | ~self.slope.values.any()

    def _start(self) -> tuple[Point, Made]:
        """The point where the program called the Function. An input that is the same at each
        element, as a new gain is, hides a factor or a term that backward has forgotten: it is moved
        a little where the forward goes along with that."""
        start = self.calls.start()
        point = [self._spread(one) if _is_uniform(one) else one for one in start]
        if any(one is not other for one, other in zip(point, start, strict=True)):
            with suppress(Exception):
                made = self.calls.forward(point)
                if bool(made.values.isfinite().all()):
                    return point, made
        return start, self.calls.forward(start)

    def _spread(self, uniform: Tensor) -> Tensor:
        size = uniform.abs().where(uniform != 0, torch.ones_like(uniform))
        return uniform + _SPREAD * size * self._signs(uniform)

    def direction(self) -> Point:
        """Random signs and sizes. Steps are relative to each element, so that small ones keep their
        sign, and to the whole where an element is (almost) 0."""
        found = []
        for tensor in self.point:
            size = tensor.abs()
            usual = float(size.square().mean().sqrt()) if size.numel() else 0.0
            usual = usual if 0 < usual < float("inf") else 1.0
            scale = size.clamp(1e-3 * usual, 10 * usual)
            scale = torch.where(size == 0, torch.full_like(size, usual), scale)
            found.append(scale * self._signs(tensor))
        return found

    def _signs(self, like: Tensor) -> Tensor:
        """Random numbers of either sign with sizes between 0.5 and 1.5: none is near 0."""
        drawn, sizes = torch.rand((2, *like.shape), generator=self._generator, dtype=torch.float64)
        return torch.where(drawn < 0.5, -0.5 - sizes, 0.5 + sizes).to(like.device, like.dtype)

    def slope_along(self, along: Point) -> Slope:
        """Two calls of forward."""
        step = STEPS[self.precision]
        pairs = list(zip(self.point, along, strict=True))
        there = self.calls.forward([x + step * d for x, d in pairs]).values
        back = self.calls.forward([x - step * d for x, d in pairs]).values
        if not there.shape == back.shape == self.base.values.shape:
            raise NoVerdict("the shape of the result depends on the values of the inputs")
        results = torch.stack([there, self.base.values, back])
        finite = results.isfinite().all(0)
        there, middle, back = torch.where(finite, results, torch.zeros_like(results))
        right, left = (there - middle) / step, (middle - back) / step
        size = float(middle.abs().max()) if middle.numel() else 0.0
        noise = _ROUNDINGS * torch.finfo(self.precision).eps * size / step
        values = (there - back) / (2 * step)
        usual = float(values.abs().mean()) if values.numel() else 0.0
        curved = 2 * step * size  # what a slope of 0 may differ by on both sides
        allowed = KINKS[self.precision] * (right.abs() + left.abs() + usual) + noise + curved
        smooth = finite & ((right - left).abs() <= allowed)
        moved = not (torch.equal(there, middle) and torch.equal(back, middle))
        single = moved and torch.equal(there.float().to(there.dtype), there)
        return Slope(along, values.double(), smooth, noise, step, single)

    # What backward returned

    def fits(self, place: int, raw: Any, exactly: bool = False) -> bool:
        """Whether autograd takes it: of the input's shape, or (not `exactly`) of one that is summed
        down to it."""
        if raw is None:
            return True
        if not isinstance(raw, Tensor):
            return False
        shape, needed = self._in_parts(place, raw).shape, self.point[place].shape
        if exactly:
            return shape == needed
        tail = shape[len(shape) - len(needed) :] if len(shape) >= len(needed) else ()
        return len(tail) == len(needed) and all(
            b in (a, 1) for a, b in zip(tail, needed, strict=True)
        )

    def adapted(self, place: int, raw: Any) -> Tensor:
        """As autograd would hand it on, in float64."""
        like = self.point[place]
        if raw is None:
            return torch.zeros_like(like, dtype=torch.float64)
        dense = self._in_parts(place, raw.to_dense() if raw.is_sparse else raw)
        return self.inside(place, dense.detach().double().sum_to_size(like.shape))

    def _in_parts(self, place: int, raw: Tensor) -> Tensor:
        """As the point has it: autograd drops the imaginary part for a real input, and takes a
        real gradient of a complex one for one without an imaginary part."""
        if self.input(place).is_complex():
            return as_real(raw if raw.is_complex() else raw.to(raw.dtype.to_complex()))
        return raw.real if raw.is_complex() else raw

    def unused(self, place: int) -> Tensor:
        """The elements that forward writes over, where no leaf of the program gets the gradient."""
        changed, given = self.base.changed[place], self.input(place)
        if not bool(changed.any()) or given.is_complex():
            return torch.zeros_like(changed)
        root = given.grad_fn
        found = leaves(consumers([root])) if root is not None else [given]
        sent = torch.autograd.grad(
            given, found, changed.to(given.dtype), retain_graph=True, allow_unused=True
        )
        reaches = any(one is not None and bool(one.any()) for one in sent)
        return changed & (not reaches)

    def inside(self, place: int, gradient: Tensor) -> Tensor:
        """Without the elements that have no right gradient."""
        return gradient if self.edges is None else gradient.masked_fill(self.edges[place], 0.0)

    # The inputs

    def input(self, place: int) -> Tensor:
        """As the program gave it."""
        found = self.calls.args[self.calls.positions[place]]
        assert isinstance(found, Tensor)
        return found

    def name(self, place: int) -> str:
        return self.calls.name(self.calls.positions[place])

    def tensors(self) -> dict[str, Tensor]:
        """The Function's inputs and its outputs at the point, by name, in float64: none that is
        complex, which is no factor of pairs."""
        calls = self.calls
        values = dict(enumerate(calls.args)) | dict(zip(calls.positions, self.point, strict=True))
        found = {
            calls.name(position): values[position].detach()
            for position, arg in enumerate(calls.args)
            if isinstance(arg, Tensor) and arg.is_floating_point()
        }
        for place in self.base.live:
            name = OUTPUT if len(self.base.live) == 1 else f"output {place}"
            found[name] = self.base.outputs[place].detach()
        return {name: one.double() for name, one in found.items() if not one.is_complex()}

    def alike(self, place: int) -> dict[str, Tensor]:
        """Those of an input's shape, itself first."""
        own = self.name(place)
        found = sorted(self.tensors().items(), key=lambda pair: pair[0] != own)
        return {name: one for name, one in found if one.shape == self.point[place].shape}

    def count(self, place: int, marked: Tensor) -> int:
        """How many of an input's elements are marked: of complex ones, in either part."""
        return int((marked.any(-1) if self.input(place).is_complex() else marked).sum())

    def whereabouts(self, place: int, flat: int) -> tuple[tuple[int, ...], float | None]:
        """An element by its position in the flattened point: its index, and its value there."""
        index = unravel(flat, tuple(self.point[place].shape))
        if self.input(place).is_complex():
            return index[:-1], None
        return index, float(self.point[place].reshape(-1)[flat])


@dataclass(frozen=True, slots=True)
class Truth:
    """The right gradients, and for a grad_output of ones (`unit`); where they come from, in words.
    `whole`: they are single numbers, along a direction. `answered`: ones for the outputs that
    are flat, on whose gradient this one is to depend too."""

    right: Gradients
    unit: list[Tensor]
    words: str
    tolerance: float
    noise: float = 0.0
    whole: bool = False
    by_autograd: bool = False
    answered: Tensor | None = None

    def evidence(self, sample: Sample, place: int, got: Gradients) -> Evidence:
        mine, right, unit = got[place], self.right[place], self.unit[place]
        if self.whole:
            mine = rows(mine * sample.slope.direction[place]).sum(1, keepdim=True)
        smooth, wrong = (
            sample.slope.smooth,
            wrong_at(mine, right, self.tolerance, self.noise).any(0),
        )
        aligned = not self.whole and unit.numel() == smooth.numel() and bool(smooth.all())
        return Evidence(
            mine, right, unit, sample.cotangents, wrong, self.tolerance, self.noise, aligned
        )


def right_gradients(sample: Sample, got: Gradients) -> Truth | None:
    """The right gradients; None where the difference quotient finds nothing wrong."""
    agrees = _agree(sample, got, sample.slope, sample.cotangents)
    truth = by_autograd(sample)
    if truth is not None:
        return truth if not agrees or _holds_at_suspects(sample, got, truth) else None
    if agrees:
        return None
    return _local(sample) or _numbers(sample)


def by_autograd(sample: Sample) -> Truth | None:
    """Autograd's own gradients of the forward; None where the difference quotient differs."""
    tape = sample.calls.taped(sample.point, sample.base)
    if tape is None:
        return None
    ones = sample.slope.smooth.double()
    pieces = [tape(cotangent) for cotangent in (*sample.cotangents, ones)]
    *right, unit = (
        [sample.inside(p, g.detach().double()) for p, g in enumerate(one)] for one in pieces
    )
    stacked = [torch.stack(pair) for pair in zip(*right, strict=True)]
    if not _agree(sample, stacked, sample.slope, sample.cotangents):
        return None
    words = "autograd through forward, which a central difference confirms"
    return Truth(stacked, unit, words, ELEMENTWISE[sample.precision], by_autograd=True)


def _agree(sample: Sample, gradients: Gradients, slope: Slope, cotangents: Tensor) -> bool:
    """Whether gradients and a difference quotient give the same numbers along its direction."""
    pairs = zip(gradients, slope.direction, strict=True)
    parts = torch.cat([rows(g * d) for g, d in pairs], dim=1)
    here, there = parts.sum(1), cotangents @ slope.values
    largest = torch.maximum(here.abs(), there.abs())
    size = torch.maximum(largest, torch.minimum(parts.norm(dim=1), 10 * largest))
    allowed = TOLERANCES[sample.precision] * size + slope.noise * cotangents.norm(dim=1)
    return bool(((here - there).abs() <= allowed).all())


def _holds_at_suspects(sample: Sample, got: Gradients, truth: Truth) -> bool:
    """All in all the gradient is right, and autograd's differs at a few elements: these alone
    decide, unless they are at a kink, where any slope between left and right will do."""
    wrong = [truth.evidence(sample, place, got).wrong for place in range(len(got))]
    if not any(bool(one.any()) for one in wrong):
        return False
    along = [d * w for d, w in zip(sample.direction(), wrong, strict=True)]
    found = sample.slope_along(along)
    if not bool((found.smooth | ~sample.slope.smooth).all()):
        return False
    return not _agree(sample, got, found, sample.cotangents * found.smooth)


def _local(sample: Sample) -> Truth | None:
    """Where each output depends on its own element of the one input, two directions show it,
    and the difference quotients are the derivative of every element."""
    if len(sample.point) != 1 or sample.base.values.numel() != sample.point[0].numel():
        return None
    slopes = (sample.slope, sample.slope_along(sample.direction()))
    rates = [slope.values / slope.direction[0].reshape(-1) for slope in slopes]
    smooth = slopes[0].smooth & slopes[1].smooth
    smallest = float(slopes[0].direction[0].abs().min())
    noise = 2 * slopes[0].noise / smallest if smallest else 0.0
    tolerance = TOLERANCES[sample.precision]
    if bool((wrong_at(rates[0], rates[1], tolerance, noise) & smooth).any()):
        return None
    shape = sample.point[0].shape
    rate = torch.where(smooth, rates[0], torch.zeros_like(rates[0]))
    words = f"central difference with relative step {slopes[0].step:g}"
    right = (rate * sample.cotangents).view(2, *shape)
    return Truth([right], [rate.view(shape)], words, tolerance, noise)


def _numbers(sample: Sample) -> Truth:
    """One number for each input: the derivative along a direction."""
    slopes: list[Tensor] = []
    for place in range(len(sample.point) - 1):
        if sample.calls.left < 3:
            break  # what is left is put down to the next input
        along = [
            d if other == place else torch.zeros_like(d)
            for other, d in enumerate(sample.slope.direction)
        ]
        slopes.append(sample.slope_along(along).values)
    # The slope along all inputs together is the sum of the slopes along each.
    rest = sample.slope.values - sum(slopes)
    slopes += [rest, *[torch.zeros_like(rest)] * (len(sample.point) - len(slopes) - 1)]
    words = f"central difference along a random direction, relative step {sample.slope.step:g}"
    return Truth(
        [(sample.cotangents @ values)[:, None] for values in slopes],
        [values[sample.slope.smooth].sum().reshape(1) for values in slopes],
        words,
        TOLERANCES[sample.precision],
        sample.slope.noise * float(sample.cotangents[0].norm()),
        whole=True,
    )
