"""What numpy says of its own arithmetic while a program runs: it makes the inf and NaN of most
data, and no op of torch's sees it."""

from __future__ import annotations

import sys
import warnings
from contextlib import ExitStack
from typing import Any

from gradscope.facts import ArrayWarning
from gradscope.record.sites import note_site, resolve
from gradscope.record.stand_ins import stand_in

_SAID = " encountered in "  # "divide by zero encountered in log"
_MOST_KEPT = 16


class ArrayWarnings:
    """Context manager. Listens, and lets the program's warnings be shown as ever.

    Not heard: what `numpy.errstate` silences, and what a loader's worker process warns of.
    """

    def __init__(self) -> None:
        self.heard: list[ArrayWarning] = []
        self._stack = ExitStack()

    def __enter__(self) -> ArrayWarnings:
        shown: Any = warnings.showwarning

        def showwarning(
            message: Any, category: Any, filename: str, lineno: int, *rest: Any
        ) -> None:
            if category is RuntimeWarning and _SAID in str(message):
                self._note(str(message), sys._getframe(1))
            shown(message, category, filename, lineno, *rest)

        stand_in(self._stack, warnings, "showwarning", showwarning)
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def _note(self, said: str, frame: Any) -> None:
        user, _ = note_site(frame)
        if user and len(self.heard) < _MOST_KEPT:
            self.heard.append(ArrayWarning(said, resolve(*user[0])))
