"""Sees which updates go past a GradScaler that has multiplied their loss."""

import sys
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from gradscope.facts import ScaledUpdate
from gradscope.record.context import RunContext, shielded
from gradscope.record.optimizers import Work, is_blind_to_scale, parameters_of
from gradscope.record.passes import BackwardPass
from gradscope.record.sites import USER, kind_of, place_of
from gradscope.record.stand_ins import is_elsewhere, stand_in, without_us

_MOST_KEPT = 16


class _Passes(NamedTuple):
    """How many there were so far: of a loss that was scaled, and of others."""

    scaled: int = 0
    plain: int = 0


class Scaling:
    """Follows what GradScalers multiply, and what they are asked to divide again. Who asks for the
    scale between a backward and its update may divide by it himself: that one is not told of."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._multiplied = WeakTensorKeyDictionary()  # losses, with their scaler
        self._scaler: Any = None  # of the last scaled pass
        self._passes = _Passes()
        self._last: dict[int, _Passes] = {}  # by optimizer: those before its last update
        self._undone: set[int] = set()  # optimizers whose gradients were, or are being, divided
        self._is_asked = False
        self._found: dict[object, ScaledUpdate] = {}

    def install(self, stack: ExitStack, thread: int) -> None:
        owner: Any = torch.amp.GradScaler
        scale, ask, step = owner.scale, owner.get_scale, owner.step

        def scale_(scaler: Any, outputs: Any) -> Any:
            with without_us:
                result = scale(scaler, outputs)
            if not is_elsewhere(thread) and scaler.is_enabled():
                with shielded(self._context):
                    self._note_scaled(scaler, result)
            return result

        def get_scale(scaler: Any) -> Any:
            if kind_of(sys._getframe(1).f_code) == USER and not is_elsewhere(thread):
                self._is_asked = True
            with without_us:
                return ask(scaler)

        def step_(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self.note_undone(optimizer)
            with without_us:
                return step(scaler, optimizer, *args, **kwargs)

        stand_in(stack, owner, "scale", scale_)
        stand_in(stack, owner, "get_scale", get_scale)
        stand_in(stack, owner, "step", step_)

    def note_undone(self, optimizer: Any) -> None:
        """A scaler divides the gradients of this optimizer."""
        self._undone.add(id(optimizer))

    def begin_backward(self, one: BackwardPass) -> None:
        if not one.accumulates:
            return
        self._is_asked = False
        scalers = [self._multiplied[root] for root in one.roots if root in self._multiplied]
        self._multiplied.clear()
        scaled, plain = self._passes
        if scalers:
            self._scaler, self._passes = scalers[0], _Passes(scaled + 1, plain)
        else:
            self._passes = _Passes(scaled, plain + 1)

    def end_update(self, work: Work) -> None:
        """An optimizer has stepped."""
        key, now = id(work.optimizer), self._passes
        before = self._last.get(key, _Passes())
        self._last[key] = now
        is_undone = key in self._undone
        self._undone.discard(key)
        is_scaled = now.scaled > before.scaled and now.plain == before.plain
        if is_undone or not is_scaled or self._is_asked or len(self._found) >= _MOST_KEPT:
            return
        place = place_of(work.site)
        graded = any(one.grad is not None for one in parameters_of(work.optimizer))
        if place not in self._found and graded:
            kind = type(work.optimizer)
            factor = float(self._scaler.get_scale())
            if factor != 1.0:
                blind = is_blind_to_scale(kind)
                step = max(self._context.step - 1, 0)
                self._found[place] = ScaledUpdate(step, kind.__name__, factor, blind, place)

    def facts(self) -> tuple[ScaledUpdate, ...]:
        return tuple(self._found.values())

    def _note_scaled(self, scaler: Any, result: Any) -> None:
        for one in (result,) if isinstance(result, torch.Tensor) else tuple(result):
            self._multiplied[one] = scaler
