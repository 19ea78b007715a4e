"""States of modules that are loaded again: what `state_dict()` gives refers to the parameters, so
that loading it restores nothing of what training has changed since."""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from gradscope.facts import Reload
from gradscope.record.context import RunContext, shielded
from gradscope.record.sites import Site, note_site, place_of
from gradscope.record.sizes.leaves import has_memory
from gradscope.record.stand_ins import is_elsewhere, stand_in, without_us

_MOST = 100_000  # tensors whose states are remembered


class Reloads:
    """Told of each `state_dict()` and `load_state_dict()`, of a whole module each."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        # By the identity of a tensor in a state: after how many passes it was taken, and where.
        self._taken: dict[int, tuple[int, Site]] = {}
        self._within = False  # a call for a module calls itself for those in it
        self._found: dict[Site, Reload] = {}  # by the place that loads

    def install(self, stack: ExitStack, thread: int) -> None:
        take: Any = nn.Module.state_dict
        load: Any = nn.Module.load_state_dict

        def state_dict(one: Any, *args: Any, **kwargs: Any) -> Any:
            if is_elsewhere(thread) or self._within:
                return take(one, *args, **kwargs)
            self._within = True
            try:
                with without_us:
                    state = take(one, *args, **kwargs)
            finally:
                self._within = False
            if isinstance(state, Mapping):
                with shielded(self._context):
                    self._note_taken(state, note_site(sys._getframe(1))[0])
            return state

        def load_state_dict(one: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
            if not is_elsewhere(thread) and isinstance(state, Mapping):
                with shielded(self._context):
                    self._note_loaded(one, state, note_site(sys._getframe(1))[0])
            with without_us:
                return load(one, state, *args, **kwargs)

        stand_in(stack, nn.Module, "state_dict", state_dict)
        stand_in(stack, nn.Module, "load_state_dict", load_state_dict)

    def _note_taken(self, state: Mapping[Any, Any], site: Site) -> None:
        if len(self._taken) > _MOST:
            self._taken.clear()
        for value in state.values():
            if isinstance(value, torch.Tensor):
                self._taken[id(value)] = self._context.step, site

    def _note_loaded(self, module: nn.Module, state: Mapping[Any, Any], site: Site) -> None:
        """Of a state that is the module's own in all parts, and older than the last passes."""
        own = dict(module.named_parameters())
        given = [(own[name], one) for name, one in state.items() if name in own]
        taken, place = min(
            (self._taken.get(id(one), (-1, ())) for _, one in given), default=(-1, ())
        )
        if taken < 0 or taken == self._context.step or not all(_is_same(*both) for both in given):
            return
        name = self._context.names.modules.get(id(module)) or type(module).__name__
        passes = self._context.step - taken
        self._found.setdefault(
            site,
            Reload(name, len(given), passes, self._context.step, place_of(place), place_of(site)),
        )

    def facts(self) -> tuple[Reload, ...]:
        return tuple(self._found.values())


def _is_same(own: Any, given: Any) -> bool:
    """Whether a tensor is a parameter's own memory, as it lies there."""
    if not (has_memory(own) and has_memory(given) and own.numel()):
        return False
    lies = [(one.data_ptr(), one.shape, one.stride()) for one in (own, given)]
    return lies[0] == lies[1]
