"""The stack of dispatch modes, which the program uses as well as we do.

A mode leaves the stack by popping whatever lies on top. So one of ours that comes and goes while
the program runs must never come to lie above one of the program's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

_push: Any = torch._C._push_on_torch_dispatch_stack
_pop: Any = torch._C._pop_torch_dispatch_stack


class Unseen(TorchDispatchMode):
    """A mode that the program and its compilers know nothing of."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The default wraps __torch_dispatch__ to hide it from Dynamo, which imports Dynamo (a
        # second) at the first op and costs a microsecond at each.
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # what Dynamo still captures (see `depth`) it captures without us


def mode_count() -> int:
    """How many modes there are, without those of torch's tracers, which lie in places of their
    own below all others."""
    modes: list[Any] = _get_current_dispatch_mode_stack()
    return sum(getattr(mode, "_mode_key", None) is None for mode in modes)


def put(mode: Any, depth: int) -> None:
    """Put a mode above the first `depth` ones."""
    with lifted_above(depth):
        _push(mode)


def take(mode: Any) -> None:
    """Take a mode off, whatever lies above it."""
    with lifted_above(depth_of(mode) + 1):
        _pop(None)


def is_on(mode: Any) -> bool:
    return mode in _get_current_dispatch_mode_stack()


def depth_of(mode: Any) -> int:
    """How many modes lie below it."""
    stack: list[Any] = _get_current_dispatch_mode_stack()
    above = next(place for place, one in enumerate(reversed(stack)) if one is mode)
    return mode_count() - above - 1


@contextmanager
def lifted_above(depth: int) -> Iterator[None]:
    """Takes the modes above the first `depth` ones off for the moment."""
    above = [_pop(None) for _ in range(mode_count() - depth)]
    try:
        yield
    finally:
        for mode in reversed(above):
            _push(mode)
