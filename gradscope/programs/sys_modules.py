"""The modules that were there before the program ran, which may throw them out of `sys.modules`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class OwnModules:
    """Made before the program runs."""

    def __init__(self) -> None:
        self._table = sys.modules  # that of the interpreter, whatever the program sets there
        self._ours = dict(sys.modules)

    @contextmanager
    def found(self) -> Iterator[None]:
        """What we import or pickle meanwhile is found; afterwards all is as the program left it."""
        theirs = sys.modules
        gone = [name for name, one in self._ours.items() if self._table.get(name) is not one]
        replaced = {name: self._table[name] for name in gone if name in self._table}
        sys.modules = self._table
        for name in gone:
            self._table[name] = self._ours[name]
        try:
            yield
        finally:
            for name in gone:
                del self._table[name]
            self._table.update(replaced)
            sys.modules = theirs
