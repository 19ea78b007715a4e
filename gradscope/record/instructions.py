"""The instructions of a code object and their places, listed once: a script may have 50,000."""

from __future__ import annotations

import dis
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Generic, TypeVar

Listed = TypeVar("Listed")
Position = tuple[int | None, int | None, int | None, int | None]  # line, end line, columns

_MOST = 64  # code objects that are kept


class _OfCode(Generic[Listed]):
    """By identity: equal code objects may come from different files, and hashing one is slow. The
    code is kept, so that its identity is never another's."""

    def __init__(self, read: Callable[[CodeType], Sequence[Listed]]) -> None:
        self._read = read
        self._known: dict[int, tuple[CodeType, Sequence[Listed]]] = {}

    def __call__(self, code: CodeType) -> Sequence[Listed]:
        known = self._known.get(id(code))
        if known is None:
            while len(self._known) >= _MOST:
                del self._known[next(iter(self._known))]
            known = self._known[id(code)] = (code, self._read(code))
        return known[1]


instructions: _OfCode[dis.Instruction] = _OfCode(lambda code: tuple(dis.get_instructions(code)))
positions: _OfCode[Position] = _OfCode(lambda code: tuple(code.co_positions()))
