"""Workers of DataLoaders, which a copy of the process has not: what they have sent since the copy
was made is kept for it, in memory, and comes there in the same order. All that the program's own
process does about it (its samplers, what arrives too early) the copy does as well."""

from __future__ import annotations

import ctypes
import io
import mmap
import os
import pickle
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import torch
from torch.utils.data import dataloader
from torch.utils.data._utils import signal_handling

from gradscope.record.forking import c_library
from gradscope.record.stand_ins import stand_in
from gradscope.record.tracing import unobserved

_MOST = 2**28  # bytes that are kept for one copy
_AHEAD = 1.0  # seconds that a program which is over waits for what its workers are at
_SIZE = 8  # bytes
_MAPPED, _SEMAPHORE = b"/dev/shm/torch_", b"/dev/shm/sem."


class Tape:
    """What came from workers since a copy was made, which reads it from its begin."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("batches")
        self.is_full = False
        self._end = 0

    def keep(self, data: bytes) -> None:
        self.is_full = self._end + len(data) > _MOST
        if self.is_full:
            os.ftruncate(self.descriptor, 0)
            return
        for part in (len(data).to_bytes(_SIZE, "little"), data):
            view = memoryview(part)
            while view:
                written = os.pwrite(self.descriptor, view, self._end)
                view, self._end = view[written:], self._end + written

    def read(self) -> bytes:
        """The next batch, pickled; empty at the end."""
        size = int.from_bytes(self._read(_SIZE), "little")
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := os.pread(self.descriptor, size - len(data), self._end)):
            data, self._end = data + more, self._end + len(more)
        return data


class Batches:
    """Those of the loaders of this process, which runs one program. In a copy `on_end` is called
    where more is asked for than had come."""

    def __init__(self) -> None:
        self.on_end: Callable[[], None] = lambda: None
        self.is_starting = False  # a loader starts its workers
        self.tapes: list[Tape] = []
        self.cost = 0.0  # seconds that keeping has taken
        self._played: Tape | None = None
        self._iterators: WeakSet[Any] = WeakSet()
        self._last: Any = None
        self._replaced: list[Any] = []  # of a copy: neither closed nor waited for
        self._threads: set[int] = set()
        self._descriptors: set[int] = set()
        owner: Any = dataloader._MultiProcessingDataLoaderIter
        begin, get_data = owner.__init__, owner._get_data

        def __init__(iterator: Any, loader: Any) -> None:
            self._iterators.add(iterator)
            if self._played is not None:
                loader._DataLoader__multiprocessing_context = _NOBODY
            before, self.is_starting = self.is_starting, True
            try:
                begin(iterator, loader)
            finally:
                self.is_starting = before

        def _get_data(iterator: Any) -> Any:
            if self._played is not None:
                return self._play(self._played)
            data = get_data(iterator)
            if self.tapes:
                self._last = iterator
                self._keep(data)
            return data

        stack = ExitStack()  # never closed: this process runs one program
        stand_in(stack, owner, "__init__", __init__)
        stand_in(stack, owner, "_get_data", _get_data)

    # Of the program

    def workers(self) -> set[int]:
        """Their process ids."""
        return {one.pid for iterator in self._live() for one in iterator._workers}

    def threads(self) -> set[int]:
        """The threads that feed the workers and are idle now."""
        queues = (one for iterator in self._live() for one in iterator._index_queues)
        resting = {
            one._thread.ident
            for one in queues
            if one._thread is not None and not one._buffer and one._notempty._waiters
        }
        return resting | self._threads

    def descriptors(self) -> set[int]:
        """What is open between the program and its workers, and memory that a batch came in."""
        found = {one.descriptor for one in (*self.tapes, self._played) if one is not None}
        if not self.has_workers or self._played is not None:
            return found | self._descriptors
        for iterator in self._iterators:
            for one in (iterator._worker_result_queue, *iterator._index_queues):
                for end in (one._reader, one._writer):
                    with suppress(OSError):
                        found.add(end.fileno())
            for worker in iterator._workers:
                found.update(worker._popen.finalizer._args)
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}").startswith(_MAPPED.decode()):
                    found.add(int(name))
        return found | self._descriptors

    @property
    def has_workers(self) -> bool:
        return bool(self._iterators)

    def handles(self, handler: Any) -> bool:
        """Whether a handler of signals is the one by which torch looks after its workers, and calls
        no other."""
        if getattr(handler, "__globals__", None) is not vars(signal_handling):
            return False
        return not any(callable(cell.cell_contents) for cell in handler.__closure__ or ())

    def _live(self) -> Iterator[Any]:
        if self._played is not None:
            return iter(())
        return (one for one in self._iterators if not one._shutdown)

    def _keep(self, data: Any) -> None:
        tapes = [tape for tape in self.tapes if not tape.is_full]
        if not tapes:
            return
        began, text = time.thread_time(), io.BytesIO()
        with unobserved():
            _Pickler(text, pickle.HIGHEST_PROTOCOL).dump(data)
        for tape in tapes:
            tape.keep(text.getvalue())
        self.cost += time.thread_time() - began

    def fetch(self) -> None:
        """The program is over: what its workers are at is for the steps that follow."""
        iterator, until = self._last, time.monotonic() + _AHEAD
        self._last = None
        if iterator is None or not self.tapes or iterator._shutdown:
            return
        with suppress(Exception):
            for _ in range(iterator._tasks_outstanding):
                came, data = iterator._try_get_data(max(0.0, until - time.monotonic()))
                if came:
                    self._keep(data)

    # Of a copy

    def own_memory(self) -> None:
        """This process is a copy: give it memory of its own for the batches that it holds."""
        for start, end in shared_batches():
            held = ctypes.string_at(start, end - start)
            c_library().mmap(
                ctypes.c_void_p(start),
                ctypes.c_size_t(end - start),
                mmap.PROT_READ | mmap.PROT_WRITE,
                mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED,
                -1,
                ctypes.c_long(0),
            )
            ctypes.memmove(start, held, end - start)

    def play(self, tape: Tape) -> None:
        """This process is a copy: from here on, batches come from there."""
        self._threads, self._descriptors = self.threads(), self.descriptors()
        self._played, self.tapes, self._last = tape, [], None
        for one in self._iterators:
            self._replaced.append(dict(vars(one)))
            one._workers = [_Nobody() for _ in one._workers]
            one._index_queues = [_Nobody() for _ in one._index_queues]
            one._worker_result_queue = one._data_queue = _Nobody()
            one._workers_done_event = threading.Event()
            if one._shutdown:
                one._workers_done_event.set()

    def _play(self, tape: Tape) -> Any:
        data = tape.read()
        if not data:
            self.on_end()
        return pickle.loads(data)


class _Nobody:
    """Stands in for a worker, and for the queues to it and from it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.pid = os.getpid()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


_NOBODY = SimpleNamespace(Queue=_Nobody, Process=_Nobody, Event=threading.Event)
_MAP_FIXED = 0x10  # of Linux


class _Pickler(pickle.Pickler):
    """Of plain tensors it takes the bytes as they are: torch's own way makes a file of each."""

    def reducer_override(self, one: Any) -> Any:
        if type(one) is not torch.Tensor or one.device.type != "cpu" or one.requires_grad:
            return NotImplemented
        if one.layout is not torch.strided or one.is_quantized or one.is_conj() or one.is_neg():
            return NotImplemented
        if not one.is_contiguous() or vars(one):
            return NotImplemented
        held = ctypes.string_at(one.data_ptr(), one.nbytes) if one.numel() else b""
        return _tensor, (held, one.dtype, tuple(one.shape), one.stride())


def _tensor(held: bytes, dtype: torch.dtype, shape: Any, stride: Any) -> torch.Tensor:
    with unobserved():
        made = (
            torch.frombuffer(bytearray(held), dtype=dtype) if held else torch.empty(0, dtype=dtype)
        )
    # By the ops that make a tensor of what a worker has sent.
    rebuilt: torch.Tensor = torch._utils._rebuild_tensor(made._typed_storage(), 0, shape, stride)
    return rebuilt


def shared_batches() -> list[tuple[int, int]]:
    """The addresses of memory of torch's that this process shares with others."""
    return [
        tuple(int(end, 16) for end in line.split(None, 1)[0].split(b"-"))  # type: ignore[misc]
        for line in _shared()
        if _MAPPED in line
    ]


def shares_other_memory(ours: int | None) -> bool:
    """Besides those, the semaphores of queues, and what begins at that address."""
    return any(
        _MAPPED not in line and _SEMAPHORE not in line and int(line.partition(b"-")[0], 16) != ours
        for line in _shared()
    )


def _shared() -> Collection[bytes]:
    with open("/proc/self/maps", "rb") as maps:
        return [line for line in maps if line.split(None, 2)[1] == b"rw-s"]
