"""What `torch.compile` compiles runs uncompiled where every op is observed: a compiled graph shows
none of its ops."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from gradscope.facts import Compiling
from gradscope.record.sites import Site, note_site, place_of
from gradscope.record.stand_ins import stand_in


class Compiled:
    """What the program compiles, and whether it runs so now."""

    def __init__(self) -> None:
        self.first: Site | None = None  # the first call of `torch.compile`
        self.was_left_out = False  # and ran uncompiled
        self._is_left_out = False
        self._before: Any = None  # the stance that the program has, while ours is in its place

    def follow(self, stack: ExitStack, used: Callable[[], None]) -> None:
        """See what is compiled until `stack` ends. `used` is told of it before it runs."""
        original: Any = torch.compile

        def compile(*args: Any, **kwargs: Any) -> Any:
            from torch._higher_order_ops import utils

            result = original(*args, **kwargs)
            if getattr(utils, "_in_hop_compile", bool)():  # torch 2.6 does not tell
                # `torch.cond` and its kin capture their branches so, and cannot run otherwise.
                return _as_ever(result)
            if self.first is None:
                self.first, _ = note_site(sys._getframe(1))
            used()
            if self._is_left_out:
                self.leave_out()  # which it could not be before Dynamo was there
            return result

        stand_in(stack, torch, "compile", compile)

    def fact(self) -> Compiling | None:
        if self.first is None:
            return None
        return Compiling(place_of(self.first), self.was_left_out)

    def leave_out(self) -> None:
        """From now on it runs uncompiled."""
        self._is_left_out = True
        # Asking Dynamo imports it, so it is asked only where it is there already: something may
        # have been compiled before.
        if self._before is None and "torch._dynamo.eval_frame" in sys.modules:
            from torch._dynamo import eval_frame

            self._before = eval_frame._set_stance(_eager())
        self.was_left_out |= self.first is not None

    def let_run(self) -> None:
        """From now on it runs as the program has it."""
        self._is_left_out = False
        if self._before is not None:
            from torch._dynamo import eval_frame

            if eval_frame._stance == _eager():  # else the program has taken another one meanwhile
                eval_frame._set_stance(self._before)
            self._before = None


def _eager() -> Any:
    from torch._dynamo import eval_frame

    return eval_frame.DynamoStance("force_eager")


def _as_ever(captured: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        from torch._dynamo import eval_frame

        before = eval_frame._set_stance(eval_frame.DynamoStance())
        try:
            return captured(*args, **kwargs)
        finally:
            eval_frame._set_stance(before)

    return call
