"""The ranks of a program that torchrun has started, each in a gradscope of its own: they agree over
the launcher's own store, never by a collective in the program's stream.

Every key is ours alone. A rank that does not answer for a while is gone, and nobody waits for it.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from gradscope.facts import Magnitudes, Trace
from gradscope.facts.ranks import MOST_SYMPTOMS, OTHERS, Fate, Ranked, Share
from gradscope.facts.symptoms import Unexamined

NAP = 0.05  # seconds between two looks into the store
BEAT = 1.0  # seconds between two signs of life
STUCK = 3.0  # seconds at least without the end of a step, after which a rank may hang
SLOWER = 10.0  # and times its longest step
SILENT = 15.0  # seconds without one, after which a rank is gone
LATE = 120.0  # and until its first: machines do not start at once

_TROUBLED_GRACE = 0.5  # seconds that a rank has to see the same trouble by itself
_REPEATED_GRACE = 5.0  # and to come to the end of a repeated run, where another one has
_REPLY = timedelta(seconds=20)  # of the store
_FAREWELL = 5.0  # seconds for all to end together
# Whose story is told, first: among equals that of the earliest step.
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

    def __init__(self, rank: int, count: int, connect: Callable[[], Any], address: str) -> None:
        self.rank, self.count = rank, count
        self.leads = False  # the report is about this rank: it orders further runs
        self._leader: int | None = None
        self._store = connect()
        self._address = address
        self._lost = False  # the store has gone
        self._meetings = 0
        self._run = 0
        self._order = 0
        self._is_stuck = False
        self._place = 0  # of this rank among the ends of a run, from 1
        self._seen_over: float | None = None  # when another rank was first seen to have ended
        self._looked = 0.0
        self._is_over = False
        self._beats: dict[int, tuple[bytes, float]] = {}  # the last of each rank, and when it came
        self._ended = threading.Event()
        threading.Thread(target=self._beat, args=(connect,), daemon=True).start()

    @classmethod
    def found(cls, environ: Mapping[str, str] = os.environ) -> Ranks | None:
        """Those of torchrun, which keeps a store for its workers; None in a program of one rank, or
        of another launcher."""
        count = int(environ.get("WORLD_SIZE", "1"))
        if count < 2 or environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            return None
        from torch._C._distributed_c10d import PrefixStore, TCPStore

        address, port = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
        prefix = f"gradscope/{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"

        def connect() -> Any:
            plain = TCPStore(address, port, is_master=False, timeout=_REPLY)
            return PrefixStore(prefix, plain)

        if cls._known is None:
            with suppress(RuntimeError):  # those of torch.distributed are
                cls._known = cls(int(environ["RANK"]), count, connect, address)
        return cls._known

    # One run

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """Around a further run, which all ranks make: they meet in a store of its own, since the
        first run's holds addresses that are nobody's any more."""
        from torch._C._distributed_c10d import TCPStore

        self._run += 1
        self._seen_over, self._is_over = None, False
        key, host = f"port/{self._run}", None
        if self.rank == 0:
            host = TCPStore(self._address, 0, is_master=True, wait_for_workers=False)
            self._set(key, str(host.port).encode())
        port = self._get(key, 0, time.monotonic() + _REPLY.total_seconds())
        before = os.environ["MASTER_PORT"]
        os.environ["MASTER_PORT"] = port.decode() if port else before
        try:
            yield
        except BaseException:
            self.gave_up()
            raise
        finally:
            os.environ["MASTER_PORT"] = before
            self._hosted = host  # others may still be in it, until the next one

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
        self._place = int(self._ask(lambda: self._store.add(f"ended/{self._run}", 1)) or 0)
        if in_trouble:
            self._set(f"trouble/{self._run}", b"1")

    def is_called_off(self) -> bool:
        """Whether this rank's run is in vain, since another one's has ended."""
        now = time.monotonic()
        if self._seen_over is None:
            if now - self._looked < 4 * NAP:
                return False
            self._looked = now
            if self._has(f"trouble/{self._run}"):
                self._seen_over = now + _TROUBLED_GRACE
            elif self._run and self._has(f"ended/{self._run}"):
                self._seen_over = now + _REPEATED_GRACE
            return False
        return now >= self._seen_over

    def share(self, trace: Trace, *, interrupted: bool = False) -> Share:
        """What the others have to know of a run of this rank."""
        ending = trace.ending
        return Share(
            self.rank,
            _fate(trace),
            self._place,
            min((one.step for one in trace.symptoms), default=len(trace.steps)),
            ending.location,
            detail=ending.detail,
            symptoms=trace.symptoms[:MOST_SYMPTOMS],
            unexamined=trace.unexamined,
            is_stuck=self._is_stuck,
            waits=ending.waits,
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

    def agree(self, share: Share) -> Ranked:
        """On the rank whose story is told: where the first bad value was born, else where the
        program came to its end first."""
        shares = self._meet(share)
        hung = [rank for rank, one in shares.items() if _hangs(one, shares.values())]
        shares |= {rank: replace(shares[rank], fate=Fate.HUNG) for rank in hung}
        teller = min(shares.values(), key=_precedence)
        self.leads = teller.rank == self.rank
        self._leader = teller.rank
        others = [shares.get(rank, Share(rank, Fate.GONE)) for rank in range(self.count)]
        told = (_as_told(one, teller) for one in others if one.rank != teller.rank)
        return Ranked(teller.rank, self.count, teller, tuple(told))

    def joined(self, seen: Trace) -> tuple[Trace, list[Magnitudes]]:
        """With the sizes of whole gradients, of which each rank has seen a part; and what the
        others have measured."""
        sizes = seen.magnitudes
        told = self._meet(sizes).items()
        others = [one for rank, one in told if rank != self.rank and one is not None]
        if sizes is None:
            return seen, others
        return replace(seen, magnitudes=sizes.joined(others)), others

    # What the leading rank orders, and the others do

    def order(self, what: object) -> None:
        """All the others are to do this."""
        self._order += 1
        self._set(f"order/{self._order}", pickle.dumps(what))

    def answers(self, patience: float) -> tuple[Share, ...]:
        """What came of the last order, of those ranks that have answered in time."""
        until = time.monotonic() + patience
        key = f"answer/{self._order}"
        found = (self._get(f"{key}/{rank}", rank, until) for rank in self._others())
        return tuple(pickle.loads(one) for one in found if one is not None)

    def release(self, result: object = None) -> None:
        """Nothing more is ordered: that is what came of it, for all."""
        self.order(_Over(result))

    def serve(self, carry_out: Callable[[Any], Share]) -> Any:
        """Do what the leading rank orders, until it releases this one: what came of it all; None
        where the leading rank is gone."""
        while True:
            self._order += 1
            asked = self._get(f"order/{self._order}", self._leader or 0)
            what = pickle.loads(asked) if asked is not None else _Over(None)
            if isinstance(what, _Over):
                return what.result
            answer = carry_out(what)
            self._set(f"answer/{self._order}/{self.rank}", pickle.dumps(answer))

    def is_first_to_say(self, message: str) -> bool:
        """Whether no other rank has said that before."""
        own = str(self.rank)
        said = self._ask(lambda: self._store.compare_set(f"said/{message}", "", own))
        return said is None or bytes(said).decode() == own

    def finish(self, code: int) -> int:
        """All end together, with the leading rank's exit code."""
        if self.leads:
            self.release()
            self._set("code", str(code).encode())
        elif self._leader is not None:
            told = self._get("code", self._leader)
            code = int(told) if told is not None else code
        self._set(f"left/{self.rank}", b"1")
        until = time.monotonic() + _FAREWELL
        for rank in self._others():
            self._get(f"left/{rank}", rank, until)
        self._ended.set()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher ends those that end last
        return code

    # The store

    def _meet(self, fact: Any) -> dict[int, Any]:
        """What each rank brings to this meeting, in their order; without those that are gone."""
        self._meetings += 1
        key = f"meeting/{self._meetings}"
        self._set(f"{key}/{self.rank}", pickle.dumps(fact))
        found = {self.rank: fact}
        for rank in self._others():
            told = self._get(f"{key}/{rank}", rank)
            if told is not None:
                found[rank] = pickle.loads(told)
        return dict(sorted(found.items()))

    def _others(self) -> list[int]:
        return [rank for rank in range(self.count) if rank != self.rank]

    def _get(self, key: str, of: int, until: float = float("inf")) -> bytes | None:
        """What a rank has put there, or will; None once it is gone, or it is that late."""
        while not self._has(key):
            if self._lost or time.monotonic() >= until or self._is_gone(of):
                return None
            time.sleep(NAP)
        value = self._ask(lambda: self._store.get(key))
        return bytes(value) if value is not None else None

    def _has(self, key: str) -> bool:
        return bool(self._ask(lambda: self._store.check([key])))

    def _set(self, key: str, value: bytes) -> None:
        self._ask(lambda: self._store.set(key, value))

    def _ask(self, question: Callable[[], Any]) -> Any:
        """The store's answer; None from now on where it is gone, with the launcher."""
        if self._lost:
            return None
        try:
            return question()
        except RuntimeError:
            self._lost = True
            return None

    def _beat(self, connect: Callable[[], Any]) -> None:
        """In a thread of its own: signs of life, whatever the rest of this process does."""
        with suppress(RuntimeError):
            store, count = connect(), 0
            while True:
                store.set(f"alive/{self.rank}", str(count))
                count += 1
                if self._ended.wait(BEAT):
                    return

    def _is_gone(self, rank: int) -> bool:
        """Whether there was no sign of life for a while, or it has said its farewell."""
        if self._has(f"left/{rank}"):
            return True
        key, now = f"alive/{rank}", time.monotonic()
        beat = bytes(self._ask(lambda: self._store.get(key)) or b"") if self._has(key) else b""
        known, since = self._beats.get(rank, (None, now))
        if rank == self.rank or beat != known:
            self._beats[rank] = (beat, now)
            return False
        return now - since > (SILENT if beat else LATE)


@dataclass(frozen=True, slots=True)
class _Over:
    result: object


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


def _precedence(share: Share) -> tuple[int, int, int]:
    place = share.step
    if share.fate in (Fate.DIED, Fate.RAISED, Fate.EXITED):
        place = share.order
    elif share.fate is Fate.HEALTHY:
        place = -share.step  # one that does not train has little to tell
    return _TELLS.index(share.fate), place, share.rank


def _as_told(share: Share, teller: Share) -> Share:
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
