"""The leaves that have no gradient, or one that is exactly zero, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from gradscope.facts import Absence, Leaf
from gradscope.record.definitions import definition, guard_of
from gradscope.record.journal import to_call
from gradscope.record.sites import Site, resolve
from gradscope.record.sizes.crossings import Crossings
from gradscope.record.sizes.flow import Flow
from gradscope.record.sizes.layers import Layers, in_some_module, packaged, siblings
from gradscope.record.sizes.leaves import Succession
from gradscope.record.sizes.reasons import (
    blocking,
    call_of,
    cancels,
    decider,
    prefers_another,
    reason_of,
    where_it_ends,
    zero_reason,
)
from gradscope.record.sizes.selections import Selection

_MISSED = 3  # updates that an optimizer made with a parameter which the program has replaced
_UNREAD = ("unused", "stale")


class Absences:
    """Collects reasons at the inspected steps; says in the end which leaves stayed without."""

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        self._missing: dict[int, Absence] = {}
        self._zero: dict[int, Absence] = {}
        self._constant: dict[int, Absence] = {}  # what reaches them is rounding alone
        self._selections: dict[int, set[Selection | None]] = defaultdict(set)  # by leaf
        self._looked = False
        self._settled: set[int] = set()  # of which the pass was looked at that they are trained by

    def look(
        self,
        step: int,
        flow: Flow,
        roots: Sequence[torch.Tensor],
        crossings: Crossings | None,
        zero: set[int],
        trained: Mapping[int, torch.Tensor],
    ) -> None:
        """After the backward of an inspected step. `zero` are leaves by id."""
        self._looked = True
        reached = [flow.of(root) for root in roots]
        live = cuts = 0
        for leaves, upstream in reached:
            live |= leaves
            cuts |= upstream
        for leaf in (*self.layers.parameters.values(), *trained.values()):
            if leaf.requires_grad and leaf.grad is None and id(leaf) not in self._settled:
                self._note_missing(id(leaf), self._why_missing(step, leaf, flow, cuts))
        if crossings is None:
            return
        for leaf in crossings.variables:
            cut = blocking(flow.bit_of(leaf) & ~live, flow, cuts)
            if cut is not None and cut.reason == "constant":
                why = self._why_missing(step, leaf, flow, cuts)
                self._constant[id(leaf)] = replace(why, missing=False)
        for position, leaf in enumerate(crossings.variables):
            if id(leaf) in zero:
                self._zero[id(leaf)] = self._why_zero(step, position, crossings, flow)

    def settle(self, step: int, held: set[int]) -> None:
        """An optimizer that holds these follows the pass of a step. What that pass says of them
        counts, and not what the loss of another optimizer leaves out on purpose."""
        for key in held & self._missing.keys():
            absence = self._missing[key]
            if absence.step == step and absence.reason not in _UNREAD:
                self._settled.add(key)

    def _note_missing(self, key: int, absence: Absence) -> None:
        """A pass that has not read a leaf tells nothing that another one has not told."""
        if absence.reason not in _UNREAD or key not in self._missing:
            self._missing[key] = absence

    def _why_missing(self, step: int, leaf: torch.Tensor, flow: Flow, reached: int) -> Absence:
        bit = flow.bit_of(leaf)
        cut = blocking(bit, flow, reached)
        is_layers = id(leaf) in self.layers.parameters
        if cut is None and (not bit or (is_layers and not flow.is_used(bit))):
            return Absence("", True, "unused" if is_layers else "stale", False, step)
        if cut is None:
            site = flow.last_use(bit)
            location = resolve(*site[0]) if site else None
            reason = "differentiated" if flow.differentiated & bit else "unreached"
            return Absence("", True, reason, False, step, location=location)
        location = resolve(*cut.note.user[0]) if cut.note.user else None
        related = None
        reason = reason_of(cut)
        if reason == "no_grad":
            guard = guard_of(cut.note.user)
            if guard is not None:
                location, related = guard, location
        return Absence(
            leaf="",
            missing=True,
            reason=reason,
            trained=False,
            step=step,
            call=to_call(cut.note),
            location=location,
            related=related,
        )

    def _why_zero(self, step: int, leaf: int, crossings: Crossings, flow: Flow) -> Absence:
        if cancels(leaf, crossings.found):
            return Absence("", False, "cancelled", False, step)
        found = where_it_ends(leaf, crossings.found)
        if found is None:
            return Absence("", False, "unknown", False, step)
        position, edge = found
        crossing = crossings.found[position]
        is_one_of_several = any(norm for norm in crossing.into)
        deciding = decider(position, crossings.found, flow)
        selection = flow.selections.get(deciding.seq) if deciding.full else None
        reason = zero_reason(crossing, edge)
        if selection is not None and is_one_of_several:
            crossing, reason = deciding, "left-out"
        self._selections[id(crossings.variables[leaf])].add(selection)
        call = call_of(crossing, flow)
        return Absence(
            leaf="",
            missing=False,
            reason=reason,
            trained=False,
            step=step,
            call=call,
            node=crossing.name,
            location=call.location,
            grad_output=crossing.out,
            siblings=is_one_of_several and prefers_another(deciding),
        )

    def facts(
        self,
        leaves: Sequence[Leaf],
        trained: dict[int, torch.Tensor],
        names: dict[int, str],
        given: set[int],
        successions: Iterable[Succession],
        added: Mapping[torch.Tensor, Site],
    ) -> tuple[Absence, ...]:
        """The leaves that never had a gradient, or never one other than zero. `given` had one
        that somebody else put there."""
        if not self._looked:
            return ()
        by_name = {leaf.name: leaf for leaf in leaves}
        found = []
        candidates = {**self.layers.parameters, **trained}
        gone = {
            key
            for key, leaf in candidates.items()
            if leaf.requires_grad
            and key not in given
            and not _known(by_name.get(self._name(key, names)))
        }
        spare = self._spare(gone, trained)
        for key in candidates:
            if key not in gone or key in spare:
                continue
            absence = self._missing.get(key)
            if absence is None and key in trained:
                absence = Absence("", True, "stale", True, 0)
            if absence is not None and absence.reason == "stale" and in_some_module({key}):
                absence = replace(absence, reason="unused")
            if absence is not None and candidates[key].numel():
                name = self._name(key, names)
                found.append(self._finish(absence, key, name, key in trained, gone))
        found += self._unregistered(by_name)
        found += [
            Absence(one.name, False, "replaced", True, 0)
            for one in successions
            if not one.taken and one.missed >= _MISSED and id(one.new) not in trained
        ]
        for parameter, site in added.items():
            leaf = by_name.get(self._name(id(parameter), names))
            if id(parameter) not in trained and leaf is not None and _stands_still(leaf):
                place = resolve(*site[0]) if site else None
                found.append(Absence(leaf.name, False, "added", False, 0, location=place))
        keys = self._keys(names)
        for leaf in leaves:
            if leaf.known and (self._constant or not any(leaf.known)):
                key = keys.get(leaf.name, -1)
                absence = self._constant.get(key) or self._zero.get(key)
                if absence is None and any(leaf.known):
                    continue
                absence = absence or Absence("", False, "unknown", False, 0)
                if absence.reason == "left-out" and len(self._selections[key]) > 1:
                    absence = replace(absence, reason="masked")  # others at another step
                found.append(self._finish(absence, key, leaf.name, leaf.trained, set()))
        return tuple(found)

    def died(self, leaves: Sequence[Leaf], names: dict[int, str]) -> tuple[Absence, ...]:
        """Where the gradient ends of leaves that had one, and have none but zeros by now."""
        keys = self._keys(names)
        return tuple(
            self._finish(absence, keys[leaf.name], leaf.name, leaf.trained, set())
            for leaf in leaves
            if leaf.name in keys and any(leaf.known) and not leaf.known[-1]
            if (absence := self._zero.get(keys[leaf.name])) is not None
        )

    def _unregistered(self, leaves: Mapping[str, Leaf]) -> Iterator[Absence]:
        """What a module holds in a place that its `parameters()` skips."""
        for owner in self.layers.unregistered.values():
            leaf = leaves.get(owner.name)
            # A tensor that is there for one pass alone is a batch whose gradient is asked for.
            if leaf is not None and len(leaf.known) > 1 and any(leaf.known) and not leaf.trained:
                place, _ = definition(owner.path)
                yield Absence(leaf.name, False, "unregistered", False, 0, location=place)

    def _spare(self, gone: set[int], trained: dict[int, torch.Tensor]) -> set[int]:
        """The parameters of modules of which nothing was read, and that nobody trains: the layer
        that TransformerEncoder copies, an older model."""
        roots = {key: id(owner.path[0][1]) for key, owner in self.layers.owners.items()}
        alive = {
            root
            for key, root in roots.items()
            if key not in gone or key in trained or not self._is_unread(key)
        }
        return {key for key, root in roots.items() if root not in alive}

    def _is_unread(self, key: int) -> bool:
        absence = self._missing.get(key)
        return absence is not None and absence.reason == "unused"

    def _name(self, key: int, names: dict[int, str]) -> str:
        owner = self.layers.owners.get(key)
        return owner.name if owner is not None else names.get(key, "")

    def _keys(self, names: dict[int, str]) -> dict[str, int]:
        """The leaves by name."""
        return {self._name(key, names): key for key in (*self._zero, *names)}

    def _finish(
        self, absence: Absence, key: int, name: str, trained: bool, gone: set[int]
    ) -> Absence:
        location, related, beside, foreign = absence.location, absence.related, False, False
        owner = None
        if key in self.layers.parameters:
            owner = self.layers.unused(self.layers.parameters[key], gone)
        if owner is not None:
            beside, foreign = siblings(owner), packaged(owner)
            if absence.reason == "unused":
                location, related = definition(owner.path)
        return Absence(
            leaf=name,
            missing=absence.missing,
            reason=absence.reason,
            trained=trained,
            step=absence.step,
            call=absence.call,
            node=absence.node,
            location=location,
            related=related,
            grad_output=absence.grad_output,
            siblings=beside or absence.siblings,
            packaged=foreign,
        )


def _stands_still(leaf: Leaf) -> bool:
    """Whether it has had gradients, and nobody has moved it by them."""
    return sum(map(bool, leaf.known)) > _MISSED and leaf.weight == leaf.start


def _known(leaf: Leaf | None) -> bool:
    return leaf is not None and bool(leaf.known)
