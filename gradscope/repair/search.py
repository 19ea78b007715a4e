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
    """`left` are the seconds that remain. `is_cut`: something was not looked at for want of them.

    The clock runs while `found` is asked for the next patch, and stands still while one is tried.
    """

    left: float = SECONDS
    is_cut: bool = False
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
            self._until = started + self.left
            try:
                if self.is_over or (one := next(ways, None)) is None:
                    return
            finally:
                self.left -= time.monotonic() - started
                self._until = math.inf
            yield one
