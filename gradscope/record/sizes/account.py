"""What one optimizer did with the gradients of its passes, while the program runs."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from gradscope.facts import Movement, Rates, Schedule, Skipping, Usage
from gradscope.record.names import Names
from gradscope.record.optimizers import held_by, parameters_of
from gradscope.record.sites import Site, place_of
from gradscope.record.sizes.clipping import Clip
from gradscope.record.sizes.fading import Fading
from gradscope.record.sizes.freshness import version_of
from gradscope.record.sizes.leaves import Leaves
from gradscope.record.sizes.movement import Before

SAMPLE = 16  # passes told by their steps
_FIRST = 64  # updates whose passes are told
_TRIES = 16  # passes after which an optimizer without a gradient is no longer asked for one
_NEGLIGIBLE = 1e-6  # of the largest rate: float32 rounds such a part of a step away


class Account:
    """Of one optimizer, which may go before the program ends."""

    def __init__(self, optimizer: Any, made: Site) -> None:
        self.optimizer = weakref.ref(optimizer, self._forget)
        self.name = type(optimizer).__name__
        self.made, self.steps_at, self.clears_at = made, (), ()  # type: Site, Site, Site
        self.is_stock = type(optimizer).__module__.startswith("torch.optim")
        self.held = held_by(optimizer)
        self.updates = self.passes = self.pending = self.between = self.last = 0
        self.piled = 0  # passes since its gradients were last cleared
        self.cycles: list[int] = []
        self.piles: list[int] = []
        self.factors: list[float | None] = []
        self.scale = 1.0  # of a GradScaler's first step
        self.clips: list[tuple[int, Clip]] = []  # of this cycle, after so many passes
        self.discards: list[int] = []
        self.gaps: list[int] = []
        self.waiting: list[int] = []  # the first passes of those that are pending
        self.discarded: list[int] = []
        self.used: list[int] = []
        self.rates = Rates()
        self.schedule: Moves | None = None
        self.skipping: Skipping | None = None
        self.movements: list[Movement] = []
        self.fading = Fading()
        self.before: Before | None = None
        self._probe: torch.Tensor | None = None  # one of what it holds, that gets a gradient
        self._seen: tuple[int, int] | None = None
        self._tries = 0

    def _forget(self, reference: object) -> None:
        self._probe = self.before = None

    def look(self) -> None:
        """Before what may change its gradients. Somebody may have cleared them until now."""
        grad = self._probe.grad if self._probe is not None else None
        self._seen = version_of(grad) if grad is not None else None
        if self.piled and grad is None:
            self._discard()

    def is_changed(self) -> bool:
        """Whether its gradients are others than before."""
        if self._probe is None and self._tries < _TRIES:
            self._tries += 1
            optimizer = self.optimizer()
            held = parameters_of(optimizer) if optimizer is not None else iter(())
            self._probe = next((one for one in held if one.grad is not None), None)
        grad = self._probe.grad if self._probe is not None else None
        return self._seen != (version_of(grad) if grad is not None else None)

    def note_pass(self, step: int, factor: float | None, *, in_use: bool) -> None:
        """A pass has given it gradients; `in_use`, it has asked for the pass itself."""
        self.passes, self.last = self.passes + 1, step
        if not in_use:
            self.pending += 1
            self.piled += 1
            if len(self.waiting) < SAMPLE:
                self.waiting.append(step)
            if len(self.factors) < SAMPLE:
                self.factors.append(factor)

    def note_cleared(self, site: Site) -> None:
        if self.piled:
            self._discard()
            self.clears_at = site

    def note_clip(self, grads: set[int], clip: Clip) -> None:
        """Some gradients, by id, were clipped."""
        grad = self._probe.grad if self._probe is not None else None
        if self.pending and id(grad) in grads and len(self.clips) < _FIRST:
            self.clips.append((self.pending, clip))

    def early_clip(self) -> Clip | None:
        """One that came after each of several passes, of which the step will use the sum."""
        times = Counter(site for _, site in {(passes, clip.site) for passes, clip in self.clips})
        early = (clip for passes, clip in self.clips if passes < self.pending)
        return next((clip for clip in early if times[clip.site] > 1), None)

    def note_update(self, step: int, site: Site, rate: float | None) -> None:
        self.updates += 1
        self.steps_at = site
        _note(self.cycles, self.pending)
        _note(self.piles, self.piled)
        _note(self.gaps, self.between)
        self.between = 0
        self.used += self.waiting[: SAMPLE - len(self.used)]
        self._settle()
        if rate is not None:
            self._note_rate(step, abs(rate))

    def note_asked(self, scaler: Any, skipped: bool, site: Site) -> None:
        """A GradScaler was asked to step."""
        if self.skipping is None:
            self.scale = float(scaler.get_scale())
        known = self.skipping or Skipping(0, 0, 0.0, 0.0, place_of(site))
        in_a_row = known.skipped + 1 if skipped else 0
        scale = float(scaler.get_scale()) if skipped else 0.0
        first = known.first if in_a_row > 1 else scale
        self.skipping = Skipping(known.calls + 1, in_a_row, first, scale, known.location)
        if skipped:
            self._settle()

    def _note_rate(self, step: int, rate: float) -> None:
        peak, idle, since = self.rates.peak, self.rates.idle, self.rates.since
        is_idle = rate <= _NEGLIGIBLE * peak
        since = step if is_idle and not idle else since
        self.rates = Rates(max(peak, rate), rate, idle + 1 if is_idle else 0, since)

    def _discard(self) -> None:
        self.piled = 0
        if self.pending:
            _note(self.discards, self.pending)
            self.between += self.pending
            self.discarded += self.waiting[: SAMPLE - len(self.discarded)]
            self._settle()

    def _settle(self) -> None:
        self.pending = 0
        self.waiting, self.clips = [], []

    def _ranks(self, names: Names) -> int:
        """Over how many DistributedDataParallel averages the gradients of what it holds."""
        for module in names.running.values():
            if isinstance(module, DistributedDataParallel):
                if any(id(one) in self.held for one in module.parameters()):
                    return module.process_group.size()
        return 1

    def fact(self, leaves: Leaves, *, handled: bool, scaled: tuple[float, Site]) -> Usage:
        held = [one for one in map(leaves.names.get, self.held) if one is not None]
        known = [leaves.watched[name] for name in held if any(leaves.watched[name].norms)]
        return Usage(
            self.name,
            self.updates,
            self.passes,
            self.last,
            cycles=tuple(self.cycles),
            piles=tuple(self.piles),
            factors=tuple(one and one / self.scale for one in self.factors),
            discards=tuple(self.discards),
            between=tuple(self.gaps),
            left=self.pending,
            discarded=tuple(self.discarded),
            used=tuple(self.used),
            made=place_of(self.made),
            steps_at=place_of(self.steps_at),
            clears_at=place_of(self.clears_at),
            handled=handled,
            scaled=scaled[0],
            scaled_at=place_of(scaled[1]),
            ranks=self._ranks(leaves.known),
            held=tuple(one.name for one in known),
            still=bool(known) and all(one.weight == one.fact.start for one in known),
            rates=self.rates,
            schedule=self.schedule.fact() if self.schedule is not None else None,
            skipping=self.skipping,
            movements=tuple(self.movements),
            norms=tuple(self.fading.norms),
            flat=self.fading.flat,
        )


class Moves:
    """Of a schedule."""

    def __init__(self, name: str, made: Site) -> None:
        self.name, self.made, self.moved_at, self.moves = name, made, (), 0  # type: str, Site, Site, int

    def fact(self) -> Schedule:
        return Schedule(self.name, place_of(self.made), place_of(self.moved_at), self.moves)


def _note(counts: list[int], count: int) -> None:
    if len(counts) < _FIRST:
        counts.append(count)
