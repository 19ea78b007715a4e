"""What opens files in native code by their name, or signals a process, so that no audit event of
Python's tells of it."""

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

import torch

from gradscope.record.stand_ins import runs_ops, without_us

Place = Callable[..., Any]  # where to write what the program calls so, and calls with the rest
Hear = Callable[[str, tuple[Any, ...]], None]
# What is told beside Python's own audit events, as these are.
ATTACHED = "attached"  # the name of a database that another one is about to open; None: not known
MET = "met"  # the file in which several processes are about to meet
SIGNALLED = "signalled"  # a descriptor of a process, and the signal that is about to be sent
_Wanted = dict[str, Callable[[Any], None]]  # by module: what changes it
_FACTORY = 5  # the number of this argument of `sqlite3.connect`


class _Places:
    """Where files are now: a copy of the program has what was put around its writers before. What
    cannot be put elsewhere is only told: the database that a statement of SQL opens, ..."""

    is_asked = False
    written: Place = staticmethod(lambda path: path)
    read: Place = staticmethod(lambda path: path)
    hear: Hear = staticmethod(lambda event, args: None)


def _written(path: Any, *rest: Any, **named: Any) -> Any:
    return _Places.written(path)


def _read(path: Any, *rest: Any, **named: Any) -> Any:
    return _Places.read(path)


def _mapped(path: Any, shared: bool | None = False, *rest: Any, **named: Any) -> Any:
    """`torch.from_file`, and `torch.load` with mmap=True."""
    return (_written if shared else _read)(path)


def _met(path: Any, world_size: Any = -1) -> Any:
    """A file by which processes find each other: of one alone it is written elsewhere; several
    would not meet there."""
    if int(world_size) <= 1:
        return _written(path)
    _Places.hear(MET, (path,))
    return path


def tell(hear: Hear) -> None:
    """Tell this one of what has no audit event, as a hook is told of what has one."""
    _Places.hear = staticmethod(hear)


def install(now_written: Place, now_read: Place = lambda path: path) -> None:
    """Ask these for each file's place before it is opened. Not undone: this process runs one
    program."""
    _Places.written, _Places.read = staticmethod(now_written), staticmethod(now_read)
    if _Places.is_asked:
        return
    _Places.is_asked = True
    library: Any = torch._C
    for owner, name, number, place in (
        (library, "PyTorchFileWriter", 0, _written),  # torch.save
        (library, "PyTorchFileReader", 0, _read),
        (library.ScriptModule, "save", 1, _written),  # torch.jit.save
        (library.ScriptModule, "_save_for_mobile", 1, _written),
        (library.ScriptFunction, "save", 1, _written),
        (library, "import_ir_module", 1, _read),  # torch.jit.load
        (library, "_load_for_lite_interpreter", 0, _read),
        (library._autograd._ProfilerResult, "save", 1, _written),  # export_chrome_trace
        (torch.profiler.profiler, "_add_execution_trace_observer", 0, _written),
        (torch, "from_file", 0, _mapped),
        (os, "mkfifo", 0, _written),
    ):
        if hasattr(owner, name):
            setattr(owner, name, _placed(getattr(owner, name), number, place))
    storage: Any = torch.UntypedStorage
    storage.from_file = staticmethod(_placed(storage.from_file, 0, _mapped))
    if hasattr(signal, "pidfd_send_signal"):
        _tell_signals()
    if hasattr(library, "_distributed_c10d"):
        store = library._distributed_c10d.FileStore
        store.__init__ = _placed(store.__init__, 1, _met, called="file_name")
    wanted: _Wanted = {
        "h5py.h5f": _place_hdf5,
        "safetensors._safetensors_rust": _place_safetensors,
        "readline": _place_history,
        "sqlite3.dbapi2": _watch_databases,
    }
    for name, put in wanted.items():
        if name in sys.modules:
            put(sys.modules[name])
    sys.meta_path.insert(0, _Before(wanted))


def _tell_signals() -> None:
    send = signal.pidfd_send_signal

    @wraps(send)
    def sent(pidfd: int, sig: int, *args: Any) -> None:
        _Places.hear(SIGNALLED, (pidfd, sig))
        with without_us:
            send(pidfd, sig, *args)

    runs_ops(sent)
    for module in (signal, sys.modules["_signal"]):
        module.pidfd_send_signal = sent  # type: ignore[attr-defined]


class _Before:
    """Finds the modules that open files, so that each is changed once it is there and before
    anybody has it."""

    def __init__(self, wanted: _Wanted) -> None:
        self._wanted = wanted

    def find_spec(self, name: str, *rest: Any) -> Any:
        if name not in self._wanted:
            return None
        others = [one for one in sys.meta_path if one is not self and hasattr(one, "find_spec")]
        found = (one.find_spec(name, *rest) for one in others)
        spec: Any = next((one for one in found if one is not None), None)
        if spec is not None and spec.loader is not None:  # it may only be looked for
            spec.loader = _Changing(spec.loader, self._changed)
        return spec

    def _changed(self, module: ModuleType) -> None:
        put = self._wanted.pop(module.__name__, None)
        if put is not None:
            put(module)


class _Changing:
    """Stands in for a module's loader until it is loaded: some are classes, which all share."""

    def __init__(self, loader: Any, changed: Callable[[ModuleType], None]) -> None:
        self._loader, self._changed = loader, changed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._changed(module)


def _place_hdf5(library: Any) -> None:
    def opened(path: Any, flags: int = library.ACC_RDWR, *rest: Any, **named: Any) -> Any:
        return (_written if flags & library.ACC_RDWR else _read)(path)

    library.create = _placed(library.create, 0, _written)
    library.open = _placed(library.open, 0, opened)


def _place_safetensors(library: Any) -> None:
    package = [one for name, one in sys.modules.items() if name.startswith("safetensors.")]
    for name, number, place in (("serialize_file", 1, _written), ("safe_open", 0, _read)):
        original = getattr(library, name)
        placed = _placed(original, number, place)
        for module in (library, sys.modules.get("safetensors"), *package):
            if vars(module).get(name) is original:
                setattr(module, name, placed)


def _place_history(library: Any) -> None:
    for name, number, place in (
        ("write_history_file", 0, _written),
        ("append_history_file", 1, _written),
        ("read_history_file", 0, _read),
    ):
        if hasattr(library, name):  # libedit has no `append_history_file`
            unnamed = os.path.join("~", ".history")
            setattr(library, name, _placed(getattr(library, name), number, place, unnamed))


def _watch_databases(library: Any) -> None:
    connect = library.connect
    kind: Any = library.Connection

    def may(action: int, name: str | None, *_: Any) -> int:
        if action == library.SQLITE_ATTACH:
            _Places.hear(ATTACHED, (name,))
        return int(library.SQLITE_OK)

    class Connection(kind):  # type: ignore[misc]
        """The one way to be asked before a statement opens a file. The program may have the same
        asked of a function of its own, of which there is only one."""

        __slots__ = ()
        __module__, __qualname__, __doc__ = kind.__module__, kind.__qualname__, kind.__doc__

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            with without_us:
                super().__init__(*args, **kwargs)
            super().set_authorizer(may)

        @wraps(kind.set_authorizer)
        def set_authorizer(self, authorizer_callback: Any) -> None:
            def both(action: int, *names: Any) -> Any:
                with without_us:
                    answer = authorizer_callback(action, *names)
                return may(action, *names) if answer == library.SQLITE_OK else answer

            with without_us:
                super().set_authorizer(both if callable(authorizer_callback) else may)

    @wraps(connect)
    def connected(*args: Any, **kwargs: Any) -> Any:
        if len(args) <= _FACTORY:
            kwargs.setdefault("factory", Connection)
        with without_us:
            return connect(*args, **kwargs)

    for function in (connected, Connection.__init__, Connection.set_authorizer):
        runs_ops(function)
    others: list[Any] = [sys.modules.get(name) for name in ("sqlite3", "_sqlite3")]
    for module in (library, *others):
        for name, old, new in (("connect", connect, connected), ("Connection", kind, Connection)):
            if module is not None and vars(module).get(name) is old:
                setattr(module, name, new)


def _placed(
    original: Callable[..., Any],
    number: int,
    place: Place,
    unnamed: str | None = None,
    called: str = "filename",
) -> Callable[..., Any]:
    """Of a function that takes a path, or an open file, as its argument of that number, or as it is
    `called`; `unnamed` is where it goes without."""

    def placed(path: Any, *rest: Any, **named: Any) -> Any:
        there = place(path, *rest, **named)
        return os.fsencode(there) if isinstance(path, bytes) else there

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if unnamed is not None and (len(args) == number or args[number:] == (None,)):
            args = (*args[:number], os.path.expanduser(unnamed))
        if len(args) > number and isinstance(args[number], str | bytes | os.PathLike):
            path, *rest = args[number:]
            args = (*args[:number], placed(path, *rest, **kwargs), *rest)
        elif isinstance(kwargs.get(called), str | os.PathLike):
            path = kwargs.pop(called)
            kwargs = {called: placed(path, **kwargs), **kwargs}
        with without_us:
            return original(*args, **kwargs)

    runs_ops(call)
    return call
