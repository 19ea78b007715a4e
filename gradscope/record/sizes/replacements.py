"""What becomes of a model once an optimizer has been given its parameters: modules that are put in
the place of others, and layers that it gets."""

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from gradscope.facts import Location
from gradscope.record.context import RunContext, shielded
from gradscope.record.definitions import kept_from, names_at
from gradscope.record.held import modules_in
from gradscope.record.names import Path
from gradscope.record.optimizers import held_by, outside_of
from gradscope.record.sites import Site, note_site, place_of
from gradscope.record.stand_ins import around, is_elsewhere

_MOST_OPTIMIZERS = 16  # an inner loop makes them by the thousand
_MOST = 256  # modules of one class: a loop may make a loss at each step


class _Placed(NamedTuple):
    """A module: how many optimizers there were when the program made it, or gave it to another
    module in the place of one, and where. `instead`: the parameters of that one, by id."""

    module: weakref.ref[torch.nn.Module]
    optimizers: int
    site: Site
    instead: frozenset[int]


class _Holder(NamedTuple):
    """An optimizer: which one it is, what it was given, by id, where, and which modules whole."""

    optimizer: weakref.ref[Any]
    number: int
    held: set[int]
    made: Site
    modules: list[tuple[weakref.ref[torch.nn.Module], Mapping[int, str]]]


class Found(NamedTuple):
    """Where a module was put in the place of another one, or several were: the user's lines of
    each, innermost first; and where the optimizer was `made` that holds the other one."""

    sites: tuple[tuple[Location, ...], ...] = ()
    made: Location | None = None


class Replacements:
    """Looks at modules from the first optimizer on; `on_new` is told of new parameters in them."""

    def __init__(self, context: RunContext, on_new: Callable[[], object]) -> None:
        self._context, self._on_new = context, on_new
        self._optimizers: list[_Holder] = []
        self._placed: dict[int, _Placed] = {}  # by id
        self._made: Counter[type] = Counter()

    def install(self, stack: ExitStack, thread: int) -> None:
        """Until `stack` ends."""

        def registering(owner: Any, name: str, one: Any) -> None:
            old = owner._modules.get(name)
            if self._optimizers and one is not None and old is not None and old is not one:
                if not is_elsewhere(thread):
                    self._context.shielded("a module", self._note, one, sys._getframe(1), old)

        def giving(owner: Any, name: str, parameter: Any) -> None:
            # FSDP gives those that have been sharded other ones in each pass.
            if id(owner) in self._placed and not is_elsewhere(thread):
                self._on_new()

        stack.callback(register_module_module_registration_hook(registering).remove)
        stack.callback(register_module_parameter_registration_hook(giving).remove)
        for name in ("__init__", "__setstate__"):  # a copy is not constructed
            around(stack, thread, torch.nn.Module, name, after=self._note_made)

    def _note_made(self, frame: FrameType, _: None, one: Any, /, *more: Any, **named: Any) -> None:
        if self._optimizers and self._made[type(one)] < _MOST:
            self._made[type(one)] += 1
            self._context.shielded("a module", self._note, one, outside_of(one, frame))

    def _note(
        self, module: torch.nn.Module, frame: FrameType, old: torch.nn.Module | None = None
    ) -> None:
        if old is not None or vars(module).get("_parameters"):  # one that is constructed has none
            self._on_new()
        instead = frozenset(map(id, old.parameters()) if old is not None else ())
        site, _ = note_site(frame)
        count = len(self._optimizers)
        self._placed[id(module)] = _Placed(weakref.ref(module), count, site, instead)

    def optimizer_made(self, optimizer: Any, frame: FrameType) -> None:
        if (count := len(self._optimizers)) >= _MOST_OPTIMIZERS:
            return
        held, (made, _) = held_by(optimizer), note_site(frame)
        holder = _Holder(weakref.ref(optimizer), count + 1, held, made, [])
        self._optimizers.append(holder)
        if self._context.is_between:
            with shielded(self._context):
                holder.modules.extend(_given_whole(held, frame))

    def added(self) -> dict[torch.Tensor, Site]:
        """The parameters that no optimizer has been given since, and where the one was made that
        holds the others. What took the place of another one has not been added."""
        found: dict[torch.Tensor, Site] = {}
        for holder in self._optimizers:
            optimizer = holder.optimizer()
            held = held_by(optimizer) if optimizer is not None else set()
            for reference, names in holder.modules if optimizer is not None else ():
                module = reference()
                now = dict(module.named_parameters()) if module is not None else {}
                is_replaced = not names.keys() <= set(map(id, now.values()))
                taken = set(names.values()) if is_replaced else set()
                for name, parameter in now.items():
                    if id(parameter) not in held | names.keys() and name not in taken:
                        found.setdefault(parameter, holder.made)
        return found

    def of(self, old: int, path: Path, site: Site) -> Found:
        """Of a parameter, by its id, that an optimizer holds, and of the modules around the one
        that has its name by now. `site` is where that was given to a module by itself."""
        holder = self._holder(old)
        if holder is None:
            return Found()
        placed = self._outermost(path, holder)
        _, lines = kept_from(placed.site if placed is not None else site, holder.made)
        return Found((lines,) if lines else (), place_of(holder.made))

    def among(self, paths: Sequence[Path], old: int) -> Found:
        """The same, of the modules around those that may be in its place: where a module was given
        one for that which had it, or else what the optimizer was made of was given another one."""
        holder = self._holder(old)
        if holder is None:
            return Found()
        found = (self._outermost(path, holder) for path in paths)
        placed = {id(one.module()): one for one in found if one is not None}.values()
        kept = [kept_from(one.site, holder.made) for one in placed if old in one.instead]
        given = names_at(holder.made)
        others = (kept_from(one.site, holder.made) for one in placed if not one.instead)
        kept = kept or [one for one in others if one[0] in given]
        return Found(tuple(dict.fromkeys(lines for _, lines in kept)), place_of(holder.made))

    def _holder(self, old: int) -> _Holder | None:
        return next((one for one in self._optimizers if old in one.held), None)

    def _outermost(self, path: Path, holder: _Holder) -> _Placed | None:
        """The outermost of these modules that came after an optimizer, and has nothing of its."""
        for _, module in path:
            placed = self._placed.get(id(module))
            is_it = placed is not None and placed.module() is module
            if placed is not None and is_it and placed.optimizers >= holder.number:
                if holder.held.isdisjoint(map(id, module.parameters())):
                    return placed
        return None


def _given_whole(
    held: set[int], frame: FrameType
) -> Iterator[tuple[weakref.ref[torch.nn.Module], Mapping[int, str]]]:
    """The modules in sight of which an optimizer was given all that learns, and the names of their
    parameters by id, which it keeps alive. Whoever gives it a part of a model means it; whoever
    gives it the whole model means the whole."""
    waiting = {id(one): one for _, one in modules_in(frame)}
    seen: set[int] = set()
    while waiting:
        key, module = waiting.popitem()
        seen.add(key)
        learning = {id(one) for one in module.parameters() if one.requires_grad}
        if learning and learning <= held:
            yield weakref.ref(module), {id(one): name for name, one in module.named_parameters()}
        elif learning:
            waiting |= {id(one): one for one in module.children() if id(one) not in seen}
