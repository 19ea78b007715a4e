"""Tries edge inputs on a function, without the recorder, and shrinks those that break it."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gradscope.check.stress.edge_inputs import (
    Edge,
    Reads,
    edges,
    grads_are_finite,
    is_float,
    is_inside,
    reads,
    sliced,
)
from gradscope.check.stress.subjects import Values, subject_of
from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError
from gradscope.facts import Severity
from gradscope.programs import Conditions, Function, Parts
from gradscope.programs.loss import SEED, loss_of

_TRIES = 400  # calls of the function that one shrinking may take


@dataclass(frozen=True, slots=True)
class Found:
    """A target with inputs that break it, which `words` describe."""

    words: str
    target: Function | Parts
    severity: Severity


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one call: its loss, and whether every gradient was finite."""

    loss: float
    finite_grads: bool

    @property
    def broken(self) -> str | None:
        if not math.isfinite(self.loss):
            return "loss"
        return None if self.finite_grads else "grad"


class Trial:
    """One target with its given inputs."""

    def __init__(self, target: Function | Parts, conditions: Conditions) -> None:
        self.subject = subject_of(target, conditions)
        self.precision = conditions.precision

    def edges(self) -> Iterator[Edge]:
        """The edge inputs to try; none where the given inputs themselves fail."""
        given, declared = self.subject.given, self.subject.declared
        if self._works(given):
            yield from edges(given, declared, self._reads(), halves=self.precision is None)

    def found(self, edge: Edge) -> Iterator[Found]:
        """What an edge breaks, at once and then again with the smallest inputs: shrinking may meet
        inputs on which the function hangs."""
        outcome = self.outcome(edge.values)
        if outcome is None or outcome.broken is None:
            return
        if outcome.broken == "loss" and not edge.bad_loss.tells(outcome.loss):
            return
        severity = self._severity(edge, outcome.broken)
        yield Found(edge.words, self.subject.target(edge.values), severity)
        smallest = self._smallest(edge, outcome.broken, severity)
        yield Found(edge.words, self.subject.target(smallest), severity)

    def _severity(self, edge: Edge, broken: str) -> Severity:
        """A function may be right to have no finite loss at numbers that nobody gave it; and an
        epsilon that float16 cannot hold is no news to who trains in float32."""
        if edge.half:
            return Severity.WARNING if broken == "loss" else Severity.NOTE
        if broken == "grad" or edge.ordinary or self._is_avoidable(edge.values):
            return Severity.ERROR
        return Severity.WARNING

    def _is_avoidable(self, values: Values) -> bool:
        """Whether the function has a loss there that float32 could hold: float64 knows it."""
        if self.precision is not None:
            return False
        precise = {
            name: value.double() if is_float(value) and value.dtype == torch.float32 else value
            for name, value in values.items()
        }
        outcome = self.outcome(precise)
        return outcome is not None and abs(outcome.loss) < torch.finfo(torch.float32).max

    def outcome(self, values: Values) -> Outcome | None:
        """The result for these values; None where the function does not accept them."""
        try:
            loss = self._loss(values, self.subject.wants_grad)
            value = loss.item()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return Outcome(value, math.isfinite(value) and grads_are_finite(loss))
        except (Exception, GradscopeError):
            return None  # the function refuses such inputs, which is its right

    def _loss(self, values: Values, wants_grad: Any, leaves: Values | None = None) -> Tensor:
        made = {} if leaves is None else leaves
        for name, value in values.items():
            copy = value.clone() if isinstance(value, Tensor) else value
            made[name] = copy.requires_grad_() if name in wants_grad else copy
        torch.manual_seed(SEED)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return loss_of(self.subject.call(made), self.subject.name)

    def _reads(self) -> Reads:
        """How the function reads its inputs, those too whose gradient nobody wants."""
        leaves: Values = {}
        try:
            floats = {name for name, value in self.subject.given.items() if is_float(value)}
            return reads(self._loss(self.subject.given, floats, leaves), leaves)
        except (Exception, GradscopeError):
            return Reads()  # it writes into what it is given

    def _works(self, values: Values) -> bool:
        outcome = self.outcome(values)
        return outcome is not None and outcome.broken is None

    def _smallest(self, edge: Edge, broken: str, severity: Severity) -> Values:
        """The smallest inputs that break in the same way, with the simplest numbers."""
        left = _TRIES

        def breaks(values: Values) -> bool:
            nonlocal left
            left -= 1
            outcome = self.outcome(values) if left > 0 else None
            if outcome is None or outcome.broken != broken:
                return False
            return self._severity(replace(edge, values=values), broken) is severity

        values = self._cut(edge.values, breaks)
        return values if edge.half else self._simpler(values, breaks)

    def _cut(self, values: Values, breaks: Callable[[Values], bool]) -> Values:
        """Each size that occurs is cut, everywhere at once, as long as the inputs still break. A
        cut that breaks the given inputs as well would show something else: a loss over nothing."""
        given = self.subject.given
        is_alike = _shapes(values) == _shapes(given)
        was_cut = True
        while was_cut:
            was_cut = False
            for size, count, first_only in _cuts(values):
                cut = sliced(values, size, count, first_only=first_only)
                beside = sliced(given, size, count, first_only=first_only)
                is_smaller = _shapes(cut) != _shapes(values)
                if is_smaller and breaks(cut) and (not is_alike or self._works(beside)):
                    values, given, was_cut = cut, beside, True
                    break
        return values

    def _simpler(self, values: Values, breaks: Callable[[Values], bool]) -> Values:
        """With 0, 1 or rounded numbers, in all inputs at once or else in each by itself."""
        floats = [name for name, one in values.items() if is_float(one) and one.numel()]
        plain = [name for name in floats if bool(torch.isfinite(values[name]).all())]
        for names in (plain, *([name] for name in floats)):
            for simple in (torch.zeros_like, torch.ones_like, partial(torch.round, decimals=1)):
                made = {**values, **{name: simple(values[name]) for name in names}}
                is_new = any(not torch.equal(made[name], values[name]) for name in names)
                declared = self.subject.declared
                inside = all(is_inside(made[name], declared.get(name)) for name in names)
                if is_new and inside and breaks(made):
                    values = made
                    break
        return values


def _cuts(values: Values) -> Iterator[tuple[int, int, bool]]:
    """A size, what to cut it to, and whether in the first dimension alone; the boldest first.

    Where a score is -inf only the first: in a row of one, it would hide all that there is.
    """
    tensors = [value for value in values.values() if isinstance(value, Tensor)]
    masked = any(bool((one == -math.inf).any()) for one in tensors)
    for size in sorted({size for one in tensors for size in one.shape}, reverse=True):
        for count in dict.fromkeys((1, 2, size // 2, size - 1)):
            if 0 < count < size:
                yield size, count, True
                if not masked:
                    yield size, count, False


def _shapes(values: Values) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in values.values() if isinstance(value, Tensor)]
