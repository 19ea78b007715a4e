"""Activations that lie at their bounds, where they have no slope, from the first step on; and where
the numbers that a layer before them reads come from, which are no results of the program's model.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch

from gradscope.facts import DataMade, Saturated
from gradscope.record.context import RunContext
from gradscope.record.definitions import attribute, data_at
from gradscope.record.finite import plain, rms_of
from gradscope.record.graph import inputs, node_name, saved
from gradscope.record.held import reached_from
from gradscope.record.passes import BackwardPass
from gradscope.record.sites import instruction_of, user_frames

_MOST = 8  # places
_FIRST = 8  # steps: what is met later has been trained until then, as a policy behind a warm-up
_SHARE = 0.9  # of the elements: what is left passes on too little, and too noisy, a gradient
_EACH_SIDE = 0.05  # of these: else a bias is meant, or what is scored is sure
_LEAST = 16  # elements: fewer are there by chance
_SAMPLED = 2**14  # elements
_FARTHEST = 4  # views, and the bias that is added, between the product and the activation
_ROUNDED = torch.finfo(torch.float32).eps  # a slope below it moves nothing
# What the node saves, and where it ends; None where it saves that.
_ENDS: Mapping[str, tuple[str, float | None, float | None]] = {
    "TanhBackward0": ("result", -1.0, 1.0),
    "SigmoidBackward0": ("result", 0.0, 1.0),
    "HardtanhBackward0": ("self", None, None),
    "HardsigmoidBackward0": ("self", -3.0, 3.0),
    "ErfBackward0": ("self", -4.0, 4.0),
}
# Under which name products save what they multiply by a weight, and at which input each is.
_PRODUCTS = {
    "AddmmBackward0": (("mat1", 1, 2), ("mat2", 2, 1)),
    "MmBackward0": (("self", 0, 1), ("mat2", 1, 0)),
    "ConvolutionBackward0": (("input", 0, 1),),
}
_MANY = 2**24  # elements of data among which a sample is looked for


@dataclass(slots=True)
class _Sides:
    """Of the results at one place in one pass."""

    low: int = 0
    high: int = 0
    count: int = 0
    activation: Any = None  # the last, which is nearest to the data, and what it is given
    product: Any = None

    @property
    def share(self) -> float:
        return (self.low + self.high) / self.count

    @property
    def is_lost(self) -> bool:
        flat = self.low + self.high
        is_most = self.count >= _LEAST and flat >= _SHARE * self.count
        return is_most and min(self.low, self.high) >= _EACH_SIDE * flat


class Saturation:
    """What the graphs of the steps show that are looked at in full."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._apart = set[object]()  # places with a slope
        self._found: dict[object, Saturated] = {}  # by place

    def facts(self) -> tuple[Saturated, ...]:
        return tuple(self._found.values())

    def before_backward(self, one: BackwardPass) -> None:
        """While the graph still holds what its nodes have saved."""
        sides: dict[object, _Sides] = {}
        for node in one.above if one.trains else ():
            if (name := node_name(node)) not in _ENDS:
                continue
            note = self._context.call_of_node(node)
            module = id(note.module.module) if note is not None and note.module else None
            place: object = (name, instruction_of(note.user), module) if note is not None else None
            if place is None or place in self._apart:
                continue
            product = self._product(node)
            measured = _at_ends(node) if product is not None else None
            if measured is None:
                self._leave(place)
                continue
            at = sides.setdefault(place, _Sides())
            at.low, at.high = at.low + measured[0], at.high + measured[1]
            at.count += measured[2]
            at.activation, at.product = node, product
        for place, at in sides.items():
            if at.is_lost and place not in self._apart:
                self._keep(place, at, one)
            else:
                self._leave(place)

    def _leave(self, place: object) -> None:
        self._apart.add(place)
        self._found.pop(place, None)

    def _keep(self, place: object, at: _Sides, one: BackwardPass) -> None:
        step, known = self._context.step, self._found.get(place)
        if known is not None:
            steps = tuple(dict.fromkeys((*known.steps, step)))
            least = min(known.share, at.share)
            self._found[place] = replace(known, steps=steps, share=least)
        elif step < _FIRST and len(self._found) < _MOST:
            call, read = self._context.call(at.activation), _read_by(at.product)
            if call is None or read is None:
                self._leave(place)
                return
            values, weight, has_graph = read
            fan = weight[0].numel() if values.dim() > 2 else values.shape[-1]
            gain = rms_of(weight) * math.sqrt(fan)
            name = self._context.names.name_of_leaf(weight, one.frame) or "the weight"
            made = None if has_graph else _made(values, one.frame)
            self._found[place] = Saturated(
                call, (step,), at.share, name, gain, rms_of(values), not has_graph, made
            )
        else:
            self._leave(place)

    def _product(self, node: Any) -> Any:
        """The product with a weight that an activation is given as it is; a factor in between, as
        that of a step that is to be sharp, is meant."""
        for _ in range(_FARTHEST):
            below = [one for one in inputs(node) if not hasattr(one, "variable")]
            if len(below) != 1:
                return None
            (node,) = below
            if node_name(node) in _PRODUCTS:
                return node
            note = self._context.call_of_node(node)
            if note is None or not (note.info.view or node_name(node) == "AddBackward0"):
                return None
        return None


def _at_ends(node: Any) -> tuple[int, int, int] | None:
    """How many of its results have no slope at the lower and at the upper bound, and of how many;
    None where that cannot be read."""
    role, low, high = _ENDS[node_name(node)]
    kept = saved(node, role)
    values = plain(kept) if kept is not None else None
    if values is None or not values.numel() or not values.is_floating_point():
        return None
    low = float(node._saved_min_val) if low is None else low
    high = float(node._saved_max_val) if high is None else high
    within = min(torch.finfo(values.dtype).eps, _ROUNDED) if role == "result" else 0.0
    flat = values.reshape(-1)
    flat = flat[:: max(1, flat.numel() // _SAMPLED)]
    below, above = (flat <= low + within).sum(), (flat >= high - within).sum()
    return int(below), int(above), flat.numel()


def _read_by(product: Any) -> tuple[torch.Tensor, torch.Tensor, bool] | None:
    """What a product multiplies by a weight that is trained, that weight, and whether the former
    has a graph itself."""
    for role, own, other in _PRODUCTS[node_name(product)]:
        node = product.next_functions[other][0]
        while node is not None and not hasattr(node, "variable"):  # its transpose
            node = inputs(node)[0] if len(inputs(node)) == 1 else None
        kept = saved(product, role) if node is not None else None
        values = plain(kept) if kept is not None else None
        if node is not None and values is not None and values.dim() > 1 and values.numel():
            if isinstance(node.variable, torch.Tensor) and node.variable.dim() > 1:
                return values, node.variable, product.next_functions[own][0] is not None
    return None


def _made(batch: torch.Tensor, frame: FrameType) -> DataMade | None:
    """Where the program makes the data that a batch is of: the largest that a variable leads to,
    and of several names the one of the outermost function."""
    best: tuple[int, DataMade] | None = None
    for current in reversed(user_frames(frame)):
        for name, value, holder in reached_from(current.f_locals):
            rows = _rows_like(value, batch) if isinstance(value, torch.Tensor) else None
            if rows is None or (best is not None and best[0] >= len(rows)):
                continue
            found = next(_places(current, name, holder), None)
            if found is not None and _holds(rows, batch):
                is_even = value.dim() == 2 and bool((rows.std(0) > 0).all())
                place, written = found
                best = len(rows), DataMade(place, written, is_even, value.is_floating_point())
    return best[1] if best is not None else None


def _places(frame: FrameType, name: str, holder: Any) -> Iterator[tuple[Any, str]]:
    if holder is None:
        found = data_at(frame.f_code, name)
        yield from (found,) if found is not None else ()
    elif "." in name and (place := attribute(type(holder), name.rpartition(".")[2])) is not None:
        yield place, f"self.{name.rpartition('.')[2]}"


def _rows_like(value: torch.Tensor, batch: torch.Tensor) -> torch.Tensor | None:
    """What may be samples as those of a batch, one a row."""
    values = plain(value) if not value.requires_grad and value.dim() > 1 else None
    size = batch[0].numel()
    if values is None or not 1 < len(values) <= values.numel() <= _MANY:
        return None
    if values[0].numel() == size:
        return values.reshape(len(values), -1)
    return values.reshape(-1, size) if values.shape[-1] == size else None


def _holds(rows: torch.Tensor, batch: torch.Tensor) -> bool:
    first = batch[0].reshape(-1).to(rows.dtype)
    likely = rows[rows[:, 0] == first[0].to(rows.device)]
    return bool((likely == first.to(rows.device)).all(-1).any())
