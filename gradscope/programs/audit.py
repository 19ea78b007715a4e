"""Sees what the program does outside of its own process: by Python's audit events.

What native code does on its own (a connection of gRPC) has no such event; the writers that PyTorch
and h5py have are told of by `programs.native`.
"""

import importlib.machinery
import multiprocessing
import os
import pickle
import platform
import re
import shlex
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from traceback import walk_stack
from typing import Any
from urllib.parse import unquote, urlsplit

from gradscope.facts import Effect, EffectKind
from gradscope.programs import native
from gradscope.programs.kin import is_own, of_descriptor
from gradscope.programs.overlay import is_within
from gradscope.record.sites import file_in_torch, note_site, resolve

_MOST = 2_000  # effects that are kept
_LONGEST = 400  # characters of a command or a path
OPENS_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_ONLY_READ = re.compile(r"\bmode=(ro|memory)\b")  # of a database
_OF_THE_SYSTEM = ("/proc/", "/sys/")
# Python's own cache of compiled modules is nobody's effect.
_importer: Any = sys.modules[importlib.machinery.SourceFileLoader.__module__]
_CACHING = frozenset(
    (_importer._write_atomic.__code__, _importer.SourceFileLoader.set_data.__code__)
)
# `uname -p`, which Python asks for the name of the processor: h5py does as it is imported.
_system: Any = platform
_ASKING = _system._Processor.from_subprocess.__code__


class _OwnWork(threading.local):
    depth = 0


_own_work = _OwnWork()


@contextmanager
def own_work() -> Any:
    """What runs inside is ours, and not the program's: it is neither noted nor redirected."""
    _own_work.depth += 1
    try:
        yield
    finally:
        _own_work.depth -= 1


def is_own_work() -> bool:
    return _own_work.depth > 0


def as_the_program(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the program's that is called from within."""

    def call(*args: Any) -> Any:
        before, _own_work.depth = _own_work.depth, 0
        try:
            return function(*args)
        finally:
            _own_work.depth = before

    return call


class Effects:
    """Collects them, from its making to the end of this process: it runs one program, and an audit
    hook cannot be taken off. `step` tells the backward passes so far. `stop` is told of each effect
    before it happens, and may leave the process."""

    def __init__(
        self, step: Callable[[], int], stop: Callable[[Effect], None] | None = None
    ) -> None:
        self._forks = _Forks()
        self.processes: list[str] = []  # names of those that multiprocessing started
        self.has_database = False  # a file that native code may open again, by its name
        self._step = step
        self._stop = stop
        self._program = os.getpid()
        self._found: dict[tuple[EffectKind, str], Effect] = {}
        self._made: set[str] = set()
        self._addresses = _Addresses()
        self._handlers: dict[str, Callable[..., None]] = {
            "open": self._opens,
            "os.mkdir": self._makes,
            "os.rename": self._renames,
            "os.remove": self._deletes,
            "os.rmdir": self._deletes,
            "os.link": lambda source, target, *_: self.writes(target),
            "os.symlink": lambda source, target, *_: self.writes(target),
            "os.truncate": lambda path, length: self.writes(path),
            "sqlite3.connect": self._opens_database,
            "socket.bind": lambda sock, address: self._addresses.bound.append(sock),
            "socket.getaddrinfo": lambda host, port, *_: self._addresses.note(host, port),
            "socket.connect": self._connects,
            "socket.sendto": self._connects,
            "socket.sendmsg": self._connects,
            "subprocess.Popen": self._spawns,
            "os.system": self._starts,
            "os.exec": lambda path, args, env: self._starts(args),
            "os.posix_spawn": lambda path, args, env: self._starts(args),
            "os.kill": self._signals,
            "os.killpg": lambda group, number: self._signals(-group, number),
            # As the handler of `logging` does, which connects to it.
            "syslog.syslog": lambda *_: self._note(EffectKind.CONNECTION, "the system log"),
            native.ATTACHED: self._attaches,
            native.MET: lambda path: self._note(EffectKind.CONNECTION, _text(path)),
            native.SIGNALLED: self._signals_by_descriptor,
        }
        _watch_starts(self.processes, self._starts)
        known, hear = self._handlers.get, self._hear

        def heard(event: str, args: tuple[Any, ...]) -> None:
            # Every id() and every look at a frame comes by here: nothing is asked of most events.
            if (handler := known(event)) is not None:
                hear(event, handler, args)

        native.tell(heard)
        sys.addaudithook(heard)

    def end(self) -> None:
        """Nobody hears of what happens from now on."""
        self._handlers.clear()

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The file descriptors that are shared with processes which the program has forked."""
        return self._forks.pipe or ()

    def begin_again(self, stop: Callable[[Effect], None]) -> None:
        """Called in a copy of the process, which repeats the program from here on."""
        self._found.clear()
        self._forks.forget()
        self._program = os.getpid()
        self._stop = stop

    def found(self) -> tuple[Effect, ...]:
        """All effects in the order in which they came; those of forked processes last."""
        for effect in self._forks.received():
            self._found.setdefault((effect.kind, effect.what), effect)
        return tuple(self._found.values())

    def writes(self, path: Any) -> Any:
        """A file is about to be written: told by an event, or by a writer that has none. It is
        written where it is."""
        if (name := _named(path)) is not None and not is_special(name):
            self._note(EffectKind.WRITE, name, own=self._is_new(name))
        return path

    def _hear(self, event: str, handler: Callable[..., None], args: tuple[Any, ...]) -> None:
        if _own_work.depth:
            return
        _own_work.depth += 1
        try:
            if event == "open" or sys._getframe(2).f_code not in _CACHING:
                handler(*args)
        except Exception:
            return  # the program's call must not fail for want of a note on it
        finally:
            _own_work.depth -= 1

    def _opens(self, path: Any, mode: Any, flags: int) -> None:
        if flags & OPENS_TO_WRITE and sys._getframe(3).f_code not in _CACHING:
            self.writes(path)

    def _makes(self, path: Any, mode: int, dir_fd: int = -1) -> None:
        name = _named(path, dir_fd)
        if name is not None and self._is_new(name):
            self._note(EffectKind.FOLDER, name, own=True)

    def _deletes(self, path: Any, dir_fd: int = -1) -> None:
        name = _named(path, dir_fd)
        if name is not None and os.path.lexists(name):
            self._note(EffectKind.DELETION, name, own=is_within(name, self._made))

    def _renames(self, source: Any, target: Any, src_fd: int = -1, dst_fd: int = -1) -> None:
        old, new = _named(source, src_fd), _named(target, dst_fd)
        if old is None or new is None or not os.path.lexists(old):
            return
        self._note(EffectKind.RENAME, old, own=is_within(old, self._made))
        self._note(EffectKind.WRITE, new, own=self._is_new(new))

    def _is_new(self, name: str) -> bool:
        """Whether nothing was there before this run; it is the run's own from now on."""
        if is_within(name, self._made):
            return True
        if os.path.lexists(name):
            return False
        self._made.add(name)
        return True

    def _opens_database(self, database: Any) -> None:
        name = _text(database)
        if name and name != ":memory:":
            self.has_database = True
            address = urlsplit(name)
            if address.scheme != "file":
                self.writes(name)
            elif address.path != ":memory:" and not _ONLY_READ.search(address.query):
                self.writes(unquote(address.path))

    def _attaches(self, name: str | None) -> None:
        if name is not None:
            self._opens_database(name)
        else:
            self.has_database = True
            self._note(EffectKind.WRITE, "a database that it attaches")

    def _connects(self, sock: socket.socket, address: Any) -> None:
        # `sendmsg` without an address goes where the socket has been connected to, as was told.
        if address is not None and not self._addresses.is_ours(sock, address):
            self._note(EffectKind.CONNECTION, self._addresses.shown(sock, address))

    def _spawns(self, executable: Any, args: Any, *_: Any) -> None:
        codes = [frame.f_code for frame, _ in walk_stack(sys._getframe(1))]
        compiles = any(file_in_torch(code).startswith("_inductor/") for code in codes)
        if _ASKING not in codes and not compiles:
            self._starts(args or executable)

    def _starts(self, command: Any) -> None:
        if isinstance(command, str | bytes):
            words = _text(command)
        else:
            words = shlex.join(_text(one) for one in command)
        self._note(EffectKind.PROCESS, words)

    def _signals(self, pid: int, number: int) -> None:
        if number and not is_own(pid, self._program):  # 0 only asks whether it is there
            name = next((one.name for one in signal.Signals if one == number), str(number))
            whom = f"the processes of group {-pid}" if pid < -1 else f"process {pid}"
            self._note(EffectKind.SIGNAL, f"{whom} ({name})")

    def _signals_by_descriptor(self, pidfd: int, number: int) -> None:
        pid = of_descriptor(pidfd)
        if pid is not None:
            self._signals(pid, number)

    def _note(self, kind: EffectKind, what: str, *, own: bool = False) -> None:
        key = kind, what[:_LONGEST]
        if key in self._found and self._stop is None:
            return
        user, _ = note_site(sys._getframe(1))
        effect = Effect(*key, self._step(), resolve(*user[0]) if user else None, own)
        if key not in self._found and len(self._found) < _MOST:
            self._found[key] = effect
            self._forks.tell(effect)
        if self._stop is not None:
            self._stop(effect)


class _Addresses:
    """Where the program connects to, and whether it listens there itself: of one run, which begins
    now."""

    def __init__(self) -> None:
        self.bound: list[socket.socket] = []
        self._names: dict[tuple[int, object], str] = {}  # by the thread that asked, and the port
        self._began = time.time()

    def note(self, host: Any, port: Any) -> None:
        """A name was looked up: who connects next means that one."""
        number = int(port) if isinstance(port, str | bytes) and port.isdigit() else port
        self._names[threading.get_ident(), number] = _text(host)

    def is_ours(self, sock: socket.socket, address: Any) -> bool:
        """Whether one of the program's own threads or processes listens there. A forked process
        that binds later is known by its socket file, which is younger than the run."""
        if sock.family == getattr(socket, "AF_UNIX", None):
            with suppress(OSError, ValueError):
                return os.stat(address).st_ctime >= self._began
            return any(_bound_to(one) == address for one in self.bound)
        if not _is_ip(sock):
            return True  # netlink and the like: of this machine
        return any(_listens(one, address) for one in self.bound if _is_ip(one))

    def shown(self, sock: socket.socket, address: Any) -> str:
        """ "localhost:80"."""
        if not _is_ip(sock):
            return _text(address)
        host = self._names.get((threading.get_ident(), address[1])) or _text(address[0])
        return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"


def _is_ip(sock: socket.socket) -> bool:
    return sock.family in (socket.AF_INET, socket.AF_INET6)


def _bound_to(sock: socket.socket) -> Any:
    with suppress(OSError):
        return sock.getsockname()
    return None


def _listens(sock: socket.socket, address: Any) -> bool:
    own = _bound_to(sock)
    return own is not None and own[1] == address[1] and own[0] in (address[0], "0.0.0.0", "::")


class _Forks:
    """The way from forked processes (a loader's workers) to the one that reports."""

    def __init__(self) -> None:
        self.pipe: tuple[int, int] | None = None
        self._is_fork = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before, after_in_child=self._in_child)

    def _before(self) -> None:
        if self.pipe is None:
            with suppress(OSError):
                self.pipe = os.pipe()
                for end in self.pipe:
                    os.set_blocking(end, False)

    def _in_child(self) -> None:
        self._is_fork = True

    def forget(self) -> None:
        """Called in a copy: forked processes of before report to the original, and a pipe to it
        would keep the copy from being copied."""
        for end in self.pipe or ():
            with suppress(OSError):  # the program has closed all its files
                os.close(end)
        self.pipe = None

    def tell(self, effect: Effect) -> None:
        if self._is_fork and self.pipe is not None:
            pickled = pickle.dumps(effect)
            with suppress(OSError):  # full: so many say enough
                os.write(self.pipe[1], len(pickled).to_bytes(4, "little") + pickled)

    def received(self) -> Iterable[Effect]:
        if self._is_fork or self.pipe is None:
            return
        came = b""
        with suppress(OSError):
            while more := os.read(self.pipe[0], 1 << 16):
                came += more
        while came:
            size = int.from_bytes(came[:4], "little")
            yield pickle.loads(came[4 : 4 + size])
            came = came[4 + size :]


def _watch_starts(names: list[str], starts: Callable[[Any], None]) -> None:
    """Processes of `multiprocessing`: forked ones are this program still, others start anew."""
    start = BaseProcess.start

    def noted(process: BaseProcess) -> None:
        names.append(process.name)
        method = getattr(process, "_start_method", None) or multiprocessing.get_start_method()
        if method != "fork":
            with own_work():
                starts([process.name])
        start(process)

    BaseProcess.start = noted  # type: ignore[method-assign,assignment]


def _named(path: Any, dir_fd: int = -1) -> str | None:
    """The absolute path; None of what is open already."""
    if isinstance(path, int):
        return None
    name = os.fsdecode(path)
    if dir_fd != -1 and not os.path.isabs(name):
        name = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), name)
    return os.path.abspath(name)


def is_special(name: str) -> bool:
    """Devices, pipes and what the kernel shows as files: nothing is stored there."""
    if name.startswith(_OF_THE_SYSTEM):
        return True
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _text(value: Any) -> str:
    return os.fsdecode(value) if isinstance(value, str | bytes | os.PathLike) else str(value)
