"""At how many elements, and by how much, the slope of one op stands out from the others."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from gradscope.dataclass import dataclass
from gradscope.facts import Steep
from gradscope.ops import lookup
from gradscope.ops.display import node_stem
from gradscope.ops.reach import Singularity, reach, singularity
from gradscope.ops.traits import Trait, has
from gradscope.record import graph
from gradscope.record.census import census, first_of, unravel
from gradscope.record.finite import norm_of, plain

LOOKED_AT = 64.0  # times the norm that came into a node, from where on each element is
_ELEMENTS = 2**22  # of a gradient that is looked at element by element
_LOWEST = 2048  # powers of 2 below 1 that float64 has, and some
_APART = 7  # powers of 2 without an element between the steep ones and the others
_PREFIX = "_saved_"
_VIEWS = 4  # nodes between a product and the op that gave its factor: it was expanded, reshaped
_INPUTS = {"self": 0, "other": 1, "tensor2": 2}  # of the node, by the names in the schema


@dataclass(frozen=True, slots=True)
class SteepInput:
    """The `steep` elements of the gradient to input `edge`. `out` is the norm of the gradient that
    came in there, `rest` that of what the other elements handed on; `largest` the largest number
    that the op read or gave, as far as its node has saved them. `factor` is the sequence number of
    the op that gave what the gradient was multiplied by, where it is that which is next to its
    singular point."""

    edge: int
    steep: Steep
    out: float
    rest: float
    largest: float
    factor: int | None = None


def steepest(
    node: Any,
    came: Sequence[torch.Tensor | None],
    handed: Sequence[torch.Tensor | None],
    out: float,
    into: Sequence[float | None],
) -> SteepInput | None:
    """Of the largest gradient that a node handed on; None where that is no larger by far."""
    edge = max(range(len(into)), key=lambda at: into[at] or 0.0, default=-1)
    largest = into[edge] if edge >= 0 else None
    if largest is None or not LOOKED_AT * out < largest < math.inf:
        return None
    most = handed[edge]
    gradient = plain(most) if most is not None else None
    given = [one for one in came if one is not None]
    source = plain(given[0]) if len(given) == 1 else None
    if gradient is None or source is None or gradient.numel() > _ELEMENTS:
        return None
    elementwise = gradient.shape == source.shape and _is_pointwise(node_stem(node.name()).lower())
    # What each element was multiplied by; at least that, where the shapes do not tell which.
    by = source.abs()
    by = torch.where(source == 0, by.max(), by) if elementwise else by.max()
    slopes = gradient.abs().double() / by.double()
    found = _standing_out(slopes)
    if found is None:
        return None
    mask, others = found
    index = unravel(first_of(mask), tuple(mask.shape))
    saved = _saved(node)
    sizes = (float(one.abs().max()) for one in saved.values() if one.numel())
    place, factor = _nearest(node, edge, saved, mask), None
    if place is None:
        place, factor = _of_factor(node, edge)
    slope, count = float(slopes[mask].max()), int(mask.sum())
    return SteepInput(
        edge=edge,
        steep=Steep(slope, others, count, mask.numel(), index, **(place or {})),
        out=norm_of(source[mask] if elementwise else source),
        rest=norm_of(gradient[~mask]),
        largest=max(sizes, default=0.0),
        factor=factor,
    )


@cache
def _is_pointwise(name: str) -> bool:
    """Whether torch says so of the op: a gradient of a matrix product has the shape of what came in
    where there are as many rows as columns, and is no multiple of it."""
    packet = getattr(torch.ops.aten, name, None)
    overloads = packet.overloads() if packet is not None else ()
    return any(torch.Tag.pointwise in getattr(packet, one).tags for one in overloads)


def _standing_out(slopes: torch.Tensor) -> tuple[torch.Tensor, float | None] | None:
    """Where slopes lie beyond the widest gap between them, and the largest on this side of it; all
    of those that are not 0, and None, where there is no such gap."""
    alive = (slopes > 0) & slopes.isfinite()
    if not alive.any():
        return None
    powers = torch.frexp(slopes[alive]).exponent.long() + _LOWEST
    powers = torch.bincount(powers).nonzero().reshape(-1) - _LOWEST
    gaps = powers.diff()
    if not gaps.numel() or int(gaps.max()) < _APART:
        return alive, None
    above = 2.0 ** (float(powers[int(gaps.argmax()) + 1]) - 1)  # frexp: mantissas from 0.5 on
    mask = alive & (slopes >= above)
    return mask, float(slopes[alive & ~mask].max())


def _saved(node: Any) -> dict[str, torch.Tensor]:
    found = {role: graph.saved(node, role) for role in graph.roles(node)}
    values = {role: plain(one) for role, one in found.items() if one is not None}
    return {role: one for role, one in values.items() if one is not None}


def _nearest(
    node: Any, edge: int, saved: dict[str, torch.Tensor], mask: torch.Tensor | None = None
) -> dict[str, Any] | None:
    """The operand next to a singular point of the op, and how near some elements come to it: those
    that are nearest by far, where it is not told which."""
    name = node_stem(node.name()).lower()
    exponent = getattr(node, f"{_PREFIX}exponent", None)
    point = singularity(name, exponent if isinstance(exponent, int | float) else None)
    if point is None or point.beside:
        return None
    found = _values_of(name, point, saved)
    if found is None:
        return None
    values, of = found
    if mask is not None:
        try:
            values = values.expand(mask.shape)
        except RuntimeError:  # a row's norm beside the row's elements
            return None
    distances = torch.stack([(of(values) - at).abs() for at in point.points]).amin(0)
    if mask is None:
        apart = _standing_out(1 / distances)
        mask = apart[0] if apart is not None else torch.ones_like(distances).bool()
    index = unravel(first_of(mask), tuple(mask.shape))
    near, rest = distances[mask], distances[~mask]
    counted = census(of(values), point.argument, values)
    operand = replace(counted, at=float(of(values)[index]))
    return {
        "operand": operand,
        "own": _INPUTS.get(point.argument, edge) == edge,
        "near": float(near.max()),
        "far": float(rest.min()) if rest.numel() else None,
        # What an addition has rounded up a little is there as well.
        "in_reach": float(near.max()) <= 2 * reach(operand.dtype, point.margin, difference=False),
    }


def _of_factor(node: Any, edge: int) -> tuple[dict[str, Any] | None, int | None]:
    """The same of the op that gave what the gradient was multiplied by, where it is next to a
    singular point itself, `x * length.rsqrt()`, and its sequence number."""
    for at, (below, _) in enumerate(node.next_functions):
        for _ in range(_VIEWS):
            if below is None or at == edge or len(below.next_functions) != 1:
                break
            saved = _saved(below)
            name = node_stem(below.name()).lower()
            point = singularity(name)
            if point is not None and _values_of(name, point, saved) is not None:
                place = _nearest(below, 0, saved)
                is_near = place is not None and place["in_reach"]
                return (place, below._sequence_nr()) if is_near else (None, None)
            below = below.next_functions[0][0]
    return None, None


def side_of_divisor(node: Any) -> float | None:
    """1 or -1, the side of 0 on which the one number lies that a node divided by; None where there
    are several, and where it divided by none."""
    if not has(node_stem(node.name()).lower(), Trait.DIVIDES):
        return None
    saved = _saved(node)
    values = saved.get("other", saved.get("result"))  # 1 / x lies on the side of x
    if values is None or values.numel() != 1 or not values.dtype.is_floating_point:
        return None
    return math.copysign(1.0, float(values))


def _values_of(
    name: str, point: Singularity, saved: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]] | None:
    """The operand, or the result that its node saved in its place with the way back."""
    if point.argument in saved:
        return saved[point.argument], torch.Tensor.double
    fact = lookup(name)
    inverse = fact.inverse if fact is not None else None
    if "result" not in saved or inverse is None:
        return None
    back = inverse  # of numbers
    return saved["result"], lambda values: _mapped(values.double(), back)


def _mapped(values: torch.Tensor, back: Callable[[float], float]) -> torch.Tensor:
    numbers = [back(one) for one in values.reshape(-1).tolist()]
    return torch.tensor(numbers, dtype=torch.float64).view(values.shape)
