"""The ranks of a program that torchrun has started, each in a gradscope of its own: they agree over
the launcher's own store, never by a collective in the program's stream."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from gradscope.dataclass import dataclass
from gradscope.facts import Magnitudes, Trace
from gradscope.facts.events import Unexamined
from gradscope.facts.traces import MOST_SYMPTOMS, OTHERS, Fate, Ranked, Share
from gradscope.programs.board import NAP, REPLY, Board

STUCK = 3.0  # seconds at least without the end of a step, after which a rank may hang
SLOWER = 10.0  # and times its longest step

_TROUBLED_GRACE = 2.0  # seconds at least that a rank has to see the same trouble by itself
_REPEATED_GRACE = 5.0  # and to come to the end of a repeated run, where another one has
_FAREWELL = 5.0  # seconds for all to end together
# Whose story is told, first: among equals one with bad values, then that of the earliest step.
_TELLS = (
    Fate.BORN,
    Fate.BAD,
    Fate.RECEIVED,
    Fate.HUNG,
    Fate.DIED,
    Fate.RAISED,
    Fate.EXITED,
    Fate.CUT_SHORT,
    Fate.HEALTHY,
    Fate.CALLED_OFF,
)


class Ranks:
    """This rank among the others. All of them go through the same meetings and runs, in the same
    order: the first run, one that looks closer, and then those that the leading rank orders."""

    _known: Ranks | None = None  # those that this process is one of

    def __init__(self, board: Board, *, apart: bool = False) -> None:
        self.rank, self.count = board.rank, board.count
        self.leads = False  # the report is about this rank: it orders further runs
        self._leader: int | None = None
        self._board = board
        self._is_apart = apart  # from other programs of these ranks, in the first run already
        self._meetings = 0
        self._run = 0
        self._order = 0
        self._is_stuck = False
        self._place = 0  # of this rank among the ends of a run, from 1
        self._seen_over: float | None = None  # when another rank was first seen to have ended
        self._looked = 0.0
        self._is_over = False
        self._port: int | None = None  # of a store that the others are still to be told of

    @classmethod
    def found(cls) -> Ranks | None:
        """The ranks of the program, made once; None as for `Board.found`."""
        if cls._known is None and (board := Board.found()) is not None:
            cls._known = cls(board)
        return cls._known

    @classmethod
    def of_case(cls, name: str) -> Ranks | None:
        """The ranks of one of several programs that are checked side by side."""
        board = Board.found(name)
        return None if board is None else cls(board, apart=True)

    # One run

    def first(self) -> AbstractContextManager[None]:
        """Around the first run."""
        return self.repeated() if self._is_apart else nullcontext()

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """Around a further run, which all ranks make: they meet in a store of its own, since the
        first run's holds addresses that are nobody's any more."""
        from torch._C._distributed_c10d import TCPStore

        self._run += 1
        self._seen_over, self._is_over = None, False
        key, host = f"port/{self._run}", None
        if self.rank == 0:
            host = TCPStore(self._board.address, 0, is_master=True, wait_for_workers=False)
            self._port = port = host.port
        else:
            port = self._board.read(key, 0, time.monotonic() + REPLY.total_seconds())
        before = os.environ["MASTER_PORT"]
        os.environ["MASTER_PORT"] = str(port or before)
        try:
            yield
        except BaseException:
            self.gave_up()
            raise
        finally:
            self._tell_port()
            os.environ["MASTER_PORT"] = before
            self._hosted = host  # others may still be in it, until the next one

    @contextmanager
    def starting(self) -> Iterator[None]:
        """While the process of this rank's program is made: no other thread is in torch's code."""
        with self._board.still():
            yield
        self._tell_port()

    def _tell_port(self) -> None:
        """The others are told of the store only when the program's process is there: whom a store's
        thread lets in, it looks up, and a fork meanwhile would copy a lock."""
        if self._port is not None:
            self._board.post(f"port/{self._run}", self._port)
            self._port = None

    def ended(self, trace: Trace, moved: float) -> None:
        """The program of this rank has told everything, or is gone; told once in a run. `moved` is
        when its last step was over, by `time.monotonic`."""
        if self._is_over:
            return
        ending = trace.ending
        first, *later = [step.seconds for step in trace.steps] or [0.0]  # which begins with imports
        usual = max(STUCK, first, SLOWER * max(later, default=0.0))
        self._is_stuck = time.monotonic() - moved > usual
        stopped = ending.kind == "stopped" and not ending.at_limit
        self._end(bool(trace.symptoms or stopped or ending.gave_up))

    def gave_up(self) -> None:
        """This rank makes no run, or has broken it off: the others' is in vain."""
        if not self._is_over:
            self._end(True)

    def _end(self, in_trouble: bool) -> None:
        self._is_over = True
        self._place = self._board.count_up(f"ended/{self._run}")
        if in_trouble:
            self._board.post(f"trouble/{self._run}", True)

    def is_called_off(self, pace: float) -> bool:
        """Whether this rank's run is in vain, since another one's has ended; `pace` are the seconds
        that a step of it takes."""
        now = time.monotonic()
        if self._seen_over is None:
            if now - self._looked < 4 * NAP:
                return False
            self._looked = now
            if self._board.has(f"trouble/{self._run}"):
                self._seen_over = now + max(_TROUBLED_GRACE, pace)
            elif self._run and self._board.has(f"ended/{self._run}"):
                self._seen_over = now + _REPEATED_GRACE
            return False
        return now >= self._seen_over

    def share(self, trace: Trace, *, interrupted: bool = False) -> Share:
        """What the other ranks need to know about a run of this one."""
        return replace(
            shared_of(self.rank, trace),
            order=self._place,
            is_stuck=self._is_stuck,
            interrupted=interrupted,
        )

    # What all agree on

    def earliest(self, share: Share) -> Unexamined | None:
        """Of the steps that went wrong while they were only watched, that of all ranks to look at;
        None where there is none, or somebody wants the end."""
        shares = self._meet(share).values()
        if any(one.interrupted or _hangs(one, shares) for one in shares):
            return None
        ends = sorted(shares, key=lambda one: one.order)
        found = [one.unexamined for one in ends if one.unexamined is not None]
        # What a rank was told by another's end comes after that.
        values = [one for one in found if one.subject is not None]
        return min(values, key=lambda one: one.step) if values else next(iter(found), None)

    def first_step(self, step: int | None, idle: bool) -> int | None:
        """The earliest that any rank asks for; None too where one is `idle`."""
        met = self._meet((step, idle)).values()
        steps = [one for one, _ in met if one is not None]
        return None if any(idle for _, idle in met) else min(steps, default=None)

    def agree(self, share: Share) -> Ranked:
        """On the rank whose story is told: where the first bad value was born, else where the
        program came to its end first."""
        ranked = as_one_rank_reports(self._meet(share), self.count)
        self.leads, self._leader = ranked.rank == self.rank, ranked.rank
        return ranked

    def joined(self, seen: Trace) -> tuple[Trace, list[Magnitudes]]:
        """With the sizes of whole gradients, of which each rank has seen a part; and what the
        others have measured."""
        met = self._meet(seen.magnitudes).items()
        others = [one for rank, one in met if rank != self.rank and one is not None]
        return replace(seen, magnitudes=seen.magnitudes.joined(others)), others

    # What the leading rank orders, and the others do

    def order(self, what: object) -> None:
        """All the others are to do this."""
        self._order += 1
        self._board.post(f"order/{self._order}", what)

    def answers(self, patience: float) -> tuple[Share, ...]:
        """The answers to the last order, from the ranks that answered in time."""
        until = time.monotonic() + patience
        key = f"answer/{self._order}"
        found = (self._board.read(f"{key}/{rank}", rank, until) for rank in self._board.others)
        return tuple(one for one in found if one is not None)

    def release(self, result: object = None) -> None:
        """Nothing more is ordered: that is what came of it, for all."""
        self.order(_Over(result))

    def serve(self, carry_out: Callable[[Any], Share]) -> Any:
        """Do what the leading rank orders, until it releases this one: what came of it all; None
        where the leading rank is gone."""
        while True:
            self._order += 1
            what = self._board.read(f"order/{self._order}", self._leader or 0)
            if what is None or isinstance(what, _Over):
                return None if what is None else what.result
            self._board.post(f"answer/{self._order}/{self.rank}", carry_out(what))

    def is_first_to_say(self, message: str) -> bool:
        """Whether no other rank has said that before."""
        return self._board.is_first(f"said/{message}")

    def finish(self, code: int) -> int:
        """All end together, with the leading rank's exit code."""
        if self.leads:
            self.release()
            self._board.post("code", code)
        elif self._leader is not None:
            agreed: int | None = self._board.read("code", self._leader)
            code = code if agreed is None else agreed
        self.leave()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher ends those that end last
        return code

    def leave(self) -> None:
        """Nothing more is to be agreed on."""
        self._board.leave(_FAREWELL)

    def _meet(self, fact: Any) -> dict[int, Any]:
        """Exchange one value between all ranks."""
        self._meetings += 1
        return self._board.exchanged(f"meeting/{self._meetings}", fact)


@dataclass(frozen=True, slots=True)
class _Over:
    result: object


def shared_of(rank: int, trace: Trace) -> Share:
    """The share of a rank, from its own run alone."""
    ending = trace.ending
    return Share(
        rank,
        _fate(trace),
        step=min((one.step for one in trace.symptoms), default=len(trace.steps) + trace.unseen),
        location=ending.location,
        detail=ending.detail,
        symptoms=trace.symptoms[:MOST_SYMPTOMS],
        unexamined=trace.unexamined,
        sends=trace.sent is not None and not trace.symptoms,
        waits=ending.waits,
    )


def as_one_rank_reports(shares: Mapping[int, Share], count: int) -> Ranked:
    """Whose story it is, of `count` ranks; those without a share are gone."""
    hung = [rank for rank, one in shares.items() if _hangs(one, shares.values())]
    known = {**shares, **{rank: replace(shares[rank], fate=Fate.HUNG) for rank in hung}}
    teller = min(known.values(), key=_precedence)
    senders = [one for one in known.values() if one.sends]
    if teller.fate is Fate.RECEIVED and senders:
        teller = replace(min(senders, key=lambda one: one.step), fate=Fate.BORN)
    others = (known.get(rank, Share(rank, Fate.GONE)) for rank in range(count))
    others = (_beside(one, teller) for one in others if one.rank != teller.rank)
    return Ranked(teller.rank, count, teller, tuple(others))


def _fate(trace: Trace) -> Fate:
    """As the run itself tells it: whose the bad values are is found later."""
    ending = trace.ending
    if trace.symptoms:
        return Fate.BAD
    if ending.kind == "interrupted":
        return Fate.CALLED_OFF if ending.detail == OTHERS else Fate.CUT_SHORT
    if ending.gave_up:
        return Fate(ending.kind)
    return Fate.CUT_SHORT if ending.at_limit else Fate.HEALTHY


def _hangs(share: Share, all: Iterable[Share]) -> bool:
    """Whether a rank did not come to a collective in which others have waited for long."""
    is_cut = share.fate in (Fate.CUT_SHORT, Fate.CALLED_OFF)
    is_elsewhere = share.is_stuck and not share.waits
    return is_cut and is_elsewhere and any(one.is_stuck and one.waits for one in all)


def _precedence(share: Share) -> tuple[int, bool, tuple[int, ...], int]:
    place: tuple[int, ...] = (share.step,)
    fate = share.fate
    if fate in (Fate.DIED, Fate.RAISED, Fate.EXITED):
        place = (share.order,)
        fate = Fate.RAISED if fate is Fate.EXITED else fate  # others raise, since it has gone
    elif share.fate is Fate.HEALTHY:
        place = (-share.warnings, -share.step)  # one that does not train has little to tell
    return _TELLS.index(fate), not share.symptoms, place, share.rank


def _beside(share: Share, teller: Share) -> Share:
    """What another rank waits for in a collective does not come any more: then it raises as well,
    and something else. And what it found in a later step, it may have received before."""
    if not teller.fate.is_own:
        return share
    raised = share.fate is Fate.RAISED and share.detail != teller.detail
    if raised or (teller.fate is Fate.HUNG and share.waits):
        return replace(share, fate=Fate.CALLED_OFF)
    if share.fate is Fate.BORN and share.step > teller.step:
        return replace(share, fate=Fate.BAD, location=None, rule="")
    return share
