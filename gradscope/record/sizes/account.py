"""What one optimizer did with the gradients of its passes, while the program runs: when it used
them, and whether they fade."""

import math
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from types import CodeType
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from gradscope.facts import (
    Call,
    Flat,
    Group,
    Location,
    Movement,
    Overflow,
    Rates,
    Schedule,
    Skipping,
    Usage,
)
from gradscope.ops.traits import Trait, has
from gradscope.record.names import Names
from gradscope.record.optimizers import (
    doubled_by,
    groups_of,
    held_by,
    is_blind_to_scale,
    own_step,
    parameters_of,
)
from gradscope.record.schedule import before_chosen
from gradscope.record.sites import USER, Site, kind_of, place_of
from gradscope.record.sizes.clearing import version_of
from gradscope.record.sizes.clipping import Clip
from gradscope.record.sizes.crossings import Crossing, above
from gradscope.record.sizes.leaves import Leaves, norms_of
from gradscope.record.sizes.movements import Before
from gradscope.record.sizes.reduction import Factor
from gradscope.record.sizes.sights import Sight, given_twice, scopes_of
from gradscope.source.hand_updates import is_lost

_ALL = 16  # updates that are all measured; of later ones eight for each doubling of their number
_MOST_NORMS = 128  # of the gradients of an optimizer
_EARLY = 5  # updates that tell how large its gradients were
_FADED = 1e-2  # of these: worth a look at the graph
_NEAR = 8  # calls from the flat one towards the loss that are told
_AGAIN = 0.1  # times the norm at the look before
_CURVED = Trait.SATURATES | Trait.AVERAGES  # a slope of its own, which no weight gives it
SAMPLE = 16  # passes told by their steps
_FIRST = 64  # updates whose passes are told
_TRIES = 16  # passes after which an optimizer without a gradient is no longer asked for one
_ALIKE = 1e-4  # relative, of two norms that one factor has made shorter
_NEGLIGIBLE = 1e-6  # of the largest rate: float32 rounds such a part of a step away

Slopes = dict[object, tuple[float, int]]  # with the positions of the crossings


class Fading:
    """Whether the gradients of one optimizer fade over the run, and at which op: `norms` are their
    L2 norms by the step of the pass."""

    def __init__(self) -> None:
        self.norms: list[tuple[int, float]] = []
        self.flat: Flat | None = None
        self.wants_look = False
        self._first: dict[object, float] | None = None  # the slopes
        self._looked_at = math.inf

    def due_in(self, updates: int) -> float:
        """After how many further ones than so many to note the gradients of the coming update."""
        if len(self.norms) >= _MOST_NORMS:
            return math.inf
        every = 1 << max(0, updates.bit_length() - 4)
        return -updates % every if updates >= _ALL else 0

    def note_update(self, step: int, grads: Sequence[Any]) -> None:
        """It is about to step along these."""
        norm = math.hypot(*norms_of(grads))
        self.norms.append((step, norm))
        self.wants_look |= self._first is None  # its passes may fall between the ones looked at
        if len(self.norms) > _EARLY:
            usual = median(norm for _, norm in self.norms[:_EARLY])
            self.wants_look |= norm <= min(_FADED * usual, _AGAIN * self._looked_at)

    def note_graph(self, step: int, crossings: Sequence[Crossing]) -> None:
        """A pass that gave it gradients was looked at."""
        slopes = _slopes(crossings)
        if self._first is None:
            self._first = {key: slope for key, (slope, _) in slopes.items()}
            self.wants_look = False
        elif self.wants_look:
            self.wants_look, self._looked_at = False, self.norms[-1][1]
            # What was flat at first has not become so; what nobody saw had a slope of 1.
            first = self._first
            before = {key: steep for key in slopes if (steep := first.get(key, 1.0))}
            ratios = {key: slopes[key][0] / steep for key, steep in before.items()}
            if not ratios:  # nor will another look find any
                return
            key = min(ratios, key=ratios.__getitem__)
            slope, at = slopes[key]
            if self.flat is None or slope < self.flat.slope:
                uses = tuple(_uses(at, crossings))
                self.flat = Flat(step, crossings[at].call, slope, before[key], uses)


def _uses(at: int, crossings: Sequence[Crossing]) -> Iterator[Call]:
    """From one up to the loss, on one of the ways there."""
    for _ in range(_NEAR):
        if (at := next(above(at, crossings), -1)) < 0:
            return
        yield crossings[at].call


def _slopes(crossings: Sequence[Crossing]) -> Slopes:
    """How much of the gradient each op with a curve passed on, the least for each place."""
    found: Slopes = {}
    for at, one in enumerate(crossings):
        if one.out and one.place is not None and has(one.name, _CURVED):
            slope = math.hypot(*(norm or 0.0 for norm in one.into)) / one.out
            key = one.name, one.place, one.module
            if key not in found or slope < found[key][0]:
                found[key] = slope, at
    return found


class Account:
    """Of one optimizer, which may go before the program ends."""

    def __init__(self, optimizer: Any, made: Site) -> None:
        self.optimizer = weakref.ref(optimizer, self._forget)
        self.name = type(optimizer).__name__
        self.made, self.steps_at, self.clears_at = made, (), ()  # type: Site, Site, Site
        self.is_blind = is_blind_to_scale(type(optimizer))
        self.is_stock = type(optimizer).__module__.startswith("torch.optim")
        self.step = own_step(type(optimizer))
        self.held = held_by(optimizer)
        self.groups = groups_of(optimizer)
        self.doubled = doubled_by(optimizer)
        self.updates = self.passes = self.pending = self.between = self.last = 0
        self.piled = 0  # passes since its gradients were last cleared
        self.cycles: list[int] = []
        self.piles: list[int] = []
        self.factors: list[Factor | None] = []
        self.scale = 1.0  # of a GradScaler's first step
        self.clips: list[tuple[int, Clip]] = []  # of this cycle, after so many passes
        self.discards: list[int] = []
        self.gaps: list[int] = []
        self.waiting: list[int] = []  # the first passes of those that are pending
        self.discarded: list[int] = []
        self.swept: list[tuple[int, int]] = []
        self.used: list[int] = []
        self.after: list[int] = []
        self.sights: tuple[Sight, ...] = ()
        self.rates = Rates()
        self.schedule: Schedule | None = None
        self.scheduled_at: list[Location] = []
        self.moves: dict[int, tuple[int, Location | None]] = {}  # of schedules, by id
        self.skipping: Skipping | None = None
        self.movements: list[Movement] = []
        self.overflow: Overflow | None = None
        self.fading = Fading()
        self.before: Before | None = None
        self._probe: torch.Tensor | None = None  # one of what it holds, that gets a gradient
        self._seen: tuple[int, int] | None = None
        self._tries = 0
        self._aside = -1  # the last pass that was also for what no optimizer holds

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

    def note_pass(self, step: int, factor: Factor | None, *, in_use: bool, aside: bool) -> None:
        """A pass has given it gradients; `in_use`, it has asked for the pass itself; `aside`, the
        pass was also for what no optimizer holds."""
        self.passes, self.last = self.passes + 1, step
        if not in_use:
            self.pending += 1
            self.piled += 1
            if len(self.waiting) < SAMPLE:
                self.waiting.append(step)
                self._aside = step if aside else self._aside
            if len(self.factors) < SAMPLE:
                self.factors.append(factor)
        elif len(self.used) < SAMPLE:
            self.used.append(step)

    def note_cleared(self, site: Site) -> None:
        if self.piled:
            if self.pending or not self.discards:  # else these were used
                self.clears_at = site
            self._discard()

    def note_clip(self, grads: set[int], clip: Clip) -> None:
        """Some gradients, by id, were clipped."""
        grad = self._probe.grad if self._probe is not None else None
        if self.pending and id(grad) in grads and len(self.clips) < _FIRST:
            self.clips.append((self.pending, clip))

    def early_clip(self) -> Clip | None:
        """One that came after each of several passes, of which the step will use the sum."""
        if not self.clips:
            return None
        times = Counter(site for _, site in {(passes, clip.site) for passes, clip in self.clips})
        early = (clip for passes, clip in self.clips if passes < self.pending)
        return next((clip for clip in early if times[clip.site] > 1), None)

    def note_update(self, step: int, site: Site, rate: float | None) -> None:
        self.updates += 1
        self.steps_at = site
        if self.updates <= _FIRST:
            self.cycles.append(self.pending)
            self.piles.append(self.piled)
            self.gaps.append(self.between)
            self.used += self.waiting[: SAMPLE - len(self.used)]
        if len(self.after) < SAMPLE:
            self.after.append(step)
        self.between = 0
        self._settle()
        if rate is not None:
            self._note_rate(step, abs(rate))

    @property
    def calm_updates(self) -> float:
        """The coming ones that nobody needs to look at."""
        if self.updates < _FIRST:
            return 0
        return min(self.fading.due_in(self.updates + 1), before_chosen(self.updates))

    def note_coasted(self, passes: int, updates: int, step: int) -> None:
        """So many were not looked at before this step: as before, a part of the passes gave it
        gradients."""
        self.passes += round(passes * self.passes / (step - passes))
        self.updates, self.last = self.updates + updates, step - 1
        self.rates = replace(self.rates, idle=self.rates.idle and self.rates.idle + updates)
        self._settle()  # what waited for an update has had it

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
        if rate and rate == peak == self.rates.last:
            return
        is_idle = rate <= _NEGLIGIBLE * peak
        since = step if is_idle and not idle else since
        asleep = self.rates.asleep if peak else idle
        self.rates = Rates(max(peak, rate), rate, idle + 1 if is_idle else 0, since, asleep)

    def _discard(self) -> None:
        self.piled = 0
        if self.pending:
            if len(self.discards) < _FIRST:
                self.discards.append(self.pending)
            self.between += self.pending
            self.discarded += self.waiting[: SAMPLE - len(self.discarded)]
            if self._aside == self.waiting[-1] and len(self.swept) < SAMPLE:
                self.swept += [(step, self._aside) for step in self.waiting[:-1]]
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
        names = leaves.names.get
        held = [one for one in map(names, self.held) if one is not None]
        known = [leaves.watched[name] for name in held if any(leaves.watched[name].norms)]
        still = bool(known) and all(one.weight == one.fact.start for one in known)
        # What weight decay alone has moved became shorter by one factor.
        factors = [one.weight / one.fact.start for one in known if one.fact.start]
        idle = still or (bool(factors) and 1 > max(factors) < min(factors) * (1 + _ALIKE))
        scopes = tuple(scopes_of(self.sights, self.held, leaves))
        twice = tuple(one.name for one in known if one.name in map(names, self.doubled))
        of_all = tuple(one.name for one in known)
        twice_at = given_twice(scopes, of_all, twice) if twice else None
        own = tuple(places_in(self.step))
        return Usage(
            self.name,
            self.updates,
            self.passes,
            self.last,
            cycles=tuple(self.cycles),
            piles=tuple(self.piles),
            factors=tuple(one and one.whole / self.scale for one in self.factors),
            written=next((one.written for one in self.factors if one is not None), 1.0),
            discards=tuple(self.discards),
            between=tuple(self.gaps),
            left=self.pending,
            discarded=tuple(self.discarded),
            swept=tuple(self.swept),
            used=tuple(self.used),
            after=tuple(self.after),
            made=place_of(self.made),
            scopes=scopes,
            steps_at=place_of(self.steps_at),
            clears_at=place_of(self.clears_at),
            handled=handled,
            scaled=scaled[0],
            scaled_at=place_of(scaled[1]),
            ranks=self._ranks(leaves.known),
            held=of_all,
            groups=tuple(
                Group(decay, tuple(one.name for one in known if one.name in map(names, ids)))
                for decay, ids in self.groups
            ),
            twice=twice,
            twice_at=twice_at,
            still=still,
            own=bool(own),
            lost_at=next(filter(is_lost, own), None) if idle and self.updates else None,
            rates=self.rates,
            schedule=self.schedule,
            scheduled_at=tuple(dict.fromkeys(self.scheduled_at)),
            skipping=self.skipping,
            movements=tuple(self.movements),
            norms=tuple(self.fading.norms),
            flat=self.fading.flat,
            blind_to_scale=self.is_blind,
            overflow=self.overflow,
        )


def places_in(code: CodeType | None) -> Iterator[Location]:
    """Of the instructions of a function of the program's own that have a place in its text."""
    if code is not None and kind_of(code) == USER:
        places = (place_of(((code, 2 * at),)) for at, _ in enumerate(code.co_positions()))
        yield from (one for one in places if one is not None and one.end_col)
