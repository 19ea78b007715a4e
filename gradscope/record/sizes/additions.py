"""Layers that a model got after an optimizer had been given all of its parameters."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from gradscope.record.held import modules_in
from gradscope.record.optimizers import parameters_of
from gradscope.record.sites import Site, note_site

_MOST_OPTIMIZERS = 16  # an inner loop makes them by the thousand


@dataclass(frozen=True, slots=True)
class _Given:
    """Whoever gives an optimizer a part of a model means it; whoever gives it the whole model
    means the whole. `names` are those of the parameters by id, which the optimizer keeps alive."""

    optimizer: weakref.ref[Any]
    module: weakref.ref[torch.nn.Module]
    names: Mapping[int, str]
    site: Site


class Additions:
    """What the modules in sight held when each of the first optimizers was made."""

    def __init__(self) -> None:
        self._given: list[_Given] = []
        self._made = 0

    def note(self, optimizer: Any, frame: FrameType) -> None:
        """An optimizer has just been made, below `frame`."""
        self._made += 1
        if self._made > _MOST_OPTIMIZERS:
            return
        held = {id(one) for one in parameters_of(optimizer)}
        user, _ = note_site(frame)
        waiting = {id(one): one for _, one in modules_in(frame)}
        seen: set[int] = set()
        while waiting:
            key, module = waiting.popitem()
            seen.add(key)
            learning = {id(one) for one in module.parameters() if one.requires_grad}
            if learning and learning <= held:
                names = {id(one): name for name, one in module.named_parameters()}
                references = weakref.ref(optimizer), weakref.ref(module)
                self._given.append(_Given(*references, names, user))
            elif learning:
                waiting |= {id(one): one for one in module.children() if id(one) not in seen}

    def found(self) -> dict[torch.Tensor, Site]:
        """The parameters that no optimizer has been given since, and where the one was made that
        holds the others. What took the place of another one has not been added."""
        found: dict[torch.Tensor, Site] = {}
        for given in self._given:
            module, optimizer = given.module(), given.optimizer()
            if module is None or optimizer is None:
                continue
            held = {id(one) for one in parameters_of(optimizer)}
            now = dict(module.named_parameters())
            is_replaced = not given.names.keys() <= set(map(id, now.values()))
            taken = set(given.names.values()) if is_replaced else set()
            for name, parameter in now.items():
                if id(parameter) not in held | given.names.keys() and name not in taken:
                    found.setdefault(parameter, given.site)
        return found
