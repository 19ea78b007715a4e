"""Which steps are looked at in full, op by op, and which are only watched. What `torch.compile`
compiles runs uncompiled in the former: a compiled graph shows none of its ops."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from gradscope.facts import Compiling
from gradscope.record.mode import RecordingMode
from gradscope.record.schedule import before_chosen, is_chosen
from gradscope.record.sites import Site, note_site, place_of
from gradscope.record.sizes.gradients import Sizes
from gradscope.record.stand_ins import stand_in
from gradscope.record.tracing import is_profiling, unobserved

# Steps in a row of a program that updates by hand, which no other step shows: that gradients are
# never cleared takes the first update and five more.
_BY_HAND = 6


class Depth:
    """Has `mode` look in full at the ops of the first steps and of ever fewer after them (0, 1, 2,
    4, 8, ...), and of all from step `full_from` on, where that is not None. Compiled code, which
    shows no ops, runs in the others alone; a program that has any is only watched until then."""

    def __init__(self, mode: RecordingMode, full_from: int | None) -> None:
        self.compiled = Compiled()
        self.full_since = 0  # the step since which it is in full
        self.full_from = full_from
        self._mode = mode

    def begin(self, stack: ExitStack) -> None:
        """Until `stack` ends."""
        self.compiled.leave_out()
        self._mode.is_full = True
        stack.enter_context(self._mode)
        stack.callback(self.compiled.let_run)

    @property
    def is_full(self) -> bool:
        """Now."""
        return self._mode.is_full

    @property
    def may_look(self) -> bool:
        """Whether nothing of the program's is in the way. A profiler would count each op twice."""
        return self.compiled.first is None and not is_profiling()

    def is_due(self, step: int, updates: int | None, sizes: Sizes) -> bool:
        """Whether to look at the coming step, the one after so many updates by optimizers (None:
        without one), in full; `sizes` tell whether the program updates its parameters itself."""
        number = step if updates is None else updates
        if self.full_from is not None and step >= self.full_from:
            return True
        is_early = step < _BY_HAND and sizes.updates.are_by_hand
        return (is_early or is_chosen(number)) and self.may_look

    def calm(self, step: int, updates: int | None) -> tuple[float, float]:
        """How many passes, and updates, may come until one is due."""
        number = step if updates is None else updates
        rare = before_chosen(number) if self.compiled.first is None else math.inf
        passes = math.inf if self.full_from is None else self.full_from - step
        return (min(passes, rare), math.inf) if updates is None else (passes, rare)

    def note_compiled(self, step: int) -> None:
        """The program compiles something, in this step."""
        if self.full_from is None or step < self.full_from:
            self.watch()

    def look_in_full(self, step: int) -> None:
        if not self.is_full:
            self.full_since = step
            self.compiled.leave_out()
            self._mode.look_in_full(True)

    def watch(self) -> None:
        if self.is_full:
            self.compiled.let_run()
            with unobserved():
                self._mode.leave(())
            self._mode.look_in_full(False)


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
                # `torch.cond` and others like it capture their branches so: there is no other way.
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
