"""Tries edge inputs on a function, without the recorder, and shrinks those that break it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradscope.check.stress.literals import literal
from gradscope.check.stress.scores import Reads, grads_are_finite, reads
from gradscope.check.stress.smaller import smaller
from gradscope.check.stress.subjects import subject_of
from gradscope.check.stress.variants import (
    BadLoss,
    Values,
    Variant,
    edges_of_range,
    halves,
    is_float,
    variants,
)
from gradscope.errors import GradscopeError
from gradscope.facts import Severity
from gradscope.programs import Conditions, Function, Parts
from gradscope.programs.loss import SEED, loss_of

_TRIES = 400  # calls of the function that one shrinking may take
_ELEMENTS = 64  # of a tensor whose elements are simplified one by one


@dataclass(frozen=True, slots=True)
class Found:
    """Inputs that break a function, as expressions. `kind` is "grad" where the loss is finite and
    a gradient is not, "loss" where the loss itself is bad. `access` leads from what the function
    returned to its loss."""

    words: str
    kind: str
    inputs: tuple[tuple[str, str, bool], ...]  # name, expression, requires grad
    access: str
    severity: Severity


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one call: its loss, and whether every gradient was finite."""

    loss: float
    finite_grads: bool
    access: str

    @property
    def broken(self) -> str | None:
        if not math.isfinite(self.loss):
            return "loss"
        return None if self.finite_grads else "grad"


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
        as_given = self.outcome(self.given)
        if as_given is None or as_given.broken:
            return
        yield from edges_of_range(self.given, self.declared)
        yield from variants(self.given, self.declared, self._reads())
        if self.precision is None:
            yield from halves(self.given)

    def found(self, variant: Variant) -> Iterator[Found]:
        """What a variant breaks, at once and then again with the smallest inputs: shrinking may
        meet inputs on which the function hangs."""
        outcome = self.outcome(variant.values)
        if outcome is None or outcome.broken is None:
            return
        if outcome.broken == "loss" and not _tells(outcome.loss, variant.bad_loss):
            return
        severity = self._severity(variant, outcome.broken)
        yield self._as_found(variant, outcome, severity)
        yield self._as_found(self.shrunk(variant, outcome.broken, severity), outcome, severity)

    def _as_found(self, variant: Variant, outcome: Outcome, severity: Severity) -> Found:
        inputs = tuple(
            (name, self._written(name, value), name in self.wants_grad)
            for name, value in variant.values.items()
        )
        return Found(variant.words, outcome.broken or "", inputs, outcome.access, severity)

    def _severity(self, variant: Variant, broken: str) -> Severity:
        """A function may be right to have no finite loss at numbers that nobody gave it; and an
        epsilon that float16 cannot hold is no news to who trains in float32."""
        if variant.half:
            return Severity.WARNING if broken == "loss" else Severity.NOTE
        if broken == "grad" or variant.ordinary or self._is_avoidable(variant.values):
            return Severity.ERROR
        return Severity.WARNING

    def _is_avoidable(self, values: Values) -> bool:
        """Whether the function has a loss there that float32 could hold: float64 knows it."""
        if self.precision is not None:
            return False
        precise = {
            name: value.double()
            if isinstance(value, Tensor) and value.dtype == torch.float32
            else value
            for name, value in values.items()
        }
        outcome = self.outcome(precise)
        return outcome is not None and abs(outcome.loss) < torch.finfo(torch.float32).max

    def outcome(self, values: Values) -> Outcome | None:
        """What becomes of these values; None where the function does not take them."""
        leaves = {name: self._leaf(name, value) for name, value in values.items()}
        torch.manual_seed(SEED)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = self.subject.call(leaves)
                loss = loss_of(result, self.subject.name)
                value = loss.item()
                finite = math.isfinite(value) and grads_are_finite(loss)
        except (Exception, GradscopeError):
            return None  # the function refuses such inputs, which is its right
        return Outcome(value, finite, _access(result))

    def _reads(self) -> Reads:
        """How the function reads its inputs, those too whose gradient nobody wants."""
        leaves = {
            name: value.clone().requires_grad_() if is_float(value) else value
            for name, value in self.given.items()
        }
        torch.manual_seed(SEED)
        try:
            return reads(loss_of(self.subject.call(leaves), self.subject.name), leaves)
        except (Exception, GradscopeError):
            return Reads()  # it writes into what it is given

    def shrunk(self, variant: Variant, broken: str, severity: Severity) -> Variant:
        """The smallest inputs that break in the same way, with the simplest numbers."""
        left = _TRIES

        def breaks(values: Values) -> bool:
            nonlocal left
            left -= 1
            outcome = self.outcome(values) if left > 0 else None
            if outcome is None or outcome.broken != broken:
                return False
            return self._severity(replace(variant, values=values), broken) is severity

        values = smaller(variant.values, self.given, breaks, self._works)
        return replace(variant, values=values if variant.half else self._simpler(values, breaks))

    def _works(self, values: Values) -> bool:
        outcome = self.outcome(values)
        return outcome is not None and outcome.broken is None

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


def _is_plain(value: Tensor) -> bool:
    return value.is_floating_point() and bool(torch.isfinite(value).all())


def _rounded(value: Tensor) -> Tensor:
    return value.round(decimals=1)


def _tells(loss: float, against: BadLoss) -> bool:
    return against is BadLoss.ANY or (against is BadLoss.NAN and math.isnan(loss))


def _access(result: Any) -> str:
    if isinstance(result, dict):
        return '["loss"]'
    if hasattr(result, "loss"):
        return ".loss"
    return "[0]" if isinstance(result, tuple | list) else ""
