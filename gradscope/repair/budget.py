"""The time that may go into looking for patches, and into running the program again."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeVar

from gradscope.facts import Trace

Found = TypeVar("Found")


class Purpose(Enum):
    """What the program is run again for."""

    AFTERMATH = auto()  # what comes of a wrong gradient
    RATE = auto()  # at which learning rate training stops diverging
    TRUTH = auto()  # what it would give without rounding
    FIX = auto()
    AHEAD = auto()  # how training goes on with one

    @property
    def share(self) -> float:
        """Of the whole, for what comes before the fixes and after: they get what is left."""
        return 1.0 if self is Purpose.FIX else 1 / 6


MOST_RUNS = 10


class RunsSpent(TimeoutError):
    """As many further runs were made as there may be."""


@dataclass
class Budget:
    """Seconds for all further runs of one command together, and how many there may be. What else a
    command does (looking for a patch, the report) is not counted here."""

    seconds: float = 60.0
    most_runs: int = MOST_RUNS
    runs: int = 0  # that were made
    interrupted: bool = False  # Ctrl-C came: nothing more is to be tried
    spent: dict[Purpose, float] = field(default_factory=dict)

    @property
    def left(self) -> float:
        return self.seconds - sum(self.spent.values())

    def left_for(self, purpose: Purpose) -> float:
        share = purpose.share * self.seconds - self.spent.get(purpose, 0.0)
        return min(share, self.left)

    def interrupt(self) -> None:
        """Called where a KeyboardInterrupt was caught: the first one ends what is tried, the second
        everything."""
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def run(self, purpose: Purpose, again: Callable[[float], Trace]) -> Trace:
        """What a further run shows; `again` makes it, within so many seconds.

        Raises TimeoutError where no time is left for it or it was not enough.
        """
        limit = self.left_for(purpose)
        if limit <= 0:
            raise TimeoutError
        if self.runs >= self.most_runs:
            raise RunsSpent
        started = time.monotonic()
        try:
            trace = again(limit)
        finally:
            spent = time.monotonic() - started
            self.spent[purpose] = self.spent.get(purpose, 0.0) + spent
        if trace.ending.kind == "interrupted" and not trace.ending.code:
            raise TimeoutError
        return trace


@dataclass
class Search:
    """For patches of all findings together, without trying them. `is_cut`: something was not looked
    at for want of time, of the processor's: on a busy machine as much is found.

    The clock runs while `found` is asked for the next patch, and stands still while one is tried.
    """

    seconds: float = 5.0
    is_cut: bool = False
    spent: float = 0.0
    _until: float = math.inf

    @property
    def is_over(self) -> bool:
        """To be asked in every loop whose length is that of the program."""
        self.is_cut |= time.thread_time() >= self._until
        return self.is_cut

    def found(self, ways: Iterator[Found]) -> Iterator[Found]:
        """What an iterator finds in the time that is left."""
        while True:
            started = time.thread_time()
            self._until = started + self.seconds - self.spent
            try:
                if self.is_over or (one := next(ways, None)) is None:
                    return
            finally:
                self.spent += time.thread_time() - started
                self._until = math.inf
            yield one
