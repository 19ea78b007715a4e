"""Which steps are looked at in full, op by op, and which are only watched."""

from __future__ import annotations

import math
from collections.abc import Callable

from gradscope.record.compiled import Compiled
from gradscope.record.mode import RecordingMode
from gradscope.record.modes import lifted_above, mode_count, put, take

# Steps in a row of a program that updates by hand, which no other step shows: that gradients are
# never cleared takes the first update and five more.
_BY_HAND = 6


class Depth:
    """Context manager: has `mode` see the ops of the first steps and of ever fewer after them (0,
    1, 2, 4, 8, ...), and of all from step `full_from` on, where that is not None. Compiled code,
    which shows no ops, runs in the others alone; a program that has any is only watched until
    then."""

    def __init__(self, mode: RecordingMode, full_from: int | None) -> None:
        self.compiled = Compiled()
        self.is_full = True  # now
        self.full_since = 0  # the step since which it is
        self.full_from = full_from
        self._mode = mode
        self._below = 0  # modes that were there before

    def __enter__(self) -> Depth:
        self._below = mode_count()
        self._mode.context.askers.add(self)
        self._mode.__enter__()
        self.compiled.leave_out()
        return self

    def __exit__(self, *failure: object) -> None:
        self.compiled.let_run()
        if not self.is_full:
            put(self._mode, self._below)
        with lifted_above(self._below + 1):
            self._mode.__exit__(*failure)  # type: ignore[no-untyped-call]

    @property
    def below(self) -> int:
        """How many modes are to lie below others of ours."""
        return self._below + self.is_full

    def is_due(self, step: int, updates: int | None, by_hand: Callable[[], bool]) -> bool:
        """Whether to look at the coming step, the one after so many updates by optimizers (None:
        without one), in full; `by_hand`: whether the program updates its parameters itself."""
        number = step if updates is None else updates
        if self.full_from is not None and step >= self.full_from:
            return True
        is_early = step < _BY_HAND and by_hand()
        return (is_early or number & (number - 1) == 0) and self.compiled.first is None

    def due_after(self, step: int) -> float:
        """The first step after this one that may be due without an optimizer."""
        return min(1 << step.bit_length(), math.inf if self.full_from is None else self.full_from)

    def note_compiled(self, step: int) -> None:
        """The program compiles something, in this step."""
        if self.full_from is None or step < self.full_from:
            self.watch()

    def look_in_full(self, step: int) -> None:
        if not self.is_full:
            self.is_full, self.full_since = True, step
            self.compiled.leave_out()
            self._mode.context.askers.add(self)
            self._mode.begin()
            put(self._mode, self._below)

    def watch(self) -> None:
        if self.is_full:
            self.is_full = False
            self.compiled.let_run()
            self._mode.context.askers.discard(self)
            self._mode.leave(())
            take(self._mode)
