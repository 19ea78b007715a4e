"""States of modules that are loaded again: what `state_dict()` gives refers to the parameters, so
that loading it restores nothing of what training has changed since, and nothing at all where it is
loaded where it was just taken. And states of a module that nobody trains, which throw one that is
trained back again and again."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import nn

from gradscope.facts import Reload, Undoing
from gradscope.record.context import RunContext, shielded
from gradscope.record.held import has_peers
from gradscope.record.sites import Site, note_site, place_of
from gradscope.record.sizes.account import Account
from gradscope.record.sizes.accounts import Usages
from gradscope.record.sizes.leaves import has_memory, samples
from gradscope.record.sizes.sights import modules_of
from gradscope.record.stand_ins import around

_MOST = 100_000  # tensors whose states are remembered
_OFTEN = 2  # times that the same weights undo what was learnt: best ones may be gone back to once
_SAMPLED = 8  # weights


@dataclass(slots=True)
class _Again:
    """One module's weights, of which a few are known, that are loaded into another one, which an
    optimizer holds. `times` counts those before which that had been trained since the one before.
    """

    weights: list[list[Any]]
    source: str
    model: str
    account: Account
    times: int = 0
    step: int = 0


class Reloads:
    """Told of each `state_dict()` and `load_state_dict()`, of a whole module each."""

    def __init__(self, context: RunContext, usages: Usages) -> None:
        self._context = context
        self._usages = usages
        # By the identity of a tensor in a state: after how many passes it was taken, and where.
        self._taken: dict[int, tuple[int, Site]] = {}
        # Whose state was taken last, the id of that, and how often it had been written by then.
        self._last: tuple[str, int, int] = "", 0, 0
        self._again: dict[Site, _Again] = {}  # by the place that loads
        self._found: dict[Site, Reload] = {}  # by the place that loads
        self._itself: dict[Site, int] = {}  # the step of the first time that did so

    def install(self, stack: ExitStack, thread: int) -> None:
        watch, within = partial(around, stack, thread, nn.Module), partial(shielded, self._context)
        watch("state_dict", after=self._after_taking)
        watch("load_state_dict", before=self._note_loaded, within=within)

    def _after_taking(
        self, frame: FrameType, state: Any, module: nn.Module, *more: Any, **named: Any
    ) -> None:
        # A call for a module calls itself for those in it, and tells where to put their parts.
        if isinstance(state, Mapping) and not more and named.get("destination") is None:
            with shielded(self._context):
                self._note_taken(module, state, note_site(frame)[0])

    def _note_taken(self, module: nn.Module, state: Mapping[Any, Any], site: Site) -> None:
        self._last = self._context.names.called(module), id(state), _writes(state)
        if len(self._taken) > _MOST:
            self._taken.clear()
        for value in state.values():
            if isinstance(value, torch.Tensor):
                self._taken[id(value)] = self._context.step, site

    def _note_loaded(
        self, frame: FrameType, module: nn.Module, state_dict: Any, *more: Any, **named: Any
    ) -> None:
        """Of a state that is the module's own in all parts, and older than the last passes, or
        loaded again and again as it was just taken."""
        if not isinstance(state_dict, Mapping):
            return  # torch raises
        site, _ = note_site(frame)
        own = dict(module.named_parameters())
        given = [(own[name], one) for name, one in state_dict.items() if name in own]
        taken, place = min(
            (self._taken.get(id(one), (-1, ())) for _, one in given), default=(-1, ())
        )
        if given and self._last[1] == id(state_dict) and taken == self._context.step:
            self._note_again(module, given, site)
        if taken < 0 or not all(_is_same(*both) for both in given):
            return
        name, step, meant = self._context.names.called(module), self._context.step, ""
        if taken == step:
            # What is written into it is loaded by that: a mean over processes, by a call of theirs.
            is_as_taken = (
                self._last[1:] == (id(state_dict), _writes(state_dict)) and not has_peers()
            )
            if not is_as_taken or self._itself.setdefault(site, step) == step:
                return
            meant = self._meant(module, frame)
        places = place_of(place), place_of(site)
        self._found.setdefault(site, Reload(name, len(given), step - taken, step, *places, meant))

    def _meant(self, module: nn.Module, frame: FrameType) -> str:
        """The only other module there of the class that has such parameters, and is trained."""
        shapes = [one.shape for one in module.parameters()]
        found = []
        for name, reference in modules_of(frame):
            other = reference()
            if other is None or other is module or type(other) is not type(module):
                continue
            weights = list(other.parameters())
            is_trained = any(self._usages.account_of(one) is not None for one in weights)
            if is_trained and [one.shape for one in weights] == shapes:
                found.append(name)
        return found[0] if len(found) == 1 else ""

    def _note_again(self, module: nn.Module, given: list[tuple[Any, Any]], site: Site) -> None:
        """Of a state that was taken right before, of another module."""
        account = self._usages.account_of(given[0][0])
        if account is None or not all(has_memory(one) for both in given for one in both):
            return
        # Not by their versions: what is written by `.data` has none.
        own, weights = (samples(one[:_SAMPLED]) for one in zip(*given, strict=True))
        known = self._again.get(site)
        if known is None or known.weights != weights or known.account is not account:
            both = self._last[0], self._context.names.called(module)
            self._again[site] = _Again(weights, *both, account)
        elif own != weights:
            known.times += 1
            if known.times == _OFTEN:
                known.step = self._context.step

    def undoings(self) -> tuple[Undoing, ...]:
        return tuple(
            Undoing(one.model, one.source, one.times, one.account.name, one.step, place_of(site))
            for site, one in self._again.items()
            if one.times >= _OFTEN
        )

    def facts(self) -> tuple[Reload, ...]:
        return tuple(self._found.values())


def _writes(state: Mapping[Any, Any]) -> int:
    tensors = (one for one in state.values() if isinstance(one, torch.Tensor))
    return sum(one._version for one in tensors if not one.is_inference())


def _is_same(own: Any, given: Any) -> bool:
    """Whether a tensor is a parameter's own memory, as it lies there."""
    if not (has_memory(own) and has_memory(given) and own.numel()):
        return False
    lies = [(one.data_ptr(), one.shape, one.stride()) for one in (own, given)]
    return lies[0] == lies[1]
