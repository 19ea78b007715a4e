"""Modules with a method `backward` of their own: whether anybody calls it, as autograd does not."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from types import FrameType, FunctionType
from typing import Any

import torch

from gradscope.facts import OwnBackward
from gradscope.ops.traits import Trait, has
from gradscope.record.definitions import head
from gradscope.record.names import Names
from gradscope.record.sites import USER, kind_of
from gradscope.record.sizes.flow import Flow
from gradscope.record.stand_ins import stand_in


class OwnBackwards:
    """By the classes of the modules that run."""

    def __init__(self, stack: ExitStack, names: Names) -> None:
        """`names` will tell of each module that runs, until `stack` ends."""
        self._stack = stack
        names.on_root = self.meet
        self._found: dict[type, FunctionType] = {}
        self._looked: set[type] = set()
        self._called: set[type] = set()
        self._computing: set[type] = set()  # whose forward does more than to pass its input on

    def meet(self, root: torch.nn.Module) -> None:
        """A module is about to run for the first time, and with it those that are in it."""
        for kind in {type(module) for module in root.modules()} - self._looked:
            self._looked.add(kind)
            self._put_around(kind)

    def look(self, flow: Flow) -> None:
        """A forward pass was watched."""
        for note in flow.calls.values() if self._found else ():
            passes_on = note.info.view or has(note.info.name, Trait.COPIES)
            if note.module is not None and not passes_on:
                self._computing.add(type(note.module.module))

    def _put_around(self, kind: type) -> None:
        owner: Any = next((one for one in kind.__mro__ if "backward" in vars(one)), None)
        own = vars(owner)["backward"] if owner is not None else None
        if not isinstance(own, FunctionType) or kind_of(own.__code__) != USER:
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not own.__code__:
            frame = frame.f_back
        if frame is not None:  # it runs, and calls what trains
            return

        def backward(*args: Any, **kwargs: Any) -> Any:
            self._called.add(kind)
            return own(*args, **kwargs)

        self._found[kind] = own
        stand_in(self._stack, owner, "backward", backward)

    def facts(self) -> tuple[OwnBackward, ...]:
        """Those that nobody has called."""
        return tuple(
            OwnBackward(
                kind.__name__, head(own.__code__), head(_code_of(kind)), kind not in self._computing
            )
            for kind, own in self._found.items()
            if kind not in self._called
        )


def _code_of(kind: Any) -> Any:
    return getattr(kind.forward, "__code__", None)
