"""The leaves that have no gradient, or one that is exactly zero, and why."""

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from gradscope.dataclass import dataclass
from gradscope.facts import Absence, Leaf, Location, NoGradient
from gradscope.record.definitions import definition
from gradscope.record.finite import elements
from gradscope.record.grad_modes import guard_of
from gradscope.record.names import Path, in_some_module
from gradscope.record.optimizers import held_by, parameters_of
from gradscope.record.sites import Site, place_of
from gradscope.record.sizes.crossings import Crossings
from gradscope.record.sizes.flow import Flow
from gradscope.record.sizes.graphless import Constant
from gradscope.record.sizes.leaves import MISSED, Leaves
from gradscope.record.sizes.reasons import explained, stepped, straightened, why_missing, why_zero
from gradscope.record.sizes.reduction import sums_in
from gradscope.record.sizes.replacements import Found, Replacements

_FEWEST_LOOKED_AT = 2  # steps of an optimizer of which it is said what they never train
_REMADE = 3  # passes at which a parameter was made anew; fewer may be a change of the model
_UNREAD = (NoGradient.UNUSED, NoGradient.STALE)
# What the loss of one phase has no use for.
_LEFT_OUT = (NoGradient.UNREACHED, NoGradient.DIFFERENTIATED)
# Of a gradient that the program was handed, and that a loss uses as a number.
_HANDED_OUT = (NoGradient.CONSTANT, NoGradient.PIECEWISE_LINEAR)
_BESIDE = (*_HANDED_OUT, NoGradient.INTEGER, NoGradient.STRAIGHT_THROUGH)
_MOST_OPTIMIZERS = 16  # an inner loop makes them by the thousand


class Absences:
    """Collects reasons at the inspected steps, by the leaf's id; says in the end which leaves
    stayed without a gradient."""

    def __init__(self, leaves: Leaves, trained: Mapping[int, torch.Tensor]) -> None:
        """`trained`: what an optimizer holds, by id."""
        self._leaves, self._names, self._trained = leaves, leaves.known, trained
        self._missing: dict[int, Absence] = {}
        self._zero: dict[int, Absence] = {}
        self._selections: dict[int, set[object]] = defaultdict(set)
        self._read_at: dict[str, Site] = {}  # leaves that no module holds, by name
        self._constants: dict[tuple[int, Location | None], Absence] = {}
        self._looked_at = -1
        self._settled: set[int] = set()  # of which the pass was looked at that they are trained by
        self._phases: list[_Phase] = []

    def look(
        self,
        step: int,
        flow: Flow,
        roots: Sequence[torch.Tensor],
        crossings: Crossings | None,
        norms: Mapping[int, float],
    ) -> None:
        """After the backward of an inspected step, which gave leaves gradients of these `norms`, by
        id."""
        self._looked_at = step
        cuts = 0
        for _, upstream in map(flow.of, roots):
            cuts |= upstream
        held, sums = self._names.parameters, sums_in(roots)
        for one in flow.constants.found_in(cuts):
            reason, call, location, _ = explained(one.cut)
            is_drawn = reason is NoGradient.SAMPLED and guard_of(one.cut.note.user) is None
            is_told = is_drawn or reason in _BESIDE if one.sum is None else one.sum in sums
            if not is_told:
                continue
            by = tuple(map(self._name, _read_with(one, flow, held))) if one.likely else ()
            # A sample whose likelihood was asked for needs no other gradient.
            if one.likely and not by:
                continue
            absence = Absence("", False, reason, False, step, call, location=location, through=by)
            for leaf in (*held.values(), *self._trained.values()):
                is_learning = reason in _HANDED_OUT or norms.get(id(leaf))
                if flow.bit_of(leaf) & one.lost and leaf.requires_grad and is_learning:
                    self._constants.setdefault((id(leaf), location), absence)
        for flat, below in stepped(crossings) if crossings is not None else ():
            at = flat.call.location
            absence = Absence("", False, NoGradient.ZERO_OP, False, step, flat.call, location=at)
            for leaf in (leaf for leaf in below if norms.get(id(leaf))):
                self._constants.setdefault((id(leaf), at), absence)
        for leaf in (*held.values(), *self._trained.values()):
            if leaf.requires_grad and leaf.grad is None and id(leaf) not in self._settled:
                read = self._names.gathered(id(leaf), leaf)
                absence = why_missing(step, read, flow, cuts, id(leaf) in held)
                # A pass that has not read a leaf tells nothing that another one has not told.
                if absence.reason not in _UNREAD or id(leaf) not in self._missing:
                    self._missing[id(leaf)] = absence
        rewraps = any(cut.reason is NoGradient.REWRAPPED for cut in flow.cuts)
        for position, leaf in enumerate(crossings.variables if crossings is not None else ()):
            bit, name = flow.bit_of(leaf), self._leaves.names.get(id(leaf))
            is_nobodys = id(leaf) not in held and id(leaf) not in self._trained
            if name and is_nobodys and not (rewraps or flow.handed_out & bit):
                self._read_at[name] = flow.first_use(bit)
            if norms.get(id(leaf)) == 0.0 and crossings is not None:
                absence, selection = why_zero(step, position, crossings, self._leaves.built)
                if absence.reason is NoGradient.ZERO_WEIGHT and absence.call is not None:
                    last = self._zero.get(id(leaf), absence)
                    factor = flow.zeros.factors.get(absence.call.seq, ())
                    # It may have become 0 before that forward pass.
                    known = last.related if last.location == absence.location else None
                    absence = replace(absence, related=place_of(factor) or known)
                straight = straightened(bit, flow, cuts)
                if straight is not None:
                    _, call, place, _ = explained(straight)
                    absence = Absence("", False, straight.reason, False, step, call, location=place)
                # A sum that has come to 0 once is alive, whatever is flat at a later step.
                first = self._zero.get(id(leaf), absence)
                is_sum = first.reason is NoGradient.CANCELLED
                self._zero[id(leaf)] = first if is_sum else absence
                self._selections[id(leaf)].add(selection)

    def settle(self, step: int, optimizer: Any) -> None:
        """An optimizer follows the pass of a step. What that pass says of its parameters counts,
        and not what the loss of another optimizer leaves out on purpose."""
        if step != self._looked_at:
            return
        absent = {
            key
            for key, absence in self._missing.items()
            if absence.step == step and absence.reason not in _UNREAD
        }
        absent &= held_by(optimizer) if absent else set()
        self._settled |= absent
        phase = next((one for one in self._phases if one.optimizer() is optimizer), None)
        if phase is not None:
            phase.last, phase.looked_at = step, phase.looked_at + 1
            phase.absent &= {id(one) for one in parameters_of(optimizer) if one.grad is None}
        elif len(self._phases) < _MOST_OPTIMIZERS:
            self._phases.append(_Phase(weakref.ref(optimizer), absent, step, step))

    def facts(
        self,
        leaves: Sequence[Leaf],
        given: set[int],
        replacements: Replacements,
    ) -> tuple[Absence, ...]:
        """The leaves that never had a gradient, or never one other than zero. `given` had one
        that somebody else put there, or would have had one of a backward that raised."""
        if self._looked_at < 0:
            return ()
        replaced, trained = self._leaves.stand_for, self._trained
        by_name = {leaf.name: leaf for leaf in leaves}
        remade = {leaf.name for leaf in leaves if _is_remade(leaf, leaves)}
        gone = {key: name for key, name in replaced.items() if key in trained and name in remade}
        swapped = {
            key: leaf
            for key, name in replaced.items()
            if key in trained and name not in remade and (leaf := by_name.get(name)) is not None
            if leaf.replaced_at is not None and not leaf.trained
        }
        seen = self._leaves.watched.values()
        new = (one.ref() for one in seen if not one.trained and any(one.norms))
        places = partial(replacements.among, [*map(self._path, new)])
        found = [*self._without(by_name, given, {*gone, *swapped}, places)]
        found += [
            Absence(one.name, False, NoGradient.SWAPPED, True, 0, location=one.replaced_at)
            for one in swapped.values()
        ]
        found += self._of_phases(by_name)
        found += self._unregistered(by_name)
        found += [
            _located(
                Absence(one.name, False, NoGradient.REPLACED, True, one.missed[-1]),
                replacements.of(id(one.old), self._path(one.new), one.site),
            )
            for one in self._leaves.successions.values()
            if one.is_lost and id(one.new) not in trained
        ]
        found += [
            self._made_anew(one, is_awaited=one.name in gone.values())
            for one in leaves
            if one.name in remade and (one.held or one.name in self._read_at)
        ]
        for parameter, site in replacements.added().items():
            held = by_name.get(self._name(id(parameter)))
            if id(parameter) not in trained and held is not None and _stands_still(held):
                place = place_of(site)
                found.append(Absence(held.name, False, NoGradient.ADDED, False, 0, location=place))
        return (*found, *self._of_zeros(leaves))

    def _made_anew(self, leaf: Leaf, *, is_awaited: bool) -> Absence:
        """`is_awaited`: an optimizer was given the first one."""
        if leaf.held:
            place = leaf.replaced_at
            return Absence(leaf.name, False, NoGradient.REMADE, is_awaited, 0, location=place)
        place = place_of(self._read_at[leaf.name])
        return Absence(leaf.name, False, NoGradient.PASSING, False, 0, location=place)

    def _without(
        self,
        leaves: Mapping[str, Leaf],
        given: set[int],
        replaced: set[int],
        places: Callable[[int], Found],
    ) -> Iterator[Absence]:
        """Those that never had a gradient, but for what was `replaced` before it could have one, at
        the `places` that tell what has come since for what an optimizer holds."""
        trained = self._trained
        candidates = {**self._names.parameters, **trained}
        gone = set()
        for key, leaf in candidates.items():
            seen = leaves.get(self._name(key))
            if leaf.requires_grad and key not in given and not (seen and seen.known):
                gone.add(key)
        spare = self._spare(gone) | replaced
        for key, leaf in candidates.items():
            absence = self._missing.get(key)
            if absence is None and key in trained:
                absence = Absence("", True, NoGradient.STALE, True, 0)
            if key not in gone or key in spare or absence is None or not elements(leaf):
                continue
            if absence.reason is NoGradient.STALE and in_some_module(key):
                absence = replace(absence, reason=NoGradient.UNUSED)
            if absence.reason is NoGradient.STALE:
                absence = _located(absence, places(key))
            absence = replace(absence, shape=tuple(leaf.shape))
            yield self._finish(absence, key, self._name(key), key in trained, gone)

    def _of_phases(self, leaves: Mapping[str, Leaf]) -> Iterator[Absence]:
        """Those that the steps of one optimizer never train, and the steps of others do."""
        for phase in self._phases:
            first, last = phase.first, phase.last
            if phase.looked_at < _FEWEST_LOOKED_AT or last - first < MISSED:
                continue
            for key in phase.absent:
                seen, absence = leaves.get(self._name(key)), self._missing[key]
                if seen is None or not seen.known or absence.reason in _LEFT_OUT:
                    continue
                if all(norm is None for norm in seen.norms[first : last + 1]):
                    among = replace(absence, shape=seen.shape, among=(first, last))
                    yield self._finish(among, key, seen.name, seen.trained, set())

    def _of_zeros(self, leaves: Sequence[Leaf]) -> Iterator[Absence]:
        """Those whose gradients were all 0."""
        keys = self._keys()
        for leaf in leaves:
            key = keys.get(leaf.name, -1)
            if not leaf.known or not leaf.numel or any(leaf.known):
                continue
            absence = self._zero.get(key) or Absence("", False, NoGradient.UNKNOWN, False, 0)
            if absence.reason is NoGradient.LEFT_OUT and len(self._selections[key]) > 1:
                absence = replace(absence, reason=NoGradient.MASKED)  # others at another step
            yield self._finish(absence, key, leaf.name, leaf.trained, set())

    def constants(self) -> tuple[Absence, ...]:
        """The leaves on which a gradient without a graph depends that a loss was computed with."""
        return tuple(
            replace(absence, leaf=self._name(key), trained=key in self._trained)
            for (key, _), absence in self._constants.items()
            if key in self._trained or not self._trained
        )

    def died(self, leaves: Sequence[Leaf]) -> tuple[Absence, ...]:
        """Where the gradient ends of leaves that had one, and have none but zeros by now."""
        keys = self._keys()
        return tuple(
            self._finish(absence, keys[leaf.name], leaf.name, leaf.trained, set())
            for leaf in leaves
            if leaf.name in keys and any(leaf.known) and not leaf.known[-1]
            if (absence := self._zero.get(keys[leaf.name])) is not None
        )

    def _unregistered(self, leaves: Mapping[str, Leaf]) -> Iterator[Absence]:
        """What a module holds in a place that its `parameters()` skips."""
        for owner in self._names.unregistered.values():
            leaf = leaves.get(owner.name)
            # A tensor that is there for one pass alone is a batch whose gradient is asked for.
            if leaf is not None and len(leaf.known) > 1 and any(leaf.known) and not leaf.trained:
                place, _ = definition(owner.path)
                yield Absence(leaf.name, False, NoGradient.UNREGISTERED, False, 1, location=place)

    def _spare(self, gone: set[int]) -> set[int]:
        """The parameters of modules of which nothing was read, and that nobody trains: the layer
        that TransformerEncoder copies, an older model."""
        roots = {key: id(owner.path[0][1]) for key, owner in self._names.owners.items()}
        missing = self._missing.items()
        unread = gone & {key for key, absence in missing if absence.reason is NoGradient.UNUSED}
        unread -= self._trained.keys()
        alive = {root for key, root in roots.items() if key not in unread}
        return {key for key, root in roots.items() if root not in alive}

    def _path(self, leaf: torch.Tensor | None) -> Path:
        owner = self._names.owners.get(id(leaf))
        return owner.path if owner is not None else ()

    def _name(self, key: int) -> str:
        owner = self._names.owners.get(key)
        return owner.name if owner is not None else self._leaves.names.get(key, "")

    def _keys(self) -> dict[str, int]:
        """The leaves by name."""
        return {self._name(key): key for key in (*self._zero, *self._leaves.names)}

    def _finish(
        self, absence: Absence, key: int, name: str, trained: bool, gone: set[int]
    ) -> Absence:
        absence = replace(absence, leaf=name, trained=trained)
        owner = self._names.whole(key, gone, learning=True)
        if owner is None:
            return absence
        if absence.reason is NoGradient.UNUSED:
            location, related = self._names.made(owner.path)
            absence = replace(absence, location=location, related=related)
        beside = owner.is_listed or absence.siblings
        if absence.reason is NoGradient.UNREACHED:
            beside = owner.ends_stack(gone)
        return replace(absence, siblings=beside, packaged=owner.is_packaged)


def _located(absence: Absence, found: Found) -> Absence:
    place = found.sites[0][0] if found.sites else None
    return replace(absence, location=place, made=found.made, replaced_by=found.sites)


def _read_with(one: Constant, flow: Flow, held: Mapping[int, torch.Tensor]) -> Iterator[int]:
    """The parameters of others, by id, that have computed with a sample, frozen ones included."""
    for key, leaf in held.items():
        if key in one.frozen or flow.bit_of(leaf) & one.through:
            yield key


def _stands_still(leaf: Leaf) -> bool:
    """Whether it has had gradients, and nobody has moved it by them."""
    return sum(map(bool, leaf.known)) > MISSED and leaf.weight == leaf.start


def _is_remade(one: Leaf, leaves: Sequence[Leaf]) -> bool:
    """Whether it was another parameter at each pass, and in one of them an optimizer's took part: a
    program that only tries one model after the other trains none."""
    passes = [step for step, norm in enumerate(one.norms) if norm is not None]
    return (
        one.remade >= _REMADE
        and len(passes) == one.remade + 1
        and any(
            other.trained and any(other.norms[step] is not None for step in passes)
            for other in leaves
        )
    )


@dataclass(slots=True)
class _Phase:
    """The steps of one optimizer, and what it holds that had no gradient in any that was looked at,
    by id."""

    optimizer: weakref.ref[Any]
    absent: set[int]
    first: int
    last: int
    looked_at: int = 1
