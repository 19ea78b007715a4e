"""Which modules are running, kept around `nn.Module.__call__`, and which custom Function."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

import torch

from gradscope.record.graph import function_name
from gradscope.record.modules import ModuleFrame
from gradscope.record.sites import calls_modules
from gradscope.record.stand_ins import stand_in


class Follower(Protocol):
    """Who wants to know, for its `askers`: `module` is set to the innermost running module's frame,
    or None."""

    module: ModuleFrame | None
    askers: set[object]  # while there are none, nobody wants to


def follow_modules(
    follower: Follower,
    stack: ExitStack,
    thread: int,
    saw_root: Callable[[torch.nn.Module], None] = lambda module: None,
) -> None:
    """Keep `follower.module` true, in one thread, until the stack is closed: a tenth of what global
    forward hooks cost. `saw_root` is told of each module that no other one calls."""
    original = torch.nn.Module.__call__
    ident = threading.get_ident
    askers = follower.askers

    def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not askers or ident() != thread:
            return original(self, *args, **kwargs)
        outer = follower.module
        if outer is None:
            saw_root(self)
        follower.module = ModuleFrame(self, outer)
        try:
            return original(self, *args, **kwargs)
        finally:
            follower.module = outer

    calls_modules(__call__.__code__)
    stand_in(stack, torch.nn.Module, "__call__", __call__)


class FunctionFollower(Protocol):
    """`function` is set to the name of the custom Function whose forward is running, or None."""

    function: str | None


def follow_functions(follower: FunctionFollower, stack: ExitStack, thread: int) -> None:
    """Keep `follower.function` true, in one thread, until the stack is closed."""
    original: Any = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            return original(cls, *args, **kwargs)
        outer, follower.function = follower.function, function_name(cls)
        try:
            return original(cls, *args, **kwargs)
        finally:
            follower.function = outer

    stand_in(stack, torch.autograd.Function, "apply", apply)
