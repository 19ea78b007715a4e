"""Frozen parts of a model that the program has set to eval mode, and that `train()` of what holds
them sets back: all of a module gets the mode of the module."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import nn

from gradscope.facts import BackToTrain, EvalUndone
from gradscope.record.held import holds_any, is_within
from gradscope.record.names import Names
from gradscope.record.sites import USER, Site, instruction_of, kind_of, place_of
from gradscope.record.sizes.running_statistics import keeps_statistics
from gradscope.record.sizes.sights import spelled_inside

_EVAL: Any = nn.Module.eval.__code__
_FEWEST = 3  # passes
_MOST = 1024  # modules with an `eval()` of their own


@dataclass(slots=True, eq=False)
class _Part:
    """A module whose own `eval()` the program calls. `meant`: to last, as far as is known;
    `is_back`: a `train()` came since; `own`: one of this very module, and no run yet."""

    module: nn.Module
    parts: list[nn.Module]  # that have two modes
    site: Site
    since: int  # calls of `train()` or `eval()` before the first of these
    ran_before: bool  # in train mode, in the passes before
    was_frozen: bool = False  # at the last of these
    meant: bool = True
    is_back: bool = False
    own: bool = False
    is_habit: bool = False  # its mode is changed for something else than to freeze it
    looked_at: tuple[int, bool] = (-1, False)
    last: int = -2
    passes: int = 0
    # By the instruction of a `train()`: where, of what, and whether the user's line calls it.
    undone: dict[object, tuple[Site, nn.Module, bool]] = field(default_factory=dict)
    loose: set[object] = field(default_factory=set)  # those that were also called otherwise

    @property
    def is_frozen(self) -> bool:
        return _is_frozen(self.module)

    def note_eval(self) -> None:
        self.was_frozen, self.meant, self.is_back, self.own = self.is_frozen, True, False, False

    def note_run(self, step: int, *, training: bool) -> None:
        if not training:
            if self.meant and not (self.is_back or self.was_frozen):
                self.meant = self.was_frozen = self.is_frozen
        elif self.meant and self.is_back:
            self.meant = self.is_frozen
            # Without gradients, what runs now and then is no training.
            self.passes += self.meant and (torch.is_grad_enabled() or step == self.last + 1)
            self.last = step
        elif self.own:
            self.own = False
            self.is_habit |= self.is_frozen


class UndoneEval:
    """Told of each `train()` and `eval()`, and of the runs of what has two modes."""

    def __init__(self) -> None:
        self._parts: dict[int, _Part] = {}
        self._by_part: dict[int, list[_Part]] = defaultdict(list)
        self._ran: dict[int, int] = {}  # the last step in train mode
        self._first: dict[object, int] = {}  # call of a `train()`
        self._calls = 0

    def note_set(self, module: nn.Module, frame: FrameType, site: Site, step: int) -> None:
        """`train()` or `eval()` was called, as `frame` asked at `site`."""
        self._calls += 1
        asked = frame.f_back if frame.f_code is _EVAL else frame
        is_users = asked is not None and kind_of(asked.f_code) == USER
        if module.training:
            self._first.setdefault(instruction_of(site), self._calls)
            self._note_train(module, site, is_users)
        elif is_users:
            one = self._parts.get(id(module))
            if one is None and len(self._parts) < _MOST:
                one = self._met(module, site, step)
            if one is not None:
                one.note_eval()

    def _met(self, module: nn.Module, site: Site, step: int) -> _Part:
        parts = [one for one in module.modules() if _has_two_modes(one)]
        ran = any(self._ran.get(id(one), step) < step for one in parts)
        met = self._parts[id(module)] = _Part(module, parts, site, self._calls, ran)
        for one in parts:
            self._by_part[id(one)].append(met)
        return met

    def _note_train(self, module: nn.Module, site: Site, is_users: bool) -> None:
        own, key = self._parts.get(id(module)), instruction_of(site)
        if own is not None:
            own.meant, own.is_back, own.own = False, True, True
        if len(self._parts) == (own is not None):
            return
        within = {id(one) for one in module.modules()} - {id(module)}
        inside = [one for one in self._parts.values() if id(one.module) in within]
        frozen = {id(one) for one in inside if one.is_frozen}
        new = [one for one in inside if not one.is_back]
        # To be evaluated, all parts are set to eval mode, those that are trained too.
        beside = [one for one in new if not (one.was_frozen or id(one) in frozen)]
        for one in new:
            one.is_back = True
            one.is_habit |= any(not is_within(one.module, other.module) for other in beside)
        for one in inside:
            one.meant &= id(one) in frozen
            if one.meant:
                one.undone.setdefault(key, (site, module, is_users))
        for one in self._parts.values():
            if id(one) not in frozen:
                one.loose.add(key)

    def note_run(self, part: nn.Module, step: int) -> None:
        if part.training:
            self._ran[id(part)] = step
        for one in self._by_part.get(id(part), ()):
            if one.looked_at != (step, part.training):
                one.looked_at = step, part.training
                one.note_run(step, training=part.training)

    def facts(self, trained: Collection[int], names: Names) -> Iterator[EvalUndone]:
        """Together what one `train()` has set back first. `trained`: parameters, by id."""
        told = [one for one in self._parts.values() if _is_told(one, trained)]
        inner = {id(own) for one in told for own in one.module.modules() if own is not one.module}
        groups = defaultdict[object, list[_Part]](list)
        for one in told:
            if id(one.module) not in inner:
                groups[next(iter(one.undone))].append(one)
        for group in groups.values():
            calls = {key: call for one in group for key, call in one.undone.items()}
            yield EvalUndone(
                _unique(names.called(one.module) for one in group),
                tuple(sorted({type(own).__name__ for one in group for own in one.parts})),
                max(one.passes for one in group),
                max(one.last for one in group),
                _unique(place_of(one.site) for one in group),
                tuple(self._call(key, *call, group) for key, call in calls.items()),
            )

    def _call(
        self, key: object, site: Site, holder: nn.Module, is_users: bool, group: list[_Part]
    ) -> BackToTrain:
        own = [one for one in group if key in one.undone]
        paths = _unique(spelled_inside(holder, one.module) for one in own) if is_users else ()
        always = all(key not in one.loose and self._first[key] > one.since for one in own)
        return BackToTrain(place_of(site), paths, always, _layers(holder, own))


def _is_told(one: _Part, trained: Collection[int]) -> bool:
    if one.passes < _FEWEST or one.is_habit or not one.undone:
        return False
    _, holder, _ = next(iter(one.undone.values()))
    was_trained = holds_any(one.module, trained)
    return holds_any(holder, trained) and (was_trained or not one.ran_before)


def _layers(holder: nn.Module, parts: list[_Part]) -> tuple[str, ...]:
    """The classes of several that are BatchNorm or Dropout themselves, and all of their classes
    that are frozen."""
    kinds, own = tuple({type(one.module) for one in parts}), {id(one.module) for one in parts}
    alike = (one for one in holder.modules() if isinstance(one, kinds) and _is_frozen(one))
    is_known = all(getattr(nn, kind.__name__, None) is kind for kind in kinds)
    is_single = all(one.parts == [one.module] for one in parts)
    if len(parts) < 2 or not is_known or not is_single or any(id(one) not in own for one in alike):
        return ()
    return tuple(sorted(f"torch.nn.{kind.__name__}" for kind in kinds))


def _has_two_modes(one: nn.Module) -> bool:
    return keeps_statistics(one) or (isinstance(one, nn.Dropout) and one.p > 0)


def _is_frozen(module: nn.Module) -> bool:
    """Whether it has parameters, and all are."""
    is_trained = any(one.requires_grad for one in module.parameters())
    return not is_trained and any(True for _ in module.parameters())


def _unique(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(one for one in values if one is not None))
