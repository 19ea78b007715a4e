"""Where the ranks of a program post what the others are to know: the launcher's own store, under
keys that are ours alone. A rank that gives no sign of life for a while is gone."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

NAP = 0.05  # seconds between two looks into the store
BEAT = 1.0  # seconds between two signs of life
SILENT = 15.0  # seconds without one, after which a rank is gone
LATE = 120.0  # and until its first: machines do not start at once
REPLY = timedelta(seconds=20)  # of the store


class Board:
    """That of this rank, one of `count`; `address` is where the store is. `connect` opens it. With
    `beats` the others see that this process lives."""

    def __init__(
        self, rank: int, count: int, connect: Callable[[], Any], address: str, *, beats: bool = True
    ) -> None:
        self.rank, self.count, self.address = rank, count, address
        self._store = connect()
        self._lost = False  # the store has gone, with the launcher
        self._beats: dict[int, tuple[bytes, float]] = {}  # the last of each rank, and when it came
        self._has_left = threading.Event()
        self._calling = threading.Lock()  # while the other thread is in torch's code
        self._life: threading.Thread | None = None
        if beats:
            # Connected by now: a fork while another thread looks up a name leaves libc's lock of
            # the resolver taken in the copy, for ever.
            self._life = threading.Thread(target=self._beat, args=(connect(),), daemon=True)
            self._life.start()

    @classmethod
    def found(cls, purpose: str = "", *, beats: bool = True) -> Board | None:
        """That of torchrun, which keeps a store for its workers; None in a program of one rank, or
        of another launcher. Each purpose has keys of its own."""
        environ = os.environ
        count = int(environ.get("WORLD_SIZE", "1"))
        if count < 2 or environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            return None
        from torch._C._distributed_c10d import PrefixStore, TCPStore

        address, port = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
        prefix = f"gradscope/{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{purpose}"

        def connect() -> Any:
            plain = TCPStore(address, port, is_master=False, timeout=REPLY)
            return PrefixStore(prefix, plain)

        with suppress(RuntimeError):  # those of torch.distributed are
            return cls(int(environ["RANK"]), count, connect, address, beats=beats)
        return None

    @classmethod
    def joined(cls) -> Board | None:
        """That of the processes which the program itself has made a group of, whoever has started
        them; before that as `found`. Without signs of life: who waits here does so for a while."""
        group: Any = sys.modules.get("torch.distributed.distributed_c10d")
        if group is None or not group.is_initialized():
            return cls.found(beats=False)
        rank, count = group.get_rank(), group.get_world_size()
        store = group.PrefixStore("gradscope", group._get_default_store())
        return cls(rank, count, lambda: store, "", beats=False) if count > 1 else None

    @property
    def others(self) -> list[int]:
        return [rank for rank in range(self.count) if rank != self.rank]

    def post(self, key: str, fact: object) -> None:
        self._ask(lambda: self._store.set(key, pickle.dumps(fact)))

    def has(self, key: str) -> bool:
        return bool(self._ask(lambda: self._store.check([key])))

    def read(self, key: str, of: int, until: float = float("inf")) -> Any:
        """What a rank has posted, waiting for it; None once the rank is gone, or after `until`."""
        while not self.has(key):
            is_late = self._lost or time.monotonic() >= until or self._is_gone(of)
            if is_late and not self.has(key):  # it may be its last word
                return None
            time.sleep(NAP)
        value = self._ask(lambda: self._store.get(key))
        return pickle.loads(value) if value is not None else None

    def exchanged(self, key: str, fact: Any, until: float = float("inf")) -> dict[int, Any]:
        """What each rank posts under a key, in their order; without those that are gone."""
        self.post(f"{key}/{self.rank}", (fact,))  # which may be None
        found = {rank: self.read(f"{key}/{rank}", rank, until) for rank in self.others}
        facts = {rank: one[0] for rank, one in found.items() if one is not None}
        return dict(sorted({**facts, self.rank: fact}.items()))

    def count_up(self, key: str) -> int:
        """How many have come by here, with this one."""
        return int(self._ask(lambda: self._store.add(key, 1)) or 0)

    def is_first(self, key: str) -> bool:
        """Whether no other rank has come by here before."""
        own = str(self.rank)
        first = self._ask(lambda: self._store.compare_set(key, "", own))
        return first is None or bytes(first).decode() == own

    def leave(self, patience: float) -> None:
        """This process is about to end, together with the others if they come in time."""
        until = time.monotonic() + patience
        self.exchanged("left", True, until)
        self._has_left.set()
        if self._life is not None:
            self._life.join(BEAT)  # a thread that ends in native code would end the process

    def _ask(self, question: Callable[[], Any]) -> Any:
        """The store's answer; None from now on where it is gone."""
        if self._lost:
            return None
        try:
            return question()
        except RuntimeError:
            self._lost = True
            return None

    def _beat(self, store: Any) -> None:
        """In a thread of its own: signs of life, whatever the rest of this process does."""
        count = 0
        with suppress(RuntimeError):
            while True:
                with self._calling:
                    store.set(f"alive/{self.rank}", str(count))
                count += 1
                if self._has_left.wait(BEAT):
                    return

    @contextmanager
    def still(self) -> Iterator[None]:
        """For a fork: none of torch's locks is taken meanwhile, which the copy would wait for."""
        is_still = self._calling.acquire(timeout=BEAT)  # a store that is gone may not answer
        try:
            yield
        finally:
            if is_still:
                self._calling.release()

    def _is_gone(self, rank: int) -> bool:
        """Whether there was no sign of life for a while, or it has left."""
        if self.has(f"left/{rank}"):
            return True
        key, now = f"alive/{rank}", time.monotonic()
        beat = bytes(self._ask(lambda: self._store.get(key)) or b"") if self.has(key) else b""
        known, since = self._beats.get(rank, (None, now))
        if beat != known:
            self._beats[rank] = (beat, now)
            return False
        return now - since > (SILENT if beat else LATE)
