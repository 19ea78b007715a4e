"""Random numbers that a backward pass draws anew where it runs a part of the forward pass again: it
differentiates another dropout than the one that made the loss."""

from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

import torch

from gradscope.facts import Redraw
from gradscope.record.context import RunContext
from gradscope.record.schema import OpInfo
from gradscope.record.sites import Site, note_site, place_of

_MOST = 1024  # places whose draws are remembered, and draws of each
_MOST_FOUND = 8


@dataclass(slots=True)
class _Drawn:
    """What one module draws at one place in forward: by which states of the generator."""

    site: Site
    states: set[int] = field(default_factory=set)


class Redraws:
    """Told of each op that draws, before it does."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._drawn: dict[object, _Drawn] = {}
        self._last = 0  # step
        # By the function that runs parts again: at which calls, of which in forward.
        self._found: dict[CodeType, tuple[Redraw, dict[Site, Site]]] = {}

    def note(self, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any], frame: Any) -> None:
        context, in_backward = self._context, self._context.running.node is not None
        site, inner = note_site(frame)
        if not (site or inner) or context.in_optimizer:
            return
        if in_backward and not torch.is_grad_enabled():  # it computes a gradient
            return
        if context.step > self._last + 1:  # steps between were only watched
            self._drawn.clear()
        self._last = context.step
        generator = _generator(args, kwargs)
        module = id(context.module.module) if context.module is not None else 0
        key = info.name, module, (inner or site)[0]
        if not in_backward and len(self._drawn) < _MOST:
            self._drawn.setdefault(key, _Drawn(site))
        drawn = self._drawn.get(key)
        if generator is None or drawn is None or len(drawn.states) >= _MOST:
            return
        # As numbers, and hashed: a state has 5,000 bytes.
        state = hash(tuple(generator.get_state().view(torch.int64).tolist()))
        if not in_backward:
            drawn.site = site or drawn.site
            drawn.states.add(state)
        elif state not in drawn.states:
            self._found_at(info, site, drawn.site, generator.device.type)

    def _found_at(self, info: OpInfo, again: Site, first: Site, device: str) -> None:
        """The frames that both have in common run the part; those who call it tell the two runs
        apart. What torch runs again has none of the program's in backward."""
        shared = 0
        while shared < min(len(again), len(first)) and again[shared][0] is first[shared][0]:
            shared += 1
        here, there = again[shared:], first[shared:] or first[-1:]
        place = (here or there)[:1]
        if not place or len(self._found) >= _MOST_FOUND:
            return
        new = Redraw(info.name, self._context.step, (), bool(here), device)
        _, calls = self._found.setdefault(place[0][0], (new, {}))
        if len(calls) < _MOST_FOUND:
            calls.setdefault(place, there)

    def facts(self) -> tuple[Redraw, ...]:
        return tuple(
            replace(one, places=tuple((place_of(a), place_of(b)) for a, b in calls.items()))
            for one, calls in self._found.values()
        )


def _generator(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Generator | None:
    """The one that an op draws from, by what it is given; None of other devices."""
    given = kwargs.get("generator")
    if given is None:
        first = next((one for one in args if isinstance(one, torch.Tensor)), None)
        device = torch.device(kwargs.get("device") or "cpu") if first is None else first.device
        if device.type == "cpu":
            return torch.default_generator
        if device.type == "cuda":
            index = torch.cuda.current_device() if device.index is None else device.index
            return torch.cuda.default_generators[index]
    return given if isinstance(given, torch.Generator) else None
