"""Which modules are running, kept around `nn.Module.__call__`."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

import torch

from gradscope.record.sites import ModuleFrame, calls_modules
from gradscope.record.stand_ins import stand_in


class Askers:
    """Who wants to know which module runs. While there are none, nothing is in the way of a call:
    a step calls many modules."""

    def __init__(self) -> None:
        self._asking: set[object] = set()
        self.follow: Callable[[bool], None] = lambda asked: None

    def __bool__(self) -> bool:
        return bool(self._asking)

    def add(self, one: object) -> None:
        if not self._asking:
            self.follow(True)
        self._asking.add(one)

    def discard(self, one: object) -> None:
        self._asking.discard(one)
        if not self._asking:
            self.follow(False)


class Follower(Protocol):
    """Who wants to know, for its `askers`: `module` is set to the innermost running module's frame,
    or None."""

    module: ModuleFrame | None
    askers: Askers


def follow_modules(
    follower: Follower,
    stack: ExitStack,
    thread: int,
    saw_root: Callable[[torch.nn.Module], None] = lambda module: None,
) -> None:
    """Keep `follower.module` true, in one thread, until the stack is closed: a tenth of what global
    forward hooks cost. `saw_root` is told of each module that no other one calls."""
    ident = threading.get_ident
    original: Callable[..., Any] = torch.nn.Module.__call__
    is_placed = False
    placed = ExitStack()

    def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not follower.askers or ident() != thread:
            return original(self, *args, **kwargs)
        outer = follower.module
        if outer is None:
            saw_root(self)
        follower.module = ModuleFrame(self, outer)
        try:
            return original(self, *args, **kwargs)
        finally:
            follower.module = outer

    def follow(asked: bool) -> None:
        nonlocal original, is_placed
        current: Any = torch.nn.Module.__call__
        if asked and not is_placed:
            original, is_placed = current, True
            stand_in(placed, torch.nn.Module, "__call__", __call__)
        elif not asked and current is __call__:  # else the program has put its own around ours
            placed.close()
            is_placed = False

    calls_modules(__call__.__code__)
    stack.callback(placed.close)
    follower.askers.follow = follow
    follow(bool(follower.askers))
