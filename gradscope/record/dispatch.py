"""The one dispatch mode, as far as it comes and goes: it is there while anybody asks for ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gradscope.record.modes import Unseen, lifted_above, mode_count, put, take
from gradscope.record.sizes.flow import Flow
from gradscope.record.stand_ins import hide_from_dynamo

_modes_left = torch._C._len_torch_dispatch_stack


class Dispatch(Unseen):
    """Context manager: below every mode that comes after it. `flow` follows the coming forward
    pass. Not reentrant, and of the thread that entered it (autograd's own threads included)."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False  # every op is looked at
        self.flow: Flow | None = None
        self.capturing = False  # a CUDA graph
        self.on_asked: Callable[[bool], None] = lambda asked: None  # told as it comes and goes
        self._is_there = True
        self._below = 0  # modes that were there before
        self._all_below = 0  # with those of torch's tracers

    def __enter__(self) -> Dispatch:
        self._below, self._all_below = mode_count(), _modes_left()
        super().__enter__()  # type: ignore[no-untyped-call]
        self._settle()
        return self

    def __exit__(self, *failure: object) -> None:
        if not self._is_there:
            put(self, self._below)
        with lifted_above(self._below + 1):
            super().__exit__(*failure)  # type: ignore[no-untyped-call]

    def look_in_full(self, is_full: bool) -> None:
        self.is_full = is_full
        self._settle()

    def follow(self, flow: Flow | None) -> None:
        self.flow = flow
        self._settle()

    def _settle(self) -> None:
        is_asked = self.is_full or self.flow is not None
        if is_asked is not self._is_there:
            self._is_there = is_asked
            if is_asked:
                put(self, self._below)
            else:
                take(self)
        self.on_asked(is_asked)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.capturing or _modes_left() > self._all_below:
            # A tracer (make_fx, FakeTensorMode) lies below all modes: there are no values to look
            # at, and a question of ours would become part of what it traces.
            return func(*args, **kwargs)
        out = self.run(func, args, kwargs) if self.is_full else func(*args, **kwargs)
        if self.flow is not None:
            self.flow.note(func, args, kwargs, out)
        return out

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An op, at which all is looked that it shows."""
        return func(*args, **kwargs)


hide_from_dynamo(Dispatch.__torch_dispatch__)
