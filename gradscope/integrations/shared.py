"""A block that several ranks of a program have watched: one of them tells the story for all."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from itertools import count

from gradscope.facts import Limits, Ranked, Share, Trace
from gradscope.pipeline import share_of
from gradscope.programs.board import Board
from gradscope.programs.ranks import shared_of, told_by_one

_PATIENCE = 10.0  # seconds for the others to come to the end of the block
_blocks = count()  # of this process: all ranks watch the same ones, in the same order


@cache
def _board() -> Board | None:
    return Board.found(beats=False)  # whoever waits here does so for a while only


class SharedBlock:
    """One such block, from its begin. Nothing here is a collective, and no rank has to ask."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._key = f"block/{next(_blocks)}"
        self._told: tuple[Trace, Ranked] | None = None
        board.post(f"{self._key}/begun/{board.rank}", True)

    @classmethod
    def begun(cls) -> SharedBlock | None:
        """None in a program of one rank, or of another launcher than torchrun."""
        board = _board()
        return None if board is None else cls(board)

    def ended(self, trace: Trace) -> None:
        """This rank has left the block."""
        self.board.post(f"{self._key}/{self.board.rank}", trace)

    def told(self, own: Trace, limits: Limits) -> tuple[Trace, Ranked | None]:
        """The trace of the rank that tells it; of a block that this rank alone has watched its own,
        without more."""
        others = [rank for rank in self.board.others if self.board.has(f"{self._key}/begun/{rank}")]
        if not others:
            return own, None
        if self._told is None:
            until = time.monotonic() + _PATIENCE
            found = {rank: self.board.read(f"{self._key}/{rank}", rank, until) for rank in others}
            traces = {rank: one for rank, one in found.items() if one is not None}
            self._told = _agreed({**traces, self.board.rank: own}, self.board.count, limits)
        return self._told


def _agreed(found: dict[int, Trace], count: int, limits: Limits) -> tuple[Trace, Ranked]:
    sizes = [one.magnitudes for one in found.values() if one.magnitudes is not None]
    traces = {
        rank: replace(one, magnitudes=one.magnitudes and one.magnitudes.joined(sizes))
        for rank, one in found.items()
    }
    shares: dict[int, Share] = {
        rank: share_of(shared_of(rank, one), one, limits) for rank, one in traces.items()
    }
    ranked = told_by_one(shares, count)
    return traces[ranked.rank], ranked
