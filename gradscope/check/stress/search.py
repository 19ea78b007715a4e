"""Tries edge inputs on a function, without the recorder, and shrinks those that break it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradscope.check.stress.subjects import subject_of
from gradscope.check.stress.variants import Values, Variant, edges_of_range, sliced, variants
from gradscope.errors import GradscopeError
from gradscope.target import Conditions, Function, Parts
from gradscope.target.loss import SEED, loss_of

_TRIES = 400  # calls of the function that one shrinking may take
_ELEMENTS = 64  # of a tensor whose elements are simplified one by one


@dataclass(frozen=True, slots=True)
class Found:
    """Inputs that break a function, as expressions. `kind` is "grad" where the loss is finite and
    a gradient is not, "loss" where the loss itself is bad. `access` leads from what the function
    returned to its loss; `sure` is as for a `Variant`, and knows the kind."""

    words: str
    kind: str
    inputs: tuple[tuple[str, str, bool], ...]  # name, expression, requires grad
    access: str
    sure: bool


class Trial:
    """One target with its given inputs."""

    def __init__(self, target: Function | Parts, conditions: Conditions) -> None:
        self.subject = subject_of(target, conditions)
        self.declared = self.subject.declared
        self.given = self.subject.given
        self.wants_grad = self.subject.wants_grad
        self.precision = conditions.precision

    def variants(self) -> Iterator[Variant]:
        """What to try; nothing where the given inputs themselves fail."""
        if self.outcome(Variant("as given", self.given)) is not None:
            return
        yield from edges_of_range(self.given, self.declared)
        yield from variants(self.given, self.declared)
        for dtype in (torch.float16, torch.bfloat16):
            made = {
                name: value.to(dtype)
                if isinstance(value, Tensor) and value.is_floating_point()
                else value
                for name, value in self.given.items()
            }
            if self.precision is None:
                words = str(dtype).removeprefix("torch.")
                yield Variant(words, made, sure=False)

    def found(self, variant: Variant) -> Iterator[Found]:
        """What a variant breaks, at once and then again with the smallest inputs: shrinking may
        meet inputs on which the function hangs."""
        broken = self.outcome(variant)
        if broken is None or (broken[0] == "loss" and not variant.judge_loss):
            return
        kind, access = broken
        yield self._as_found(variant, kind, access)
        yield self._as_found(self.shrunk(variant, kind), kind, access)

    def _as_found(self, variant: Variant, kind: str, access: str) -> Found:
        inputs = tuple(
            (name, self._written(name, value), name in self.wants_grad)
            for name, value in variant.values.items()
        )
        sure = variant.structural or (variant.sure and kind == "grad")
        return Found(variant.words, kind, inputs, access, sure)

    def outcome(self, variant: Variant) -> tuple[str, str] | None:
        """What breaks, and where the loss is found; None where nothing does, or the function does
        not take such inputs."""
        values = {name: self._leaf(name, value) for name, value in variant.values.items()}
        torch.manual_seed(SEED)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = self.subject.call(values)
                loss = loss_of(result, self.subject.name)
                leaves = _leaves(loss)
                if not math.isfinite(loss.item()):
                    return "loss", _access(result)
                grads = torch.autograd.grad(loss, leaves, allow_unused=True)
        except (Exception, GradscopeError):
            return None  # the function refuses such inputs, which is its right
        bad = any(grad is not None and not bool(torch.isfinite(grad).all()) for grad in grads)
        return ("grad", _access(result)) if bad else None

    def shrunk(self, variant: Variant, kind: str) -> Variant:
        """The smallest inputs that break in the same way, with the simplest numbers."""
        left = _TRIES

        def breaks(values: Values) -> bool:
            nonlocal left
            left -= 1
            broken = self.outcome(replace(variant, values=values)) if left > 0 else None
            return broken is not None and broken[0] == kind

        values = _smaller(variant.values, breaks)
        return replace(variant, values=self._simpler(values, breaks))

    def _simpler(self, values: Values, breaks: Callable[[Values], bool]) -> Values:
        for simpler in (torch.zeros_like, torch.ones_like, _rounded):
            together = {
                name: simpler(value) if isinstance(value, Tensor) and _is_plain(value) else value
                for name, value in values.items()
            }
            inside = all(self._is_inside(name, value) for name, value in together.items())
            if inside and breaks(together):
                values = together
                break
        for name, value in values.items():
            if not (isinstance(value, Tensor) and value.is_floating_point() and value.numel()):
                continue
            candidates = [torch.zeros_like(value), torch.ones_like(value), value.round(decimals=1)]
            for simple in candidates:
                if self._is_new(name, simple, value) and breaks({**values, name: simple}):
                    values = {**values, name: simple}
                    break
            else:
                values = self._elements(values, name, breaks)
        return values

    def _elements(self, values: Values, name: str, breaks: Callable[[Values], bool]) -> Values:
        if values[name].numel() > _ELEMENTS:
            return values
        for place in range(values[name].numel()):
            for number in (1.0, 0.0):
                simple = values[name].clone().reshape(-1)
                if float(simple[place]) in (0.0, 1.0):
                    break
                simple[place] = number
                simple = simple.reshape(values[name].shape)
                if self._is_new(name, simple, values[name]) and breaks({**values, name: simple}):
                    values = {**values, name: simple}
                    break
        return values

    def _is_new(self, name: str, simple: Tensor, value: Tensor) -> bool:
        return self._is_inside(name, simple) and not torch.equal(simple, value)

    def _is_inside(self, name: str, value: Any) -> bool:
        declared = self.declared.get(name)
        limits = declared.range if declared else None
        if limits is None or not isinstance(value, Tensor):
            return True
        return bool(((value >= limits[0]) & (value <= limits[1])).all())

    def _leaf(self, name: str, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        copy = value.clone()
        return copy.requires_grad_() if name in self.wants_grad else copy

    def _written(self, name: str, value: Any) -> str:
        if isinstance(value, Tensor):
            return literal(value)
        return self.subject.written(name)


def _smaller(values: Values, breaks: Callable[[Values], bool]) -> Values:
    """Cut each size that occurs, everywhere at once, as long as the inputs still break."""
    while True:
        sizes = {
            size for value in values.values() if isinstance(value, Tensor) for size in value.shape
        }
        for size in sorted(sizes, reverse=True):
            smaller = next(
                (
                    cut
                    for count in dict.fromkeys((1, 2, size // 2, size - 1))
                    if 0 < count < size
                    for first_only in (True, False)
                    if _shapes(cut := sliced(values, size, count, first_only=first_only))
                    != _shapes(values)
                    and breaks(cut)
                ),
                None,
            )
            if smaller is not None:
                values = smaller
                break
        else:
            return values


def _shapes(values: Values) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in values.values() if isinstance(value, Tensor)]


def literal(tensor: Tensor) -> str:
    """Python that makes the tensor."""
    dtype = (
        ""
        if tensor.dtype in (torch.float32, torch.int64, torch.bool)
        else f", dtype={tensor.dtype}"
    )
    if not tensor.numel():
        dtype = f", dtype={tensor.dtype}"
        return f"torch.empty({tuple(tensor.shape)}{dtype})"
    if tensor.numel() > 16 and bool((tensor == tensor.reshape(-1)[0]).all()):
        return f"torch.full({tuple(tensor.shape)}, {_number(tensor.reshape(-1)[0].item())}{dtype})"
    return f"torch.tensor({_nested(tensor.tolist())}{dtype})"


def _nested(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    return _number(value)


def _number(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return f"{value:.9g}" if isinstance(value, float) and value != int(value) else repr(value)


def _is_plain(value: Tensor) -> bool:
    return value.is_floating_point() and bool(torch.isfinite(value).all())


def _rounded(value: Tensor) -> Tensor:
    return value.round(decimals=1)


def _leaves(loss: Tensor) -> list[Tensor]:
    """Every leaf that the loss depends on, parameters of the function's own model included."""
    found: dict[int, Tensor] = {}
    seen = set()
    waiting: list[Any] = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found[id(node.variable)] = node.variable
        waiting += [edge[0] for edge in node.next_functions]
    return list(found.values())


def _access(result: Any) -> str:
    if isinstance(result, dict):
        return '["loss"]'
    if hasattr(result, "loss"):
        return ".loss"
    return "[0]" if isinstance(result, tuple | list) else ""
