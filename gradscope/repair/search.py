"""The time that may go into looking for patches: of all findings together, without trying them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

SECONDS = 5.0

Found = TypeVar("Found")


@dataclass
class Search:
    """`is_cut`: something was not looked at for want of time.

    The clock runs while `found` is asked for the next patch, and stands still while one is tried.
    """

    seconds: float = SECONDS
    is_cut: bool = False
    spent: float = 0.0
    _until: float = math.inf

    @property
    def is_over(self) -> bool:
        """To be asked in every loop whose length is that of the program."""
        self.is_cut |= time.monotonic() >= self._until
        return self.is_cut

    def found(self, ways: Iterator[Found]) -> Iterator[Found]:
        """What an iterator finds in the time that is left."""
        while True:
            started = time.monotonic()
            self._until = started + self.seconds - self.spent
            try:
                if self.is_over or (one := next(ways, None)) is None:
                    return
            finally:
                self.spent += time.monotonic() - started
                self._until = math.inf
            yield one
