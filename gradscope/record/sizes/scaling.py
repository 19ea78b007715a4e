"""Sees which updates go past a GradScaler that has multiplied their loss, and which gradients it
divides whose loss it has not."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from gradscope.facts import ScaledUpdate, UnscaledPass
from gradscope.record.context import RunContext, shielded
from gradscope.record.graph import consumers, leaves
from gradscope.record.optimizers import Work, is_blind_to_scale, parameters_of
from gradscope.record.passes import BackwardPass
from gradscope.record.sites import USER, Site, kind_of, note_site, place_of
from gradscope.record.stand_ins import around

_Fact = ScaledUpdate | UnscaledPass

_MOST_KEPT = 16
_MOST_WALKED = 4  # passes whose graph is walked


class _Passes(NamedTuple):
    """How many there were so far: of a loss that was scaled, and of others; and how many losses
    were scaled."""

    scaled: int = 0
    plain: int = 0
    losses: int = 0


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
        # Passes of losses that were not scaled, with the leaves that they reach.
        self._plain: list[tuple[Site, list[torch.Tensor]]] = []
        self._walked = 0
        self._is_asked = False
        self._found: dict[object, _Fact] = {}

    def install(self, stack: ExitStack, thread: int) -> None:
        watch = partial(around, stack, thread, torch.amp.GradScaler)
        watch("scale", after=self._note_scaled, within=partial(shielded, self._context))
        watch("get_scale", before=self._note_asked)
        watch("step", before=self._note_step)

    def _note_asked(self, frame: FrameType, scaler: Any) -> None:
        self._is_asked |= kind_of(frame.f_code) == USER

    def _note_step(
        self, frame: FrameType, scaler: Any, optimizer: Any, *_: Any, **named: Any
    ) -> None:
        self.note_undone(optimizer)

    def note_undone(self, optimizer: Any) -> None:
        """A scaler divides the gradients of this optimizer."""
        self._undone.add(id(optimizer))

    def begin_backward(self, one: BackwardPass) -> None:
        if not one.accumulates:
            return
        is_asked, self._is_asked = self._is_asked, False
        scalers = [self._multiplied[root] for root in one.roots if root in self._multiplied]
        self._multiplied.clear()
        scaled, plain, losses = self._passes
        if scalers:
            self._scaler, self._passes = scalers[0], _Passes(scaled + 1, plain, losses)
            with shielded(self._context):
                self._plain = [(site, held) for site, held in self._plain if _are_graded(held)]
        else:
            self._passes = _Passes(scaled, plain + 1, losses)
            if self._scaler is not None and not (is_asked or self._undone):
                self._note_plain(one)

    def _note_plain(self, one: BackwardPass) -> None:
        if self._walked < _MOST_WALKED:
            self._walked += 1
            with shielded(self._context):
                self._plain.append((note_site(one.frame)[0], leaves(consumers(one.nodes))))

    def end_update(self, work: Work) -> None:
        """An optimizer has stepped."""
        key, now = id(work.optimizer), self._passes
        before = self._last.get(key, _Passes())
        self._last[key] = now
        is_undone = key in self._undone
        self._undone.discard(key)
        plain = self._plain_for(work.optimizer)
        is_scaled = now.scaled > before.scaled
        if not is_scaled or self._is_asked or len(self._found) >= _MOST_KEPT:
            return
        if is_undone:
            if plain and now.losses - before.losses == now.scaled - before.scaled:
                self._note(plain[0], work.optimizer, UnscaledPass)
        elif now.plain == before.plain:
            if any(one.grad is not None for one in parameters_of(work.optimizer)):
                blind = is_blind_to_scale(type(work.optimizer))
                self._note(work.site, work.optimizer, partial(ScaledUpdate, blind=blind))

    def _note(self, site: Site, optimizer: Any, made: Callable[..., _Fact]) -> None:
        place = place_of(site)
        if place in self._found:  # a GPU is not asked again
            return
        factor = float(self._scaler.get_scale())
        if factor != 1.0:
            step = max(self._context.step - 1, 0)
            kind = type(optimizer).__name__
            self._found[place] = made(step=step, optimizer=kind, scale=factor, location=place)

    def _plain_for(self, optimizer: Any) -> list[Site]:
        """The passes, since the last update, that reach parameters of this optimizer."""
        own = {id(one) for one in parameters_of(optimizer)} if self._plain else set()
        found, others = [], []
        for site, held in self._plain:
            if own.isdisjoint(map(id, held)):
                others.append((site, held))
            else:
                found.append(site)
        self._plain = others
        return found

    def facts(self) -> tuple[_Fact, ...]:
        return tuple(self._found.values())

    def _note_scaled(self, frame: FrameType, result: Any, scaler: Any, outputs: Any) -> None:
        if scaler.is_enabled():
            for one in (result,) if isinstance(result, torch.Tensor) else tuple(result):
                self._multiplied[one] = scaler
                self._passes = self._passes._replace(losses=self._passes.losses + 1)


def _are_graded(held: list[torch.Tensor]) -> bool:
    """Whether a pass has left gradients that nobody has cleared since."""
    return any(one.grad is not None and bool(one.grad.any()) for one in held)
