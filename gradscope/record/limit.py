"""How far a program has run and may run, and what ends it there."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

import torch

from gradscope.facts import Ending, Step, plural
from gradscope.record.context import RunContext
from gradscope.record.held import alive
from gradscope.record.optimizers import parameters_of
from gradscope.record.sites import Site, place_of

# Backward passes to an update: more than anybody adds up. Whoever forgot `step()` runs no further.
_MOST_ADDED_UP = 1024

FIRST_ERROR = Ending("stopped", "the first error")


class StopTrace(BaseException):
    """Ends the traced program once enough was seen. Not an Exception, so that `except Exception`
    lets it pass; raised again at every later op if something broader swallows it."""

    def __init__(self, ending: Ending) -> None:
        super().__init__()
        self.ending = ending


class Limit:
    """Ends a program after `steps` updates of its parameters, or after so many backward passes
    where it has no optimizer. With `passes` after so many of these, whatever it updates.

    An update is what optimizers do between two backward passes: `step()`, with all that it calls.
    """

    def __init__(self, context: RunContext, steps: int | None, passes: int | None) -> None:
        self.context = context
        self._steps = steps
        self._passes = passes
        self._updated = 0  # the number of backward passes before the last update

    @property
    def ending(self) -> Ending:
        """Of a program that it ends."""
        most = plural(self._steps or self._passes or 0, "step")
        return Ending("stopped", f"the limit of {most}", at_limit=True)

    def note_optimizer(self) -> None:
        """The program makes one."""
        self.context.updates = self.context.updates or 0

    def note_update(self, passes: int) -> None:
        """Optimizers are done, after so many backward passes in all."""
        updates = self.context.updates or 0
        self.context.updates = updates + (passes > self._updated)
        self._updated = passes

    def is_reached(self, passes: int) -> bool:
        if self._passes is not None and passes >= self._passes:
            return True
        if self._steps is None or passes < self._steps:
            return False
        updates = self.context.updates
        if updates is not None and passes - self._updated < _MOST_ADDED_UP:
            return updates >= self._steps
        return True

    @property
    def fewest(self) -> float:
        """The passes before which it is not reached, whatever optimizers do."""
        return min(most or math.inf for most in (self._steps, self._passes))

    def move(self, steps: int | None, passes: int | None) -> None:
        self._steps, self._passes = steps, passes


class LastUpdate:
    """Follows the optimizers from the last backward on; of a run that goes on, only who stepped."""

    def __init__(self, is_asked: bool) -> None:
        self._is_asked = is_asked
        self._stepped: set[int] = set()  # since the backward began, by id
        self._awaited: set[int] | None = None

    def begin_backward(self) -> None:
        self._stepped.clear()

    def is_over_after_backward(self, updates_by_hand: bool) -> bool:
        """The last backward is done: whether no update follows. Of one by hand nobody knows where
        it ends."""
        if not self._is_asked or self._awaited is not None:
            return False
        living = list(alive(torch.optim.Optimizer))
        given = {id(one) for one in living if any(p.grad is not None for p in parameters_of(one))}
        self._awaited = (given or set(map(id, living))) - self._stepped
        return not self._awaited and not updates_by_hand

    def is_over_after(self, optimizer: Any) -> bool:
        self._stepped.add(id(optimizer))
        if self._awaited is None or id(optimizer) not in self._awaited:
            return False
        self._awaited.remove(id(optimizer))
        return not self._awaited


# Which Python's collector need not go through.
Row = tuple[float | None, float, int, Site, bool, bool]


class Steps:
    """Those that are over, kept as plain as they came: one is added at each backward."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._rows = list(rows)
        self._clock = time.perf_counter()
        self._ops = 0
        self._site: Site = ()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def seconds_of_last(self) -> float:
        return self._rows[-1][1] if self._rows else math.inf

    def add(
        self,
        loss: float | None,
        site: Site,
        ops: int | None = None,
        *,
        in_full: bool = False,
        tried: bool = False,
    ) -> None:
        """After so many `ops` in all, where they were seen."""
        now, ops = time.perf_counter(), self._ops if ops is None else ops
        if site != self._site:
            self._site = site
        self._rows.append((loss, now - self._clock, ops - self._ops, self._site, in_full, tried))
        self._clock, self._ops = now, ops

    def has_bad_loss(self, since: int) -> bool:
        """Whether that of any step from this one on is NaN or inf."""
        losses = (row[0] for row in self._rows[since:])
        return any(loss is not None and loss - loss != 0.0 for loss in losses)

    def first(self, count: int) -> Steps:
        return Steps(self._rows[:count])

    def facts(self) -> tuple[Step, ...]:
        return tuple(
            Step(index, loss, seconds, ops, place_of(site), *how)
            for index, (loss, seconds, ops, site, *how) in enumerate(self._rows)
        )
