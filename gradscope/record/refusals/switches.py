"""Where the program switches gradients off by a call, which holds for all that runs after it."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from types import CodeType, FrameType
from typing import Any

import torch

from gradscope.facts import Location
from gradscope.record.grad_modes import is_statement, switched_off_at
from gradscope.record.sites import USER, Site, kind_of, note_site, resolve
from gradscope.record.stand_ins import is_elsewhere, stand_in


class Switches:
    """The calls of `torch.set_grad_enabled` in one thread, by the instruction that makes them: what
    they were given last. Which of them are no `with` is asked of the source, once autograd raises.
    """

    def __init__(self) -> None:
        self.had_grad = True  # when the program ended
        # In the order of their last calls; the code is kept, so that its identity is no other's.
        self._calls: dict[tuple[int, int, bool], tuple[CodeType, Site]] = {}

    def begin(self, stack: ExitStack, thread: int) -> None:
        """Note them until `stack` ends."""
        kind: Any = torch.set_grad_enabled
        original, calls = kind.__init__, self._calls

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if is_elsewhere(thread):
                return
            frame = sys._getframe(1)
            code, mode = frame.f_code, bool(self.mode)
            key = id(code), frame.f_lasti, mode
            is_told = not mode and kind_of(code) == USER
            calls.pop(key, None)
            calls[key] = code, note_site(frame)[0] if is_told else ()

        stand_in(stack, kind, "__init__", __init__)

    def left_off(self, frame: FrameType | None) -> tuple[Location, ...]:
        """The program's frames, innermost first, at the last statement that has switched them off,
        where they are off in the end. Of one that was not seen, what the file of `frame` tells."""
        if self.had_grad:
            return ()
        for code, lasti, mode, site in self._last_first():
            if (mode or site) and is_statement(code, lasti):
                if mode:
                    break
                return tuple(resolve(*one) for one in site)
        read = switched_off_at(frame.f_code) if frame is not None else None
        return (read,) if read is not None else ()

    def _last_first(self) -> Iterator[tuple[CodeType, int, bool, Site]]:
        for (_, lasti, mode), (code, site) in reversed(self._calls.items()):
            yield code, lasti, mode, site
